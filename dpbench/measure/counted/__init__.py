"""What a counted step shows beside its counts of events."""
