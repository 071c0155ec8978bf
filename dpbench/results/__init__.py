"""What was measured: records, their store, their statistics and comparisons. No torch."""
