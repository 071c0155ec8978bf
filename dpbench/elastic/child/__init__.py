"""The child processes of an elastic run: torchrun's agent and its workers."""
