"""TODO-ROOM measure/gpu."""
