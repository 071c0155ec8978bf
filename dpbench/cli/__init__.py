"""The command line: a file for each command, and what they share."""

from dpbench.cli.command_line import main

__all__ = ["main"]
