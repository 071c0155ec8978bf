"""Is this machine fit to measure on? See README.md."""
