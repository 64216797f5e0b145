"""Publish a folder of runs as one folder with checksums, or check and import a published folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser
from unbraid.errors import UserError


def main(parser: Parser, arguments: Sequence[str]) -> None:
    actions = "export publishes runs, import copies published runs, check verifies the checksums"
    parser.add_argument("action", choices=("export", "import", "check"), help=actions)
    parser.add_argument("source", type=Path, help="a folder of runs (export), or a published folder (import, check)")
    target = "a new folder (export), or the folder of runs to copy into (import)"
    parser.add_argument("target", type=Path, nargs="?", help=target)
    weights = "export without weights: the folder is smaller, and its runs cannot be loaded as models"
    parser.add_argument("--no-weights", action="store_true", help=weights)
    options = parser.parse_all(arguments)
    from unbraid.studies.share import check_published, import_published, publish

    if options.action == "check":
        check_published(options.source)
        print(f"{options.source}: all checksums are correct")
    elif options.target is None:
        raise UserError(f"Give the target folder: unbraid share {options.action} {options.source} FOLDER")
    elif options.action == "export":
        sums = publish(options.source, options.target, weights=not options.no_weights)
        print(f"published in {options.target}, with checksums in {sums}")
    else:
        print(f"{import_published(options.source, options.target)} new runs in {options.target}")
