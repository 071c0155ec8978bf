"""Machines that are only described: their files, their links, and what a collective costs on them."""
