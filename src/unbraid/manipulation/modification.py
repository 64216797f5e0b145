"""Learn a manipulation and write it to a file, with checkpoints from which an interrupted call resumes."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.manipulation_files import describe_data, read_manipulation, write_manipulation
from unbraid.errors import UserError
from unbraid.manipulation.adversarial_training import TERMS, AdversarialTraining
from unbraid.manipulation.networks import PairFamilies
from unbraid.manipulation.settings import ManipulationSettings, Rotations, fill_settings
from unbraid.runs.folder import Log, read_tensors, write_tensors
from unbraid.runtime import provenance
from unbraid.runtime.files import make_folder
from unbraid.runtime.progress import ProgressCallback, ignore_progress, progress
from unbraid.runtime.signals import DeferredSignals, deferred_signals

LOG_EVERY = 100  # steps between records of the log
MAX_RECORDS = 100  # records of the log that are written to the file
LOG_SUMS = "log/sums"  # name, in a checkpoint, of the sums of the terms since the last record


def modify(
    data: str | FactorData,
    *,
    out: str | Path,
    eps: float | None = None,
    steps: int = 10_000,
    batch: int = 64,
    samples: int = 4,
    ensemble: int | None = None,
    rotations: Rotations = "closest",
    capacity: float | None = None,
    likelihood: str = "bernoulli",
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint_every: int = 1000,
    quiet: bool = False,
) -> Path:
    r"""Learn an imperceptible change of images, :math:`x' = x + \epsilon m(w)`, under which VAEs should entangle.

    Disentangling pairs of an encoder and a decoder have the factors themselves as latents, entangling pairs have
    rotated factors. All pairs learn to reconstruct x'. The manipulation m minimises the log error of the entangling
    pairs minus the log error of the disentangling pairs.

    If `out` exists and was made with the same settings, it is left as it is. If a previous call with the same settings
    was interrupted, training resumes from its checkpoint, which lies beside `out` with the suffix ``.checkpoint``.

    Reference: Zietlow, Rolinek, Martius (2021), arXiv:2102.06822, and its supplement, section 3.1. The guide on
    manipulated data lists what the paper leaves open and what is chosen here.

    Args:
        data: A dataset of images with factors, or its name.
        out: The file to write. Its name must end in ``.safetensors``.
        eps: The largest change of a pixel, in (0, 1]. Default: 0.175 for Shapes3D, else 0.1.
        steps: Number of updates of m. Before each, the pairs are trained on three batches.
        batch: Images per batch.
        samples: Noisy codes per image.
        ensemble: Number of pairs of each kind. Default: 4 for Shapes3D, else 1.
        rotations: The planes of two factors that entangling pairs rotate by 45 degrees: "closest", "random", or names
            as in "x:y,scale:orientation" (see `settings.choose_planes`).
        capacity: The value of :math:`-\sum_j \log\sigma_j` in nats, where :math:`\sigma_j` is the noise of latent j.
            Default: half of the log of the number of combinations of factors (see `settings.default_capacity`).
        likelihood: The reconstruction error: "bernoulli" or "gaussian".
        learning_rate: Learning rate of the pairs. That of m is a tenth of it.
        seed: Seed of all random numbers.
        device: Device to train on.
        checkpoint_every: Number of steps between checkpoints.
        quiet: Whether to print no progress.

    Returns:
        The path of the file. Load it with the dataset name ``NAME?modified=FILE``.

    Raises:
        UserError: If the data are not unchanged images with two ordered factors, if a setting is out of range, if `out`
            has another suffix or was made with other settings, or if training diverges.
    """
    from unbraid.data.loading import load_data

    loaded = load_data(data, device, quiet).to(device)
    path = Path(out).expanduser()
    settings = fill_settings(
        loaded, eps, steps, batch, samples, ensemble, rotations, capacity, likelihood, learning_rate, seed
    )
    _check_out(path, loaded, settings)
    if path.exists():
        return path
    make_folder(path.parent)
    training = AdversarialTraining(loaded, settings)
    with deferred_signals() as signals:
        with (
            contextlib.nullcontext(ignore_progress)
            if quiet
            else progress(f"manipulating {loaded.name}", steps) as report
        ):
            log = train_to_end(training, path.with_suffix(".checkpoint"), checkpoint_every, report, signals)
        write_result(training, path, log)
    return path


def _check_out(path: Path, data: FactorData, settings: ManipulationSettings) -> None:
    """Reject an invalid file name, and an existing file that was made with other settings."""
    if path.suffix != ".safetensors" or "&" in path.name or "?" in path.name:
        raise UserError(
            f"The name of the file to write must end in .safetensors and have no & or ?. Got {path} instead."
        )
    if path.exists():
        _check_same_settings(path, read_manipulation(path, tensors=False)[1], data, settings)


def _check_same_settings(path: Path, facts: dict[str, Any], data: FactorData, settings: ManipulationSettings) -> None:
    expected = {**describe_data(data), **settings.as_json()}
    recorded = {**facts, **facts.get("recipe", {})}
    for key, value in expected.items():
        if recorded.get(key) != value:
            raise UserError(
                f"{path} exists already and was made with {key} = {recorded.get(key)}. Got {key} = {value} instead. "
                "Choose another file, or delete this one."
            )


def train_to_end(
    training: AdversarialTraining, checkpoint: Path, every: int, report: ProgressCallback, signals: DeferredSignals
) -> Log:
    """Run all steps from the last checkpoint on, and return the log.

    A checkpoint is written after every `every` steps, and before a signal that ends the process is delivered.
    """
    step, log, sums = resume_training(training, checkpoint)
    note, total = "", training.settings.steps
    while step < total:
        sums += training.step(step)
        step += 1
        if step % LOG_EVERY == 0 or step == total:
            log.append(_log_record(sums, step, (step - 1) % LOG_EVERY + 1))
            sums.zero_()
            note = f"gap {log[-1]['gap']:.3f} nats"
        if step < total and (step % every == 0 or signals.received is not None):
            facts = {"step": step, "log": log, "recipe": training.settings.as_json(), **describe_data(training.data)}
            write_tensors(checkpoint, {**training.state(), LOG_SUMS: sums}, facts)
            signals.deliver()
        report(step, note)
    return log


def _log_record(sums: Tensor, step: int, count: int) -> dict[str, float]:
    values = (sums / count).tolist()
    if not all(map(math.isfinite, values)):
        raise UserError(
            f"The manipulation diverged before step {step}: {dict(zip(TERMS, values, strict=True))}. Choose a lower "
            "learning rate, and delete the .checkpoint file beside the file to write."
        )
    return {"step": step, **{term: round(value, 5) for term, value in zip(TERMS, values, strict=True)}}


def resume_training(training: AdversarialTraining, checkpoint: Path) -> tuple[int, Log, Tensor]:
    """Return the next step, the log so far, and the sums of the terms since the last record of the log."""
    sums = torch.zeros(len(TERMS), device=training.data.device)
    if not checkpoint.exists():
        return 0, [], sums
    state, facts = read_tensors(checkpoint)
    _check_same_settings(checkpoint, facts, training.data, training.settings)
    training.restore(state)
    return int(facts["step"]), list(facts["log"]), sums.copy_(state.get(LOG_SUMS, sums))


def write_result(training: AdversarialTraining, path: Path, log: Log) -> None:
    """Write the table of patterns with its settings, log and provenance, then delete the checkpoint."""
    patterns, which = training.pattern_table()
    data, settings = training.data, training.settings
    tail = log[-max(1, len(log) // 10) :]
    facts = {
        **describe_data(data), "eps": settings.eps, "recipe": settings.as_json(),
        "final": {term: sum(record[term] for record in tail) / len(tail) for term in TERMS},
        "sigma": _noise_of_pairs(training.families), "log": log[:: -(-len(log) // MAX_RECORDS)],
        "versions": provenance.library_versions(), "commit": provenance.git_commit(), "device": data.device.type,
    }  # fmt: skip
    write_manipulation(path, patterns, which, facts)
    path.with_suffix(".checkpoint").unlink(missing_ok=True)


def _noise_of_pairs(families: PairFamilies) -> dict[str, list[float]]:
    """Return the standard deviation of the noise of each latent, for "disentangling 0", "entangling 0" and so on."""
    half = len(families.pairs) // 2
    sigmas = [pair.sigma().tolist() for pair in families.pairs]  # type: ignore[operator]
    return {f"{TERMS[i // half]} {i % half}": [round(s, 4) for s in sigma] for i, sigma in enumerate(sigmas)}
