"""The command line: each module parses the arguments of one command, calls the library and prints."""

from unbraid.cli.dispatch import main

__all__ = ["main"]
