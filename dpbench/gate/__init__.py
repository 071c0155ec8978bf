"""Is it slower? Two commits side by side, and an answer that a CI job can trust. The parent's side: no torch."""
