"""Export the encoder and the decoder of a trained run to files for other programs.

The files are then loaded, and their outputs are compared with those of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, add_quiet, add_trust_and_root, parse_and_run
from unbraid.cli.values import path

EXPORTS = ("onnx", "torch")


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("run", type=path, metavar="RUN", help="the folder of one trained run")
    parser.add_argument(
        "--format", choices=EXPORTS, default="onnx", help="file format: onnx, or torch for torch.export [onnx]"
    )
    parser.add_argument("--out", type=path, metavar="FOLDER", help="folder for the files [RUN/exported]")
    add_quiet(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Export the run and print the exported files."""
    from unbraid.exporting.export import RULE, export
    from unbraid.exporting.formats import check_installed
    from unbraid.runs.run import load_run

    check_installed(options.format)
    trained = load_run(options.run, trust=options.trust)
    out = options.out or options.run / "exported"
    facts = export(trained, out, format=options.format, quiet=options.quiet)
    print(f"{trained.label}: the exported files were loaded and compared with the run on examples ({RULE}):")
    for file, content in facts["files"].items():
        tensors = {**content["inputs"], **content["outputs"]}
        shapes = [f"{name} ({', '.join(map(str, tensor['shape']))})" for name, tensor in tensors.items()]
        difference = f"largest difference {content['largest_difference']:.2g}"
        print(f"  {out / file}  {shapes[0]} -> {', '.join(shapes[1:])}  {difference}")
    if len(facts["files"]) == 1:
        print("  There is no decoder file, because this method trains an encoder only.")
