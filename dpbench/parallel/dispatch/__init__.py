"""How the replicas are called: in sequence, on threads, or in the way that measures faster."""
