"""What it means: comparisons turned into words. No torch."""
