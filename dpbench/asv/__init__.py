"""TODO-ROOM asv."""
