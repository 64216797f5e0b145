"""Export the encoder and the decoder of a run to files that other programs can run, as ONNX or with torch.export.

Before a file is written, its content is loaded, run on examples and compared with the run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown_name_message
from unbraid.exporting.formats import FORMATS, check_installed
from unbraid.exporting.parts import CHECKED_BATCHES, ExportPart, export_parts
from unbraid.nets.onnx_runner import Runner
from unbraid.runs.run import Run, as_run
from unbraid.runs.run_data import run_data
from unbraid.runtime import provenance
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.progress import progress
from unbraid.runtime.schema import read_json

FORMAT = 1  # version of the layout of the JSON file
TOLERANCE = 1e-4
RULE = (
    f"every output within {TOLERANCE:g} times its largest magnitude, or within {TOLERANCE:g} if that magnitude is "
    "below 1"
)
LIBRARIES = ("unbraid", "torch", "onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class ExportFile:
    """The part of an exported JSON file that `check_folder` reads: the id of the run."""

    run: str


@explain_unknown_arguments()
def export(
    run: Run | str | Path,
    out: str | Path,
    *,
    format: str = "onnx",
    data: str | FactorData | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Write the encoder and the decoder of a run, and a JSON file that describes them, to a folder.

    The encoder takes the same examples as the network, with pixels in [0, 1]. It returns `codes`, which metrics use by
    default, and additional outputs of the method, such as `logvar` if the posterior is Gaussian. The decoder takes
    latents and returns the means of p(x|z). Batches may have any size. All numbers are float32, even if the run was
    trained in bfloat16. The content of each file is loaded and run on examples. If the outputs of a file do not agree
    with those of the run (`RULE`), nothing is written.

    Args:
        run: A trained run, or its folder.
        out: The folder for the files.
        format: "onnx" (`encoder.onnx`, `decoder.onnx`) or "torch" (`encoder.pt2`, `decoder.pt2`, for
            ``torch.export.load``).
        data: The dataset or its name. By default the dataset of the run is loaded by its name in the spec.
        quiet: Whether to hide the progress bar.

    Returns:
        The content of the JSON file, `export.onnx.json` or `export.torch.json`.

    Raises:
        UserError: If the format does not exist or its packages are not installed, if the folder contains the export of
            another run, or if the network cannot be exported.
    """
    if format not in FORMATS:
        raise UserError(unknown_name_message("format", format, FORMATS))
    check_installed(format)
    exported: Run = as_run(run)
    folder = Path(out)
    check_folder(folder, exported.id)
    source = run_data(exported, data, quiet=quiet)
    contents, about = _write_parts(export_parts(exported, source), format, quiet)
    facts = {
        "format": FORMAT, "kind": format, "run": exported.id, "spec": exported.spec.to_dict(), "files": about,
        "precision": "float32", "rule": RULE, "versions": provenance.library_versions(LIBRARIES),
    }  # fmt: skip
    make_folder(folder)
    for file, content in contents.items():
        write_atomic(folder / file, content)
    write_atomic(folder / f"export.{format}.json", json.dumps(facts, indent=1).encode())
    return facts


def _write_parts(parts: list[ExportPart], format: str, quiet: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the contents and the descriptions of the files, both by file name. Each file is compared with the run."""
    contents: dict[str, bytes] = {}
    about: dict[str, Any] = {}
    with progress("exporting", 2 * len(parts), quiet) as report:
        for i, part in enumerate(parts):
            report(2 * i, f"writing the {part.name}")
            content, read = FORMATS[format](part)
            report(2 * i + 1, f"checking the {part.name}")
            file = f"{part.name}.{'onnx' if format == 'onnx' else 'pt2'}"
            contents[file] = content
            about[file] = {**part.describe(), "sha256": hashlib.sha256(content).hexdigest(),
                           "largest_difference": largest_difference(part, read(content), file)}  # fmt: skip
    return contents, about


def check_folder(folder: Path, run: str) -> None:
    """Raise a UserError if the folder contains the export of another run.

    The encoder and the decoder in a folder are therefore always those of the same run.
    """
    for file in sorted(folder.glob("export.*.json")):
        other = read_json(file, ExportFile, "Delete the file and export the run again.").run
        if other != run:
            raise UserError(f"{folder} contains the export of run {other}. Choose another folder, or delete its files.")


def largest_difference(part: ExportPart, read: Runner, file: str) -> float:
    """Return the largest absolute difference between the outputs of an exported file and the outputs of the run.

    They are compared on batches of several sizes.
    Raise a UserError if the outputs do not agree by `RULE`.
    """
    largest = 0.0
    for size in CHECKED_BATCHES:
        x = part.examples[-size:]
        for name, expected, actual in zip(part.outputs, part.run(x), read(x), strict=True):
            if expected.shape != actual.shape:
                raise UserError(
                    f"{file} must return {name} of shape {tuple(expected.shape)}. Got {tuple(actual.shape)} instead. "
                    "Nothing was written. This network cannot be exported in this format."
                )
            difference = float((expected - actual).abs().max())
            if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
                raise UserError(
                    f"{file} must return the same {name} as the run ({RULE}). Got a difference of {difference:.3g} "
                    "instead. Nothing was written. Try the other format."
                )
            largest = max(largest, difference)
    return largest
