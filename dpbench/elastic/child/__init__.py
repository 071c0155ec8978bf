"""The child processes: torchrun's agent and its workers."""
