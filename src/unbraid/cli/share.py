"""Publish a folder of runs with checksums, or check and import a published folder."""

from __future__ import annotations

from collections.abc import Sequence

from unbraid.cli.parser import Parser
from unbraid.cli.values import path
from unbraid.errors import UserError


def main(parser: Parser, arguments: Sequence[str]) -> None:
    actions = "export publishes runs, import checks and copies published runs, check only verifies the checksums"
    parser.add_argument("action", choices=("export", "import", "check"), help=actions)
    parser.add_argument("source", type=path, help="a folder of runs (export), or a published folder (import, check)")
    target = "new folder to write (export), or folder of runs to copy into (import)"
    parser.add_argument("target", type=path, nargs="?", help=target)
    weights = "export runs without their weights; the folder is smaller, but the runs cannot be loaded as models"
    parser.add_argument("--no-weights", action="store_true", help=weights)
    options = parser.parse_all(arguments)
    from unbraid.studies.publishing import check_published, import_published, publish

    if options.action == "check":
        check_published(options.source)
        print(f"All checksums of {options.source} are correct.")
    elif options.target is None:
        raise UserError(f"Give the target folder: unbraid share {options.action} {options.source} FOLDER")
    elif options.action == "export":
        sums = publish(options.source, options.target, weights=not options.no_weights)
        print(f"The runs were published in {options.target}. The checksums are in {sums}.")
    else:
        print(f"{import_published(options.source, options.target)} new runs were copied to {options.target}.")
