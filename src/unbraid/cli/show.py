"""Draw a dataset: one row a factor, with the values it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("name", metavar="NAME", help="a dataset, or a path of your own; with ?options")
    parser.add_argument("--out", type=Path, help="the PNG to write [NAME.png]")
    parser.add_argument("--root", type=Path, help="folder of data files [UNBRAID_DATA]")
    options = parser.parse_all(arguments)
    from unbraid.data import load
    from unbraid.pictures.dataset import show

    data = load(options.name, root=options.root)
    plain = options.name.split("?")[0].rstrip("/").split("/")[-1]
    print(f"{data}\n{show(data, options.out or Path(f'{plain}.png'))}")
