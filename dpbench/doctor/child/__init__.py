"""TODO-ROOM doctor/child."""
