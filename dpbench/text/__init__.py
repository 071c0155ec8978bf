"""What comes from outside, what is written safely, sizes and durations."""
