"""Writing one trained run in the layout of the Hugging Face Hub.

The folder is an ordinary folder of a run (`run.json`, `weights.safetensors`, `log.jsonl`, `scores.jsonl`) with two more
files. `config.json` has the shape of one example, so that the model can be loaded without its data. `README.md` is the
model card.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.data import DATASETS
from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS
from unbraid.runs.adopted_spec import AdoptedSpec
from unbraid.runs.folder import RunFolder
from unbraid.runs.prior import has_prior
from unbraid.runs.run_data import memory_fingerprint
from unbraid.runs.scores import prefer_data, read_scores
from unbraid.runs.sources import is_own
from unbraid.runtime.files import write_atomic
from unbraid.runtime.folders import new_folder
from unbraid.runtime.schema import WrongContentError

if TYPE_CHECKING:
    from unbraid.runs.run import Run

CONFIG = "config.json"
CARD = "README.md"
RUN_FILES = ("run.json", "weights.safetensors", "log.jsonl", "scores.jsonl", "diverged.json", "model.json")
MAX_VALUES = 10**8  # maximum number of values of one example


@dataclass(frozen=True)
class PretrainedConfig:
    """The fields of `config.json` that are read. `shape` is the shape of one example."""

    library_name: str
    shape: list[int]

    def __post_init__(self) -> None:
        total = 1
        for size in self.shape:
            total *= max(size, 0)
        if self.library_name != "unbraid" or len(self.shape) not in (1, 3) or not 0 < total <= MAX_VALUES:
            raise WrongContentError(
                f"The library must be unbraid, and the shape (c, h, w) or (d,). Got {self.library_name!r} and "
                f"{tuple(self.shape)} instead."
            )


def write_pretrained(run: Run, folder: Path) -> Path:
    """Write a run to a new folder and return the folder. Errors are those of `Run.save_pretrained`."""
    shape = run.net.shape
    if shape is None:
        raise UserError("The network of the run must know the shape of its examples. Set run.net.shape.")
    with new_folder(folder) as temporary:
        if run.path is None:
            _write_run_files(run, temporary)
        else:
            for name in RUN_FILES:
                if (run.path / name).exists():
                    shutil.copyfile(run.path / name, temporary / name)
        _remove_local_paths(temporary / "run.json")
        flat = run.spec.flat()
        config = {"library_name": "unbraid", "model_type": flat["method"], "latents": run.spec.latents, "shape": shape}
        write_atomic(temporary / CONFIG, json.dumps(config, indent=1).encode())
        write_atomic(temporary / CARD, model_card(run, shape, folder.name).encode())
    return folder


def _write_run_files(run: Run, folder: Path) -> None:
    """Write the files of a run that is only in memory."""
    if isinstance(run.spec, AdoptedSpec):
        raise UserError(f"The adopted model {run.label} must be stored in a folder first. Adopt it with out=.")
    if is_own(run.spec):
        raise UserError(
            f"{run.label} uses code of your own, which only the folder of a run records. Got a run without a folder. "
            "Train it with out=."
        )
    fingerprint = None if run.data is None else memory_fingerprint(run.data)
    created = RunFolder.create(folder, run.spec, data=fingerprint)
    weights = {name: value.detach().cpu().contiguous() for name, value in run.net.state_dict().items()}
    created.finish(run.spec.steps, weights, run.log, run.divergence)
    for file in created.path.iterdir():
        file.rename(folder / file.name)
    created.path.rmdir()


def _remove_local_paths(file: Path) -> None:
    """Remove the paths of the user's own source files from `run.json`."""
    content = json.loads(file.read_text())
    if content.get("own", {}).pop("files", None):
        write_atomic(file, json.dumps(content, indent=1).encode())


def model_card(run: Run, shape: tuple[int, ...], name: str) -> str:
    """Return the model card: metadata for the Hub, how to load the model, its settings and its scores."""
    flat = run.spec.flat()
    tags = ["disentanglement", "representation-learning", flat["method"].rpartition(":")[2]]
    data = public_data_name(run.spec.data)
    adopted = isinstance(run.spec, AdoptedSpec)
    origin = (
        f"The model `{tags[-1]}`, trained outside unbraid and scored with it on `{data}`."
        if adopted
        else f"A model of the method `{tags[-1]}`, trained on `{data}` with unbraid."
    )
    lines = [
        "---", "library_name: unbraid", "tags:", *(f"- {json.dumps(tag)}" for tag in tags), "---", "", f"# {name}", "",
        f"{origin} It encodes examples of shape {shape} as {run.spec.latents} latents.", "",
        "```python", "import unbraid as ub", "",
        f"run = ub.from_pretrained({name!r})  # a folder, or OWNER/NAME on the Hugging Face Hub",
        "images = run.sample(4)" if has_prior(run) and run.net.decoder is not None else "print(run.spec)", "```", "",
        "The weights are in the safetensors format. Loading runs no code of this repository.", "",
        "| setting | value |", "|---|---|",
        *(f"| {key} | {data if key == 'data' else value} |" for key, value in flat.items()), "",
    ]  # fmt: skip
    return "\n".join([*lines, *_score_lines(run)])


def _score_lines(run: Run) -> Iterator[str]:
    """Yield a table with the headline score of each metric that the run has been scored with."""
    default = run.spec.method.code_kinds[0]
    found = [] if run.path is None else prefer_data(read_scores(run.path), run.spec.data)
    records = [record for record in found if record["codes"] == default]
    scores = {
        record["metric"]: record["values"].get(TRAITS[record["metric"]].headline)
        for record in records
        if record["metric"] in METRICS
    }
    if scores:
        yield from ("| metric | score |", "|---|---|")
        yield from (f"| {metric} | {value:.4f} |" for metric, value in scores.items() if value is not None)
        yield ""


def public_data_name(name: str) -> str:
    """Return the name of a dataset without the path of a file. Only the options of built-in datasets are kept.

    >>> public_data_name("mnist?turn=20&shift=10"), public_data_name("/home/me/photos?size=64")
    ('mnist?turn=20&shift=10', 'photos')
    """
    plain = name.partition("?")[0]
    return name if plain in DATASETS and "/" not in name else plain.rstrip("/").rpartition("/")[2]
