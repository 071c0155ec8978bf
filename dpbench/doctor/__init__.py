"""TODO-ROOM doctor."""
