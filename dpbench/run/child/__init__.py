"""TODO-ROOM run/child."""
