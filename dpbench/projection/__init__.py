"""What a step costs on a described machine: recorded steps, replayed. README.md explains the model."""
