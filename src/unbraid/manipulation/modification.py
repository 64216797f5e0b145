"""The function `modify`, which learns a manipulation and writes it to a file.

It writes checkpoints, from which an interrupted call resumes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.manipulation_files import describe_data, images_source, read_manipulation, write_manipulation
from unbraid.errors import UserError
from unbraid.manipulation.adversarial_training import TERMS, AdversarialTraining
from unbraid.manipulation.networks import PairFamilies
from unbraid.manipulation.recipes import fill_recipe
from unbraid.manipulation.settings import ManipulationSettings, Rotations, fill_settings
from unbraid.runs.folder import Log
from unbraid.runs.tensor_files import read_tensors, write_tensors
from unbraid.runtime import provenance
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import expand_user, make_folder
from unbraid.runtime.progress import ProgressCallback, progress
from unbraid.runtime.signals import DeferredSignals, deferred_signals

LOG_EVERY = 100  # steps per record of the log
MAX_RECORDS = 100  # maximum number of records of the log in the file
LOG_SUMS = "log/sums"  # key, in a checkpoint, of the sums of the terms since the last record of the log


@explain_unknown_arguments()
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
    learning_rate: float | None = None,
    seed: int = 0,
    recipe: str = "default",
    pace: float | None = None,
    rounds: int | None = None,
    warm: float | None = None,
    objective: str | None = None,
    normalise: bool | None = None,
    scalar: str | None = None,
    device: str | torch.device = "cpu",
    checkpoint_every: int = 1000,
    quiet: bool = False,
) -> Path:
    r"""Learn a small change of images, :math:`x' = x + \epsilon m(w)`, that should make VAEs entangle the factors.

    The manipulation m is a function of the factors w of an image x. It is trained against pairs of an encoder and a
    decoder. The latents of disentangling pairs are the factors themselves plus noise, and the latents of entangling
    pairs are rotated factors plus noise. All pairs learn to reconstruct x'. By default, the manipulation minimises the
    log error of the entangling pairs minus the log error of the disentangling pairs.

    If `out` exists and was made with the same settings and images, nothing is done. If a previous call with the same
    settings was interrupted, training resumes from its checkpoint. The checkpoint is in the folder of `out` and has the
    suffix ``.checkpoint``.

    Reference: Zietlow, Rolinek, Martius (2021), arXiv:2102.06822, and its supplement, section 3.1. The guide on
    modified data lists the choices that the paper leaves open.

    Args:
        data: A dataset of images with factors, or its name.
        out: The file to write. Its name must end in ``.safetensors``.
        eps: The maximum change of a pixel, in (0, 1]. Default: 0.175 for Shapes3D, else 0.1.
        steps: Number of training steps. In each step, the pairs are trained on `rounds` batches and m on one.
        batch: Number of images per batch.
        samples: Number of noisy codes per image.
        ensemble: Number of pairs of each kind. Default: 4 for Shapes3D, else 1.
        rotations: The planes of two factors that entangling pairs rotate by 45 degrees: "closest", "random", or names
            as in "x:y,scale:orientation" (see `settings.choose_planes`).
        capacity: The value of :math:`-\sum_j \log\sigma_j` in nats, where :math:`\sigma_j` is the standard deviation of
            the noise of latent j.
            Default: half of the log of the number of combinations of factors (see `settings.default_capacity`).
        likelihood: The likelihood that defines the reconstruction error: "bernoulli" or "gaussian".
        learning_rate: Learning rate of the pairs. Default: 1e-3, or 1e-4 in the recipe "paper".
        seed: Random seed.
        recipe: "default", or "paper" for the settings that the paper states (see `recipes.RECIPES`). The recipe
            determines the defaults of the learning rate and of the following six arguments.
        pace: Learning rate of m divided by that of the pairs. Default: 0.1, or 1 in the recipe "paper".
        rounds: Number of batches on which the pairs are trained in each step. Default: 3.
        warm: Fraction of the steps, at the beginning, in which only the pairs are trained. Default: 0.1, or 0 in the
            recipe "paper".
        objective: What m minimises. "log_ratio" (the default) is the difference of the log errors, as described above.
            "difference" is the error of the entangling pairs minus that of the disentangling pairs, as in the recipe
            "paper".
        normalise: Whether two quantities are normalised over the batch: the scalar from which m is computed (see
            `scalar`), and the pixels of m. Default: True, or False in the recipe "paper".
        scalar: m is computed from one learned scalar function of the factors. The argument `scalar` determines this
            function at the start of training: the "diagonal" of the rotated factors (the default), or a "random"
            function of all factors, as in the recipe "paper".
        device: Device to train on.
        checkpoint_every: Number of steps between checkpoints.
        quiet: Whether to hide the progress bar.

    Returns:
        The path of the file. Load it with the dataset name ``NAME?modified=FILE``.

    Raises:
        UserError: If the data are not images, are already modified, or have fewer than two ordered factors. Also if a
            setting is out of range, if `out` does not end in ``.safetensors``, if the file `out` exists and was made
            with different settings, or if training diverges.
    """
    from unbraid.data.loading import load_data

    loaded = load_data(data, device, quiet).to(device)
    path = expand_user(out)
    choices = fill_recipe(
        recipe,
        {"learning_rate": learning_rate, "pace": pace, "rounds": rounds, "warm": warm, "objective": objective,
         "normalise": normalise, "scalar": scalar},
    )  # fmt: skip
    settings = fill_settings(
        loaded, eps, steps, batch, samples, ensemble, rotations, capacity, likelihood, seed=seed, **choices
    )
    _check_out(path, loaded, settings)
    if path.exists():
        return path
    make_folder(path.parent)
    training = AdversarialTraining(loaded, settings)
    with deferred_signals() as signals:
        with progress(f"manipulating {loaded.name}", steps, quiet) as update_progress:
            log = train_to_end(training, path.with_suffix(".checkpoint"), checkpoint_every, update_progress, signals)
        write_result(training, path, log)
    return path


def _check_out(path: Path, data: FactorData, settings: ManipulationSettings) -> None:
    """Raise an error if the file name is invalid, or if the file exists and was made with different settings."""
    if path.suffix != ".safetensors" or "&" in path.name or "?" in path.name:
        raise UserError(
            f"The name of the file to write must end in .safetensors and must not contain & or ?. Got {path} instead."
        )
    if path.exists():
        _check_same_settings(path, read_manipulation(path, tensors=False)[1], data, settings)


def _check_same_settings(
    path: Path, metadata: dict[str, Any], data: FactorData, settings: ManipulationSettings
) -> None:
    """Raise an error if the metadata of a file describe different data or settings."""
    expected = {**describe_data(data), **settings.as_json(complete=True)}
    recorded = {**settings.later_defaults(), **metadata, **metadata.get("recipe", {})}
    for key, value in expected.items():
        if recorded.get(key) != value:
            raise UserError(
                f"{path} already exists and was made with {key} = {recorded.get(key)}. Got {key} = {value} instead. "
                "Choose a different file, or delete this file."
            )
    if recorded.get("source") not in (None, images_source(data)):  # files of earlier versions have no source
        raise UserError(
            f"{path} already exists and was made from other images, {recorded['source']}. Got {images_source(data)} "
            "instead. Choose a different file, or delete this file."
        )


def train_to_end(
    training: AdversarialTraining,
    checkpoint: Path,
    every: int,
    update_progress: ProgressCallback,
    signals: DeferredSignals,
) -> Log:
    """Run all steps that remain after the last checkpoint, and return the log.

    A checkpoint is written every `every` steps. If a signal that ends the process has arrived, a checkpoint is written
    before the signal is delivered.
    """
    step, log, sums = resume_training(training, checkpoint)
    message, total = "", training.settings.steps
    while step < total:
        sums += training.step(step)
        step += 1
        if step % LOG_EVERY == 0 or step == total:
            log.append(_log_record(sums, step, (step - 1) % LOG_EVERY + 1))
            sums.zero_()
            message = f"gap {log[-1]['gap']:.3f} nats"
        if step < total and (step % every == 0 or signals.received is not None):
            recipe = training.settings.as_json()
            described = {**describe_data(training.data), "source": images_source(training.data)}
            metadata = {"step": step, "log": log, "recipe": recipe, **described}
            write_tensors(checkpoint, {**training.state(), LOG_SUMS: sums}, metadata)
            signals.deliver()
        update_progress(step, message)
    return log


def _log_record(sums: Tensor, step: int, count: int) -> dict[str, float]:
    """Return the means of the terms over `count` steps. Raises an error if a mean is not finite."""
    values = (sums / count).tolist()
    if not all(map(math.isfinite, values)):
        raise UserError(
            f"The losses of a manipulation must be finite. Training diverged before step {step}. Got "
            f"{dict(zip(TERMS, values, strict=True))} instead. Choose a lower learning rate, and delete the file with "
            "the suffix .checkpoint, if there is one."
        )
    return {"step": step, **{term: round(value, 5) for term, value in zip(TERMS, values, strict=True)}}


def resume_training(training: AdversarialTraining, checkpoint: Path) -> tuple[int, Log, Tensor]:
    """Restore the last checkpoint, if there is one.

    Returns the next step, the log so far, and the sums of the terms since the last record of the log.
    """
    sums = torch.zeros(len(TERMS), device=training.data.device)
    if not checkpoint.exists():
        return 0, [], sums
    state, metadata = read_tensors(checkpoint)
    _check_same_settings(checkpoint, metadata, training.data, training.settings)
    training.restore(state)
    return int(metadata["step"]), list(metadata["log"]), sums.copy_(state.get(LOG_SUMS, sums))


def write_result(training: AdversarialTraining, path: Path, log: Log) -> None:
    """Write the table of patterns with the settings, the log and the provenance, then delete the checkpoint."""
    patterns, pattern_index = training.pattern_table()
    data, settings = training.data, training.settings
    last_records = log[-max(1, len(log) // 10) :]
    metadata = {
        **describe_data(data), "source": images_source(data), "eps": settings.eps, "recipe": settings.as_json(),
        "final": {term: sum(record[term] for record in last_records) / len(last_records) for term in TERMS},
        "sigma": _noise_deviations(training.families), "log": log[:: -(-len(log) // MAX_RECORDS)],
        "versions": provenance.library_versions(), "commit": provenance.git_commit(), "device": data.device.type,
    }  # fmt: skip
    write_manipulation(path, patterns, pattern_index, metadata)
    path.with_suffix(".checkpoint").unlink(missing_ok=True)


def _noise_deviations(families: PairFamilies) -> dict[str, list[float]]:
    """Return the standard deviations of the noise of each pair. The keys are "disentangling 0", "entangling 0", etc."""
    half = len(families.pairs) // 2
    sigmas = [pair.sigma().tolist() for pair in families.pairs]  # type: ignore[operator]
    return {f"{TERMS[i // half]} {i % half}": [round(s, 4) for s in sigma] for i, sigma in enumerate(sigmas)}
