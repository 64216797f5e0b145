"""Write the encoder and the decoder of a trained run as files that other programs run, checked against the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbraid.cli.parser import Parser, add_root
from unbraid.errors import UserError

EXPORTS = ("onnx", "torch")


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("run", type=Path, help="the folder of one trained run")
    parser.add_argument("--format", choices=EXPORTS, default="onnx", help="ONNX, or torch.export's .pt2 [onnx]")
    parser.add_argument("--out", type=Path, help="folder for the files [exported, in the run's folder]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_root(parser)
    options = parser.parse_all(arguments)
    from unbraid.exporting.export import RULE, check_installed, export
    from unbraid.runs.folder import find_runs
    from unbraid.runs.run import load_runs

    check_installed(options.format)
    found = find_runs(options.run)
    if len(found) > 1:
        raise UserError(f"{options.run} holds {len(found)} runs. Name one of them, such as {found[0].path}")
    runs = load_runs(options.run)
    if not runs:
        raise UserError(f"{options.run} is not trained to the end. Give the same train command again to go on with it.")
    out = options.out or options.run / "exported"
    facts = export(runs[0], out, format=options.format, quiet=options.quiet)
    print(f"{runs[0].label}: read back, run on examples and compared with the run ({RULE}):")
    for file, about in facts["files"].items():
        tensors = {**about["inputs"], **about["outputs"]}
        told = [f"{name} ({', '.join(map(str, tensor['shape']))})" for name, tensor in tensors.items()]
        off = f"largest difference {about['largest_difference']:.2g}"
        print(f"  {out / file}  {told[0]} -> {', '.join(told[1:])}  {off}")
    if len(facts["files"]) == 1:
        print("  no decoder: this method trains an encoder only")
