"""Checking that the batch of a method can be divided among devices.

If the objective is a mean over groups of examples, such as pairs, the gradient of a batch is the mean of the gradients
of its parts. This does not hold for objectives with statistics of the whole batch, such as the total correlation of
beta-TCVAE, or for networks with batch normalisation. Both gradients are therefore computed and compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from unbraid.accel.precision import Float64Operations
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec, registry_name
from unbraid.training.objective import DATA
from unbraid.training.parts import BatchPart
from unbraid.training.stack import Stack

# Maximum differences by rounding, relative to the tensor itself and to the largest tensor of its kind. In float32,
# differences could be much larger, because rounding may change the sign of the input of a ReLU, and then a gradient
# changes by up to 1e-2 of its size.
RELATIVE, OF_LARGEST = 1e-5, 1e-6
# The initial weights are multiplied by these factors. With initial weights, the codes of all examples may be so similar
# that statistics of a batch hardly depend on its examples.
WEIGHT_SCALES = (1.0, 2.0)
Results = list[tuple[str, dict[str, Tensor]]]
"""Terms, gradients or buffers by name, each dictionary with a description such as "at step 0, the term"."""
BUFFER = "the buffer"


def check_divisible(specs: Sequence[RunSpec], data: FactorData, builder: PairBuilder, count: int) -> None:
    """Raise an error unless each run has the same gradients if its batch is divided into `count` parts.

    They are compared in float64 at the first, the middle and the last step, because a term may have no weight in a part
    of the training. Runs that differ in the seed or the learning rate are compared once.

    Args:
        specs: The runs.
        data: The dataset, on the device on which everything is computed.
        builder: Function that builds the encoder and the decoder.
        count: The number of parts.

    Raises:
        UserError: If a batch cannot be divided into equal parts, or if the gradients differ.
    """
    different = {dataclasses.replace(spec, seed=0, learning_rate=1e-4).id: spec for spec in reversed(specs)}
    for spec in reversed(different.values()):
        check_batch_size(spec, data, count)
        try:
            whole = step_results(spec, data, builder)
            parts = [step_results(spec, data, builder, BatchPart(i, count)) for i in range(count)]
        except torch.cuda.OutOfMemoryError as error:
            raise UserError(
                f"Before training, the gradient of a whole batch is computed on {data.device}, to compare it with "
                f"those of its parts. A batch of {spec.batch} does not fit into the free memory. Use a smaller batch."
            ) from error
        if difference := first_indivisible_result(whole, parts):
            raise indivisible_error(spec, difference)


def check_batch_size(spec: RunSpec, data: FactorData, count: int) -> None:
    """Raise an error unless the groups of examples of a batch can be divided into `count` equal parts."""
    seed = torch.zeros((), dtype=torch.int64, device=data.device)
    drawn = spec.method.draw(data, Noise.from_seed(seed, seed, DATA), spec.batch)
    if drawn.groups % count or len(drawn.examples) % drawn.groups:
        groups = "examples" if drawn.groups == len(drawn.examples) else "pairs or groups of examples"
        raise UserError(
            f"The batch must be divisible by the number of devices. Got batch={spec.batch}, which is {drawn.groups} "
            f"{groups}, and {count} devices. Choose another batch or another number of devices."
        )


def step_results(spec: RunSpec, data: FactorData, builder: PairBuilder, part: BatchPart | None = None) -> Results:
    """Compute the terms and gradients of some steps in float64, for the whole batch or for one part."""
    stack = Stack([dataclasses.replace(spec, precision="fp32")], data, builder, vmapped=False, fused=False, part=part)
    module, results = stack.modules[0].double(), Results()
    stack.grad = stack.grad.double()
    stack.buffers = {name: _in_float64(value) for name, value in stack.buffers.items()}
    initial = [parameter.detach().clone() for parameter in module.parameters()]
    steps = sorted({0, spec.steps // 2, max(spec.steps - 1, 0)})
    for scale, step in itertools.product(WEIGHT_SCALES, steps):
        for parameter, value in zip(module.parameters(), initial, strict=True):
            parameter.data = scale * value
        with Float64Operations():
            terms, grad = stack._gradients_one_by_one(torch.full_like(stack.device_step, step))
        results.append((f"at step {step}, the term", dict(zip(stack.terms, terms[0], strict=True))))
        results.append((f"at step {step}, the gradient of", stack.layout.unflatten(grad[0].clone())))
        results.append((BUFFER, {name: value[0].double() for name, value in stack.buffers.items()}))
    return results


def _in_float64(buffer: Tensor) -> Tensor:
    """Return a buffer as float64 if it has floating-point numbers."""
    return buffer.double() if buffer.is_floating_point() else buffer


def first_indivisible_result(whole: Results, parts: Sequence[Results]) -> str:
    """Return a description of the first result for which the parts differ from the whole batch, or "".

    Terms and gradients are averaged over the parts. Buffers, which every process updates by itself, must be equal in
    every part. Differences by rounding are allowed. Results that are not finite are not compared.
    """
    for (kind, expected), *found in zip(whole, *parts, strict=True):
        largest = max((float(value.norm()) for value in expected.values()), default=0.0)
        for name, value in expected.items():
            each = torch.stack([part[name] for _, part in found])
            candidates = each if kind == BUFFER else each.mean(0, keepdim=True)
            error, size = max(float((one - value).norm()) for one in candidates), float(value.norm())
            if math.isfinite(size) and not error <= RELATIVE * size + OF_LARGEST * largest:
                return f"{kind} {name}, which is {size:.4g} in size, differs by {error:.4g}"
    return ""


def indivisible_error(spec: RunSpec, difference: str) -> UserError:
    """Return the error for a method whose batch cannot be divided."""
    return UserError(
        "The batch of a run can be divided among devices only if the loss is a mean over its examples. Got "
        f"{registry_name(type(spec.method))} with the network {spec.net}, which compares the examples of a batch with "
        f"each other, or keeps statistics of batches. If the batch is divided, {difference}. Train on one device, or "
        "train different runs on different devices with `unbraid study --devices`."
    )
