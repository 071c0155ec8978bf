"""How the replicas are called: in sequence, interleaved, on threads, or in the way that measures fastest."""
