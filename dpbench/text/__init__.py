"""Texts and files: what comes from outside, what is written safely, sizes and durations. Knows nothing of measuring."""
