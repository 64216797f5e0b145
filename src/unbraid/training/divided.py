"""Training runs with every batch divided among several devices.

Runs train one after another, and each run uses all devices. The result of a run is that of a single device, up to
rounding (see `unbraid.training.divisible`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from unbraid.accel.allocator import freed_memory_kept
from unbraid.accel.devices import check_device
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.run import Run
from unbraid.training.active import ActiveStack, RunInTraining, load_stack
from unbraid.training.loop import Monitor, advance_to_end, finish_stack
from unbraid.training.part_processes import FirstPart, batch_parts


def resolve_devices(device: str | torch.device, devices: Sequence[str | torch.device] | None) -> list[str]:
    """Return the devices of a training: `devices`, or else the one `device`.

    Raises:
        UserError: If both are given, if a device does not exist, or if the devices are of different kinds.
    """
    if devices is None:
        check_device(str(device))
        return [str(device)]
    names = [devices] if isinstance(devices, str | torch.device) else list(devices)
    found = ["cuda:0" if str(name) == "cuda" else str(name) for name in names]
    if str(device) != "cpu":
        raise UserError(f"Give either a device or devices. Got {str(device)!r} and {','.join(found)!r} instead.")
    for name in found:
        check_device(name)
    if not found or (len(found) > 1 and {name.partition(":")[0] for name in found} not in ({"cpu"}, {"cuda"})):
        raise UserError(
            "Several devices must all be CUDA devices, such as cuda:0,cuda:1, or all be cpu. "
            f"Got {','.join(found)!r} instead."
        )
    return found


def train_divided_runs(
    runs: Sequence[RunInTraining], data: FactorData, builder: PairBuilder, monitor: Monitor, devices: Sequence[str]
) -> Iterator[Run]:
    """Train the runs that are not trained yet, one after another, and yield them. Each batch is divided.

    Args:
        runs: The runs.
        data: The dataset, on the first device.
        builder: Function that builds the encoder and the decoder.
        monitor: Reports the progress and decides when checkpoints are due.
        devices: The devices, with one process each. The first is that of this process.
    """
    untrained = [run for run in runs if not run.trained]
    if not untrained:
        return
    with batch_parts(devices, data, builder) as part, freed_memory_kept(data.device):
        for run in untrained:
            yield train_divided_run(run, data, builder, monitor, part)


def train_divided_run(
    run: RunInTraining, data: FactorData, builder: PairBuilder, monitor: Monitor, part: FirstPart
) -> Run:
    """Train one run to its last step and write it."""
    try:
        stack = load_stack([run], data, builder, 1, part=part)
        part.load(run.spec, stack.states()[0], stack.step)
        active = ActiveStack(stack, [run])
        advance_to_end([active], 1, monitor)
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(
            f"A part of a batch of {run.spec.batch} must fit into the free memory of {data.device}. It does not. Use a "
            "smaller batch, a smaller network or more devices, or end other programs that use the device."
        ) from error
    (trained,) = finish_stack(active, data, builder)
    return trained
