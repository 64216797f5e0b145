"""List the methods, metrics, datasets and networks with a short description of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser
from unbraid.runtime.plugins import Registry
from unbraid.runtime.tables import table

KINDS = ("methods", "metrics", "data", "nets")


def registries(names: Sequence[str]) -> dict[str, Registry[Any]]:
    """Return the registries with these names. Torch is imported only if one of them needs it."""
    chosen: dict[str, Registry[Any]] = {}
    for name in names:
        if name == "methods":
            from unbraid.methods import METHODS

            chosen[name] = METHODS
        elif name == "metrics":
            from unbraid.metrics import METRICS

            chosen[name] = METRICS
        elif name == "data":
            from unbraid.data import DATASETS

            chosen[name] = DATASETS
        else:
            from unbraid.nets.registry import NETS

            chosen[name] = NETS
    return chosen


def first_line(thing: Any) -> str:
    """Return the first line of an object's docstring, without markup."""
    line = (inspect.getdoc(thing) or "").split("\n", 1)[0]
    return re.sub(r":math:|[`\\{}]", "", line)


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("what", nargs="?", choices=KINDS, help="what to list [all four]")
    options = parser.parse_all(arguments)
    texts = []
    for kind, registry in registries([options.what] if options.what else KINDS).items():
        rows = [[name, first_line(thing)] for name, thing in registry.items()]
        rows += [[name, f"from the package {package}"] for name, package in registry.added().items()]
        texts.append(table([kind, "description"], rows))
    print("\n\n".join(texts))
