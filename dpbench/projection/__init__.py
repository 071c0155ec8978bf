"""What a step costs on a described machine: a sum of counts. MODEL.md explains it."""
