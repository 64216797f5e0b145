"""Publish a folder of runs as one folder with checksums, or check and take in one that somebody published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("action", choices=("export", "import", "check"), help="what to do")
    parser.add_argument("source", type=Path, help="a folder of runs (export), or a published one")
    parser.add_argument("target", type=Path, nargs="?", help="where to: a new folder (export), or a folder of runs")
    parser.add_argument("--no-weights", action="store_true", help="results only: smaller, cannot be loaded as models")
    options = parser.parse_all(arguments)
    from unbraid.errors import UserError
    from unbraid.studies.share import adopt, check, publish

    if options.action == "check":
        check(options.source)
        print(f"{options.source}: every file is what its checksum says")
        return
    if options.target is None:
        raise UserError(f"Say where to: unbraid share {options.action} {options.source} FOLDER")
    if options.action == "export":
        print(f"written, with checksums in {publish(options.source, options.target, not options.no_weights)}")
    else:
        print(f"{adopt(options.source, options.target)} new runs in {options.target}")
