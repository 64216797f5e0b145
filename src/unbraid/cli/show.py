"""Draw a dataset, with one row of images per factor in which only that factor varies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser, add_root
from unbraid.cli.values import file_to_write


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="name of a dataset, or path of your own data; may end with ?options"
    )
    parser.add_argument("--out", type=file_to_write, metavar="PNG", help="file to write [NAME.png]")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.data import load
    from unbraid.pictures.dataset import draw_dataset

    data = load(options.name, root=options.root)
    short_name = options.name.split("?")[0].rstrip("/").split("/")[-1]
    print(f"{data}\n{draw_dataset(data, options.out or Path(f'{short_name}.png'))}")
