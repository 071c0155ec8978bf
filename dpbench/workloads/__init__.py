"""Models with their batches, losses and optimisers: the built-in families, or the user's own."""
