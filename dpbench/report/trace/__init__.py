"""A trace for its readers: a picture (its colours are in report/page/assets/trace.css), texts and JSON."""
