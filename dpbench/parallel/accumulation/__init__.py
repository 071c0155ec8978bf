"""Gradient accumulation: lanes keep their gradients until the last backward."""
