"""Tier 0: exact counts."""
