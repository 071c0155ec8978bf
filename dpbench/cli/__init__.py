"""The command line, a file for each command."""

from dpbench.cli.command_line import main

__all__ = ["main"]
