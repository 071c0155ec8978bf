"""Elastic runs for a terminal: tables, JSON, and the time stamps of an outage as lines of characters."""
