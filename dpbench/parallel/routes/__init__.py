"""Routes: the plan, and the ways through the host and by NCCL."""
