"""TODO-ROOM gate/self_test."""
