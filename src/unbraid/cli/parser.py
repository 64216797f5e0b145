"""The argument parser that all commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from unbraid.errors import UserError, unknown


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the nearest valid name."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}. See: {self.prog} --help")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse, and refuse leftovers by name."""
        parsed, left = self.parse_known_args(arguments)
        if left:
            flags = [flag for action in self._actions for flag in action.option_strings[:1] if flag.startswith("--")]
            if left[0].startswith("-"):
                raise UserError(unknown(f"flag of '{self.prog}'", left[0].split("=")[0], flags))
            raise UserError(f"Unexpected argument {left[0]!r}. See: {self.prog} --help")
        return parsed


class Root(argparse.Action):
    """Where files of data lie, for this process."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        os.environ["UNBRAID_DATA"] = str(values)


def add_root(parser: Any) -> None:
    """The flag --root."""
    parser.add_argument("--root", action=Root, metavar="FOLDER", help="folder of data files [UNBRAID_DATA]")
