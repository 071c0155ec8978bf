"""Machines that are only described: their files, and the links that copies take."""
