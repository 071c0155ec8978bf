"""TODO-ROOM report/gate."""
