"""Show what there is: methods, metrics, data, nets; by default all of them."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unbraid.cli.parser import Parser
from unbraid.cli.printing import table


def registries(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The dictionaries behind the names; torch is imported only if one of them needs it."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in names:
        if name == "methods":
            from unbraid.methods import METHODS

            found[name] = METHODS
        elif name == "metrics":
            from unbraid.metrics import METRICS

            found[name] = METRICS
        elif name == "data":
            from unbraid.data import DATASETS

            found[name] = DATASETS
        else:
            from unbraid.nets.registry import NETS

            found[name] = NETS
    return found


def first_line(thing: Any) -> str:
    """The one sentence a docstring begins with, without its markup."""
    line = (inspect.getdoc(thing) or "").split("\n", 1)[0]
    return re.sub(r":math:|[`\\{}]", "", line)


KINDS = ("methods", "metrics", "data", "nets")


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("what", nargs="?", choices=KINDS, help="one registry only")
    options: argparse.Namespace = parser.parse_all(arguments)
    blocks = []
    for kind, registry in registries([options.what] if options.what else KINDS).items():
        rows = [[name, first_line(thing)] for name, thing in registry.items()]
        blocks.append(table([kind, "what it is"], rows))
    print("\n\n".join(blocks))
