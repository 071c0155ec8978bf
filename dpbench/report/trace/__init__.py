"""A trace for its readers: a picture, texts for a terminal, and JSON."""
