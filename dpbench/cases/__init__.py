"""What to measure: names, variants, sweep files, cases and their order."""
