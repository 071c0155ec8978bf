"""What a counted step shows beside its counts of events: dependencies, the order of the sums, kept memory."""
