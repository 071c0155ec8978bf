"""TODO-ROOM stats."""
