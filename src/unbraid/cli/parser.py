"""The argument parser that all commands share, and flags that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from unbraid.cli.values import path
from unbraid.errors import UserError, unknown_name_message

Arguments = argparse.ArgumentParser | argparse._ArgumentGroup
RUNS_HELP = "folders of runs, folders that contain such folders, or single runs"
ONLY_HELP = "choose runs by their properties, such as method=beta_vae,beta=8"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UserError`. Its messages have one line and suggest the nearest valid name."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}. See: {self.prog} --help")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all arguments, or raise an error that names the first unknown argument."""
        for argument in arguments:
            if argument.startswith("-") and argument.endswith("=--"):  # argparse would drop the value
                raise UserError(f"The value of {argument[:-3]} must not be --. See: {self.prog} --help")
        parsed, left = self.parse_known_args(arguments)
        if left:
            flags = [flag for action in self._actions for flag in action.option_strings[:1] if flag.startswith("--")]
            if left[0].startswith("-"):
                raise UserError(unknown_name_message(f"flag of '{self.prog}'", left[0].split("=")[0], flags))
            raise UserError(f"Unexpected argument {left[0]!r}. See: {self.prog} --help")
        return parsed


def parse_and_run(parser: Parser, arguments: Sequence[str], run: Callable[[Any], int | None]) -> int:
    """Parse the arguments, call `run(options)` with --root as the data folder, and return the exit status."""
    options = parser.parse_all(arguments)
    with data_root(getattr(options, "root", None)):
        return run(options) or 0


@contextmanager
def data_root(root: Path | None) -> Iterator[None]:
    """Set the environment variable UNBRAID_DATA to `root` and restore it afterwards. If `root` is None, do nothing.

    Processes that the command starts inherit the variable.
    """
    before = os.environ.get("UNBRAID_DATA")
    if root is not None:
        os.environ["UNBRAID_DATA"] = str(root)
    try:
        yield
    finally:
        if root is not None:
            os.environ.pop("UNBRAID_DATA")
            if before is not None:
                os.environ["UNBRAID_DATA"] = before


def add_root(parser: Arguments) -> None:
    """Add the flag --root."""
    text = "data folder [UNBRAID_DATA if it is set, else $XDG_DATA_HOME/unbraid, else ~/.local/share/unbraid]"
    parser.add_argument("--root", type=path, metavar="FOLDER", help=text)


def add_quiet(parser: Arguments) -> None:
    """Add the flag --quiet."""
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def add_trust_and_root(parser: Arguments) -> None:
    """Add the flags --trust and --root of commands that open runs and their data."""
    text = "run code that a run folder refers to: methods and networks that are not part of unbraid"
    parser.add_argument("--trust", action="store_true", help=text)
    add_root(parser)


def add_device(parser: Arguments) -> None:
    """Add the flag --device."""
    parser.add_argument("--device", default="cpu", help="device to use: cpu, cuda, cuda:N or mps (untested) [cpu]")


def add_only(parser: Arguments) -> None:
    """Add the flag --only."""
    text = f"{ONLY_HELP} or seed=0,1; can be repeated [all runs]"
    parser.add_argument("--only", action="append", default=[], metavar="PROPERTY=V,V", help=text)
