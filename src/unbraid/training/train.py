"""The public function `train`, which prepares runs for training.

This module turns arguments into specs, checks the specs, locks the output folder and loads runs that are already
trained. It passes the other runs to `schedule.train_runs`. See `unbraid.training` for an overview.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from unbraid.accel.capture import supports_kernels
from unbraid.accel.devices import own_thread_count
from unbraid.accel.launch_file import launch_provenance
from unbraid.accel.precision import check_precision, fastest_precision
from unbraid.accel.settings import one_training_on_gpu, training_settings
from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike, load_data
from unbraid.data.own.arrays import OwnData
from unbraid.data.readers.faust import Meshes
from unbraid.errors import UserError, warn_user
from unbraid.methods import Method
from unbraid.methods.added_support import check_support
from unbraid.methods.decoder_penalties import check_penalised
from unbraid.nets.checking import check_device, check_net
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runs.folder import find_runs
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, open_run
from unbraid.runs.run_data import check_data_to_save, files_digest, memory_fingerprint, remember_data
from unbraid.runs.run_data import save_data as write_data
from unbraid.runs.run_list import RunList
from unbraid.runs.sources import is_own
from unbraid.runs.spec import RunSpec, as_methods, registry_name
from unbraid.runs.tensorboard import check_log
from unbraid.runs.trackers import UPDATES
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import try_lock
from unbraid.runtime.progress import ProgressCallback, announce_duration, progress
from unbraid.runtime.signals import deferred_signals
from unbraid.training.active import RunInTraining
from unbraid.training.divided import resolve_devices, train_divided_runs
from unbraid.training.divisible import check_divisible
from unbraid.training.loop import Monitor
from unbraid.training.memory import check_memory
from unbraid.training.randomness import check_randomness
from unbraid.training.schedule import train_runs
from unbraid.training.validation import check_validation, split_data, validation_losses

LogCallback = Callable[[RunSpec, dict[str, float]], None]
"""A function that is called with the spec of a run and a new record of its log."""

CHECKPOINT_SECONDS = 30.0  # minimum time between two checkpoints


@dataclass(frozen=True)
class RunDefaults:
    """The dataset, network, likelihood and precision that all runs of one command have in common.

    Attributes:
        data: The dataset.
        net: Name of the network.
        builder: Function that builds the encoder and the decoder.
        likelihood: Name of the likelihood.
        precision: Precision of matrix products.
    """

    data: FactorData
    net: str
    builder: PairBuilder
    likelihood: str
    precision: str

    @classmethod
    def choose(
        cls,
        data: FactorData,
        net: str | PairBuilder | Pair | None = None,
        likelihood: str | None = None,
        precision: str | None = None,
    ) -> RunDefaults:
        """Use the arguments that are given, and choose defaults for the others.

        For images, the defaults are the network `locatello`, Bernoulli pixels and the fastest precision of the device.
        For vectors, they are the network `mlp` (`pointnet` for meshes), a Gaussian likelihood and float32.
        """
        images = len(data.shape) == 3
        name, builder = resolve_net(net or default_net(data))
        likelihood = likelihood or ("bernoulli" if images else "gaussian")
        precision = precision or (fastest_precision(data.device) if images else "fp32")
        check_precision(precision, data.device)
        return cls(data, name, builder, likelihood, precision)

    def spec(self, method: Method, **settings: Any) -> RunSpec:
        """Return the spec of one run. `settings` are the other fields of `RunSpec`, such as `seed` and `steps`."""
        shared: dict[str, Any] = {"net": self.net, "likelihood": self.likelihood, "precision": self.precision}
        return RunSpec(method, self.data.name, **settings, **shared)


def default_net(data: FactorData) -> str:
    """Return the name of the default network: one for images, one for meshes, and one for all other vectors."""
    if len(data.shape) == 3:
        return "locatello"
    return "pointnet" if isinstance(data, Meshes) else "mlp"


@explain_unknown_arguments(
    "Settings of a method are passed to the method, as in ub.train(ub.methods.BetaVAE(beta=8.0))."
)
@training_settings()
def train(
    method: str | type[Method] | Method | Iterable[str | type[Method] | Method],
    data: DataLike = "sprites",
    *,
    seeds: int | Iterable[int] = (0,),
    steps: int | None = None,
    batch: int = 64,
    learning_rate: float | Iterable[float] | None = None,
    latents: int = 10,
    factorised_support: float = 0.0,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    orthogonal_jacobian: float = 0.0,
    sparse_jacobian: float = 0.0,
    hessian_penalty: float = 0.0,
    net: str | PairBuilder | Pair | None = None,
    likelihood: str | None = None,
    precision: str | None = None,
    out: str | Path | None = None,
    device: str | torch.device = "cpu",
    devices: Sequence[str | torch.device] | None = None,
    add: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
    log: str | None = None,
    retrain: bool = False,
    save_data: bool = False,
    validation: float = 0.0,
    on_log: LogCallback | None = None,
) -> list[Run]:
    """Train one run for every combination of methods, learning rates and seeds.

    If `out` is given, the runs are stored in that folder. Repeating the call then resumes interrupted runs from their
    checkpoints and loads finished runs. On Ctrl-C or SIGTERM, training completes the current step, writes a checkpoint
    and ends.

    Args:
        method: One method or several methods. A name such as "beta_vae", or a class, stands for the method with its
            default settings.
        data: The name of a dataset, a path, or a dataset object. Arrays of images or vectors, a pair (images, factors)
            and torch datasets are converted (see `unbraid.data.from_arrays` and `from_dataset`).
        seeds: The random seeds, such as ``range(3)`` or ``[0, 7]``.
        steps: The number of training steps of each run. Default: that of the method, which is 300,000 for most methods.
        batch: The number of examples per step.
        learning_rate: One learning rate of Adam or several learning rates. Default: that of the method, which is 1e-4
            for most methods.
        latents: The number of latent dimensions.
        factorised_support: The weight of a term that can be added to the loss of any VAE, the distance of the latents
            from a factorised support. The class `unbraid.methods.HFS` has the equation of this distance.
        weight_decay: The weight decay of AdamW. With 0, the optimiser is Adam.
        clip_norm: The maximum Euclidean norm of the gradient of each run. With 0, gradients are not changed.
        orthogonal_jacobian: The weight of the penalty on inner products of the decoder's derivatives with respect to
            different latents. The class `unbraid.methods.DecoderPenalties` has the equations of this penalty and of the
            next two. All three need a method with a decoder.
        sparse_jacobian: The weight of the L1 penalty on the decoder's derivatives with respect to the latents.
        hessian_penalty: The weight of the penalty on the decoder's mixed second derivatives.
        net: The name of a network, a function that builds an encoder and a decoder, or an (encoder, decoder) pair.
            Default: `locatello` for images, `pointnet` for meshes, `mlp` for other vectors.
        likelihood: `bernoulli`, `gaussian` (variance 1) or `normal` (variance 0.1). Default: `bernoulli` for images,
            `gaussian` for vectors.
        precision: `fp32`, `tf32` or `bf16`. Default: the fastest one of the device for images, `fp32` for vectors.
        out: The folder in which runs are stored. By default, they are not stored.
        device: The device to train on.
        devices: Several devices, such as ``["cuda:0", "cuda:1"]``, in place of `device`. There is one process per
            device. Each batch is divided among them, and runs train one after another. The results are those of one
            device, up to rounding. This is faster only for large networks of your own. Steps are neither compiled nor
            captured as CUDA graphs.
        add: Whether `out` may already contain runs other than those of this call.
        checkpoint_seconds: The minimum time between two checkpoints, in seconds.
        quiet: Whether to hide the progress.
        log: If "tensorboard", TensorBoard event files are also written to the folder of each run. If "wandb", an
            offline run of Weights & Biases is written there when the run is finished (``wandb sync`` uploads it). If
            "trackio", finished runs are written to the project `unbraid` of Trackio on this machine (``trackio show``).
        retrain: What to do with an existing run of the same spec if the source code of your own method or network, or
            your data, have changed since it was started. If true, the run is deleted and trained again. By default an
            error is raised. If files of your data have changed, it is a warning, and an unfinished run continues.
        save_data: Whether to store data that were passed as arrays, or as a torch dataset, in the folder of the runs.
            The runs can then be scored and shown with the folder alone.
        validation: The fraction of the examples to hold out from training. Their loss and its terms are logged as
            ``validation.loss`` and so on. The split is the same for all runs on the same data, and the spec records the
            fraction. With 0, nothing is held out.
        on_log: A function ``(spec, record)`` that is called with each new record of the log of each run. A record has
            `step` and the value of each term. If the function raises an exception, the training ends.

    Returns:
        The runs, ordered by method, then learning rate, then seed. Runs that diverged are included (see
        `Run.divergence`). Notebooks show the list as a table.

    Raises:
        UserError: If the method, network or precision does not fit the data or the device, if another process is
            training in `out`, or if `out` contains other runs and `add` is false. With several `devices`, also if the
            batch cannot be divided by their number, or if the objective is not a mean over examples.

    >>> import unbraid as ub
    >>> runs = ub.train(ub.methods.BetaVAE(beta=4.0), data="toy", seeds=range(2), steps=20, quiet=True)
    >>> runs[0].encode(ub.data.load("toy").images([0, 1, 2])).shape
    torch.Size([3, 10])
    """
    own_thread_count()  # now, because the first call of PyTorch in a thread decides how many CPU threads it uses
    check_log(log, out)
    all_devices = resolve_devices(device, devices)
    methods, rates, all_seeds = as_methods(method), rate_list(learning_rate), seed_list(seeds)
    source = load_data(data, all_devices[0], quiet)
    defaults = RunDefaults.choose(source, net, likelihood, precision)
    shared: dict[str, Any] = {"steps": steps, "batch": batch, "latents": latents, "validation": validation}
    shared |= {"factorised_support": factorised_support, "weight_decay": weight_decay, "clip_norm": clip_norm}
    shared |= {"orthogonal_jacobian": orthogonal_jacobian, "sparse_jacobian": sparse_jacobian,
               "hessian_penalty": hessian_penalty}  # fmt: skip
    specs = [
        defaults.spec(m, seed=seed, learning_rate=rate, **shared)
        for m in methods
        for rate in rates
        for seed in all_seeds
    ]
    folder = None if out is None else Path(out)
    return train_specs(
        specs, source, defaults.builder, folder, add=add, checkpoint_seconds=checkpoint_seconds, quiet=quiet, log=log,
        retrain=retrain, save_data=save_data, on_log=on_log, devices=all_devices,
    )  # fmt: skip


def check_callback(on_log: LogCallback | None) -> None:
    """Raise a UserError unless `on_log` is None or can be called with two arguments."""
    if on_log is None:
        return
    try:
        inspect.signature(on_log).bind(None, None)
    except ValueError:  # some built-in functions have no signature
        return
    except TypeError as error:
        raise UserError(
            f"The argument 'on_log' must be a function of two arguments, (spec, record). Got {on_log!r} instead."
        ) from error


def rate_list(rates: float | Iterable[float] | None) -> list[Any]:
    """Return one learning rate, or several, as a list. `RunSpec` checks their values."""
    if isinstance(rates, str) or not isinstance(rates, Iterable):
        return [rates]
    if listed := list(rates):
        return listed
    raise UserError("Pass at least one learning rate, such as 1e-4. Got an empty list instead.")


def check_checkpoint_seconds(seconds: Any) -> None:
    """Raise a UserError unless the minimum time between two checkpoints is a number that is not negative."""
    if not (isinstance(seconds, Real) and float(seconds) >= 0):  # with NaN, none would ever be written
        raise UserError(f"The argument 'checkpoint_seconds' must be a number >= 0. Got {seconds!r} instead.")


def seed_list(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds as a list, or raise a UserError if they are a single number, a text or an empty list."""
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        listed = [operator.index(seed) if hasattr(seed, "__index__") else seed for seed in seeds]
        if listed:
            return listed
    advice = "Pass a list or a range."
    if isinstance(seeds, int):
        advice = f"For {seeds} runs, pass range({seeds}). For one run with this seed, pass [{seeds}]."
    raise UserError(f"`seeds` must be several seeds, such as range(3) or [0, 7]. Got {seeds!r} instead. {advice}")


def train_specs(
    specs: Sequence[RunSpec],
    data: FactorData,
    builder: PairBuilder,
    out: Path | None = None,
    *,
    add: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
    log: str | None = None,
    retrain: bool = False,
    save_data: bool = False,
    on_log: LogCallback | None = None,
    devices: Sequence[str] = (),
) -> list[Run]:
    """Check specs, lock the folder `out` and train on one dataset. Runs that are already trained are loaded.

    With several `devices`, of which the first is that of the data, every batch is divided among them.
    """
    check_log(log, out)
    check_callback(on_log)
    if save_data:
        check_data_to_save(data, out)
    unique = {spec.id: spec for spec in specs}
    check_specs(specs, data, builder)
    if len(devices) > 1:
        check_divisible(specs, data, builder, len(devices))
    with ExitStack() as contexts:
        if out is not None:
            make_folder(out)
            if not contexts.enter_context(try_lock(out / ".lock")):
                raise UserError(
                    f"Another process is training in {out}. Wait until it ends, or choose another output folder."
                )
            if unique and not add:
                reject_other_runs(out, set(unique))
        if save_data and out is not None and isinstance(data, OwnData):
            write_data(out, data)
        runs = train_checked_specs(
            specs, data, builder, out, checkpoint_seconds=checkpoint_seconds, quiet=quiet, log=log, retrain=retrain,
            on_log=on_log, devices=devices,
        )  # fmt: skip
    remember_data(runs, data)
    return runs


@training_settings()
def check_specs(specs: Sequence[RunSpec], data: FactorData, builder: PairBuilder) -> None:
    """Raise an error if a spec cannot be trained on the data. Warn if a run ends before the schedules of its method."""
    warn_of_long_schedules(specs)
    for spec in {spec.stack_key(): spec for spec in specs}.values():
        check_memory(spec, data)
        spec.method.check(data, spec.batch, spec.latents)
        check_support(spec.method, spec.factorised_support)
        net = build_net(spec, data.shape, builder)
        check_penalised(spec.method, spec.penalties, net)
        check_net(net, data.shape, spec.latents)
        check_device(net, data.device)
        if is_own(spec):
            check_randomness(spec, data, builder)


def warn_of_long_schedules(specs: Iterable[RunSpec]) -> None:
    """Warn once for each method with runs that end before the schedules of the method do."""
    longest: dict[str, tuple[float, int]] = {}
    for spec in specs:
        end = spec.method.schedule_end(spec.steps)
        if end > spec.steps > 0:
            name = registry_name(type(spec.method))
            longest[name] = max(longest.get(name, (0.0, 0)), (end, spec.steps))
    for name, (end, steps) in longest.items():
        warn_user(
            f"A run of {name} with {steps:,} steps ends before its schedule, which ends at step {end:,.0f}. Train for "
            f"more steps, or set a shorter schedule. `unbraid train {name} --help` lists the settings."
        )


@training_settings()
def train_checked_specs(
    specs: Sequence[RunSpec],
    data: FactorData,
    builder: PairBuilder,
    out: Path | None = None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
    report: ProgressCallback | None = None,
    log: str | None = None,
    retrain: bool = False,
    on_log: LogCallback | None = None,
    devices: Sequence[str] = (),
) -> list[Run]:
    """Train specs that have been checked. The caller must have locked the folder `out`, or the folders of these runs.

    On Ctrl-C or SIGTERM, training completes the current step, writes a checkpoint and ends. A second signal ends it at
    once.
    """
    check_checkpoint_seconds(checkpoint_seconds)
    unique = {spec.id: spec for spec in specs}
    fingerprint, files = (None, None) if out is None else (memory_fingerprint(data), files_digest(data))
    gpu = launch_provenance(data.device.index) if supports_kernels(data.device) else {}
    in_training = [
        RunInTraining.open(spec, out, builder, retrain=retrain, data=fingerprint, files=files, gpu=gpu)
        for spec in unique.values()
    ]
    untrained = [run for run in in_training if not run.trained]
    runs = {run.spec.id: open_run(run.folder, data, builder) for run in in_training if run.trained and run.folder}
    if log is not None:
        update_logs(in_training, runs, log)
    training_data = hold_out(untrained, data, builder)
    for run in untrained:
        run.on_record = on_log
    with ExitStack() as contexts:
        if report is None and not quiet:
            total = sum(run.spec.steps for run in untrained)
            report = contexts.enter_context(progress("training", total))
            if data.device.type == "cpu":
                report = announce_duration(report, total, long_training_advice(out))
        monitor = Monitor(untrained, report, checkpoint_seconds, contexts.enter_context(deferred_signals()))
        contexts.enter_context(one_training_on_gpu(data.device))
        arguments = in_training, training_data, builder, monitor
        trained = train_divided_runs(*arguments, devices) if len(devices) > 1 else train_runs(*arguments)
        runs |= {run.id: run for run in trained}
    return RunList(runs[spec.id] for spec in specs)


def hold_out(runs: list[RunInTraining], data: FactorData, builder: PairBuilder) -> FactorData:
    """Return the examples to train on. If the specs hold out a part of the data, let the runs log the losses on it.

    Raises:
        UserError: If the specs hold out different fractions, or if a method draws pairs of examples.
    """
    fractions = {run.spec.validation for run in runs}
    if fractions <= {0.0}:
        return data
    if len(fractions) > 1:
        raise UserError(f"Runs that train together must hold out the same fraction. Got {sorted(fractions)} instead.")
    training, held_out = split_data(data, fractions.pop())
    for run in runs:
        run.spec.method.check(training, run.spec.batch, run.spec.latents)
        check_validation(run.spec, training, held_out)
        run.validate = validation_losses(run.spec, held_out, builder)
    return training


def long_training_advice(out: Path | None) -> str:
    """Return what the user can do about a training on a CPU that takes long."""
    kept = (
        "Ctrl-C stops it, and the same command resumes it from its last checkpoint."
        if out is not None
        else "Pass out= to keep checkpoints, with which an interrupted training can be resumed."
    )
    return (
        f"{kept} For a first result, use fewer steps, such as --steps 5000 (steps=5000). With a GPU, use --device cuda."
    )


def update_logs(in_training: list[RunInTraining], runs: dict[str, Run], log: str) -> None:
    """Write the logs of trained runs for the program `log`, such as "tensorboard".

    The other runs are set to call the same function whenever their logs are written during training.
    """
    update = UPDATES[log]
    for run in in_training:
        run.on_log = update
        if run.folder is not None and run.trained:
            update(run.folder, runs[run.spec.id].log)


def reject_other_runs(out: Path, wanted: set[str]) -> None:
    """Raise an error if a folder contains runs whose ids are not in `wanted`."""
    others = [run for run in find_runs(out) if run.spec.id not in wanted]
    if others:
        raise UserError(
            f"{out} holds {len(others)} other run(s), such as {others[0].path.name}. Choose another output folder, "
            "request those runs as well, or pass --add (add=True) to store the new runs in the same folder."
        )
