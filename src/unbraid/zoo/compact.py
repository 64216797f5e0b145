"""Write compact copies of runs, which are the models of the zoo.

The folder of a model has the layout of `Run.save_pretrained` and one more file, `zoo.json`. The id of the model is that
of the original run, because the id is a hash of the spec. The weights are rounded to half precision, and networks that
only training needs are left out. Both facts are recorded in the metadata of the file of weights. The checksum of this
file is that of the rounded weights, so a damaged copy is detected as in any other folder. The scores of the original
weights do not hold exactly for the rounded weights. The original scores are kept in `zoo.json`, and the rounded model
is scored again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from unbraid.data.files.catalogue import SOURCES
from unbraid.errors import UserError
from unbraid.runs.folder import RunFolder
from unbraid.runs.pretrained_files import CARD, CONFIG, model_card
from unbraid.runs.results import latest_scores
from unbraid.runs.run import Run
from unbraid.runs.sources import is_own
from unbraid.runs.tensor_files import write_tensors
from unbraid.runtime.files import write_atomic, write_jsonl
from unbraid.runtime.folders import new_folder
from unbraid.zoo.catalogue import FACTS_FILE, ZooFacts

MAX_LOG_LINES = 100


def round_weights(weights: Mapping[str, Tensor], left_out: Sequence[str] = ()) -> dict[str, Tensor]:
    """Round float32 weights to float16. Weights of other types are kept, and the networks in `left_out` are removed.

    Raises:
        UserError: If a weight is too large for float16.
    """
    rounded = {}
    for name, value in weights.items():
        if name.partition(".")[0] in left_out:
            continue
        rounded[name] = value.half() if value.dtype == torch.float32 else value
        if value.isfinite().all() and not rounded[name].isfinite().all():
            raise UserError(f"The weights must be below 65,504 to be stored in float16. {name} has larger values.")
    return rounded


def write_compact(run: Run, folder: Path, facts: ZooFacts) -> Path:
    """Write a compact copy of a run that has a folder.

    Args:
        run: The run. Its method and network must be part of unbraid.
        folder: The folder to write. It must be empty or not exist.
        facts: How the run was chosen.

    Returns:
        The folder.

    Raises:
        UserError: If the run has no folder or diverged, if its method, network or data are not part of unbraid, or if
            a weight is too large for float16.
    """
    source = _checked_folder(run)
    stored = source.check_weights()
    left_out = list(run.spec.method.training_networks)
    weights = round_weights(source.weights(), left_out)
    shape = run.net.shape
    with new_folder(folder) as temporary:
        write_atomic(temporary / "run.json", (source.path / "run.json").read_bytes())
        write_jsonl(temporary / "log.jsonl", thin_log(run.log))
        metadata = {"step": stored.step, "id": run.id, "rounded": "float16", "left_out": left_out}
        write_tensors(temporary / "weights.safetensors", weights, metadata)
        method = run.spec.flat()["method"]
        config = {"library_name": "unbraid", "model_type": method, "latents": run.spec.latents, "shape": shape}
        write_atomic(temporary / CONFIG, json.dumps(config, indent=1).encode())
        write_atomic(temporary / FACTS_FILE, json.dumps(asdict(facts), indent=1).encode())
    write_card(folder, model_name(folder))
    return folder


def write_card(folder: Path, name: str) -> None:
    """Write the model card of a compact copy. It contains the scores that are in the folder at this time."""
    from unbraid.runs.pretrained import from_pretrained
    from unbraid.zoo.catalogue import ZooModel

    run = from_pretrained(folder)
    facts = ZooModel(name, folder).facts
    card = model_card(run, run.net.shape or (), name).replace(
        f"run = ub.from_pretrained({name!r})  # a folder, or OWNER/NAME on the Hugging Face Hub",
        f'run = ub.zoo.load("{name}")',
    )
    write_atomic(folder / CARD, "\n".join([card, *_origin_lines(run, facts)]).encode())


def _origin_lines(run: Run, facts: ZooFacts) -> list[str]:
    """Return the paragraphs of a model card about the choice of the model, its weights and its data."""
    source = SOURCES.get(run.spec.data.partition("?")[0])
    choice = "the median" if facts.choice == "median" else "the lowest" if facts.metric == "loss" else "the highest"
    exact = facts.exact_scores.get(facts.metric)
    scored = run.path is not None and bool(latest_scores(RunFolder.open(run.path)))
    lines = [
        f"Of {facts.runs} runs of this method on these data, this one has {choice} `{facts.metric}`"
        + (f" ({exact:.4f} with the exact weights and the samples of its study)." if exact is not None else "."),
        "The weights are rounded to float16."
        + (" The scores above are those of the rounded weights, computed with the default protocol." if scored else ""),
        "",
        "Licence of the weights: Apache-2.0.",
    ]
    if source is not None:
        lines += [f"Data: {source.description}. Licence: {source.licence}. Reference: {source.citation}"]
    return [*lines, ""]


def model_name(folder: Path) -> str:
    """Return the name of a model, which consists of the last three parts of the path of its folder."""
    return "/".join(folder.parts[-3:])


def thin_log(log: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return at most `MAX_LOG_LINES` evenly spaced lines of a log, among them the first and the last one.

    >>> [line["step"] for line in thin_log([{"step": step} for step in range(3)])]
    [0, 1, 2]
    """
    count = min(len(log), MAX_LOG_LINES)
    places = torch.linspace(0, len(log) - 1, count).round().int().tolist() if count else []
    return [log[place] for place in places]


def study_scores(folder: RunFolder) -> dict[str, float]:
    """Return the scores in the folder of a run that are numbers other than NaN."""
    scores = latest_scores(folder).items()
    return {name: float(value) for name, value in scores if isinstance(value, int | float) and value == value}


def _checked_folder(run: Run) -> RunFolder:
    """Return the folder of a run that can be copied. Raise a UserError otherwise."""
    if run.path is None or run.divergence is not None or run.data is not None or is_own(run.spec):
        raise UserError(
            f"A compact copy needs a trained run with a folder, a method and a network of unbraid, and data that can "
            f"be loaded by name. {run.label} is not such a run. Choose another run."
        )
    return RunFolder.open(run.path)
