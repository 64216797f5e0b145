"""The bytes and the multiplications of one model-step on a GPU, kernel by kernel, computed from the shapes of arrays.

A model-step is one step of one run: drawing the images, forward pass, backward pass and Adam, in bf16. The layers come
from the plans with which stacks train (`unbraid.training.fused.networks`), and the numbers of partial sums from the
launch settings of the package. The functions follow `unbraid.training.fused.functions`, in the order of the launches.

Rules of the count:

- An array is counted once in each kernel that reads it and once in each kernel that writes it. This assumes that a
  kernel reads no array twice, and that no array stays in the L2 cache from one kernel to the next.
- The border of blocked images is counted only in the kernels that read or write it.
- `flop` counts 2 operations for each multiplication of a matrix product, as the kernel computes it: with the border,
  with padded channels and columns, and with weights that are zero. Tiles that exceed an array are not counted.
- `needed` counts the operations that the layer itself needs, without any of these.
- Operations on latents, losses and keys of the noise are left out. They have at most some thousand values per run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import torch

from unbraid.accel.kernels.conv4x4 import MIN_STRIP_CHANNELS
from unbraid.accel.kernels.jit import block_count, divisor
from unbraid.accel.kernels.last_layer import COLUMNS
from unbraid.accel.kernels.tuned import package_settings
from unbraid.accel.launch_candidates import Launch
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import critic
from unbraid.training.fused.dense import Dense
from unbraid.training.fused.networks import PackedConv, Plan, plan_decoder, plan_dense, plan_encoder

HALF, FLOAT = torch.bfloat16.itemsize, torch.float32.itemsize
SIDE, LATENTS = 64, 10
IMAGES, FORWARD, INPUTS, LAST, WEIGHTS, SUMS, ADAM = (
    "drawing and blocking images", "forward pass", "input gradients", "gradients of the last layer",
    "weight gradients", "sums and borders", "Adam",
)  # fmt: skip
CRITIC_FORWARD, CRITIC_INPUTS, CRITIC_ADAM, CRITIC_SUMS = (
    "critic, forward passes", "critic, input gradients", "critic, weight gradients with Adam", "critic, sums",
)  # fmt: skip


@dataclass(frozen=True)
class Array:
    """An array, or the part of it that a kernel reads or writes, with its number of bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Kernel:
    """One launch of a kernel, with its work for one run.

    Attributes:
        name: Name of the function.
        group: Group of kernels in the tables of the documentation.
        layer: Name of the layer, or "" if the kernel does not belong to one.
        reads: The arrays that it reads.
        writes: The arrays that it writes.
        flop: Operations of matrix products, as the kernel computes them.
        needed: Operations of matrix products that the layer needs.
    """

    name: str
    group: str
    layer: str
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    flop: int = 0
    needed: int = 0

    @property
    def bytes(self) -> int:
        """Number of bytes that the kernel reads and writes."""
        return sum(array.size for array in self.reads + self.writes)


@dataclass
class Step:
    """The kernels of one step, and the sizes on which they depend.

    Attributes:
        batch: Number of examples per run.
        runs: Number of runs in the stack, on which the launch settings depend.
        channels: Number of channels of the images.
        kernels: The kernels, in the order of the launches.
    """

    batch: int
    runs: int
    channels: int
    kernels: list[Kernel] = field(default_factory=list)

    def add(
        self, name: str, group: str, layer: str, reads: Iterable[Array], writes: Iterable[Array], flop: int = 0,
        needed: int = 0,
    ) -> None:  # fmt: skip
        """Append a kernel."""
        self.kernels.append(Kernel(name, group, layer, tuple(reads), tuple(writes), flop, needed))

    def settings(self, name: str, c: int, m: int) -> Launch:
        """Return the launch settings of a kernel."""
        return package_settings(name, c, m, torch.bfloat16, self.runs)

    def images(self, name: str, side: int, channels: int, plain: bool, border: bool = True) -> Array:
        """Return plain or blocked images in bf16, with or without the border of blocked images."""
        edge = side if plain or not border else side + 2
        return Array(name, self.batch * edge * edge * channels * HALF)

    def small(self, layer: PackedConv, name: str, border: bool = True) -> Array:
        """Return the small images of a layer."""
        return self.images(name, layer.h, layer.M, layer.plain, border)

    def large(self, layer: PackedConv, name: str) -> Array:
        """Return the large images of a layer, which are plain for 2x2 layers and blocked for 4x4 layers."""
        return self.images(name, 2 * layer.h, layer.C, layer.kernel == 2)

    def zero_border(self, name: str, h: int, channels: int) -> None:
        """Append the kernel that clears the border of blocked images."""
        size = self.batch * ((h + 2) ** 2 - h**2) * channels * HALF
        self.add("_zero_border", SUMS, "", (), [Array(name, size)])

    def needs(self, layer: PackedConv) -> int:
        """Return the operations of the product of one layer, which both of its gradients need as well."""
        large = self.channels if is_image_layer(layer) else layer.C
        return 2 * self.batch * layer.h**2 * layer.kernel**2 * large * layer.M


def floats(name: str, count: int) -> Array:
    """Return an array of float32 values."""
    return Array(name, count * FLOAT)


def parameters(part: str, *slots: int) -> Array:
    """Return the bf16 copy of some parameters, given the number of elements of each."""
    return Array(f"{part} parameters, bf16 copy", sum(slots) * HALF)


def is_image_layer(layer: PackedConv) -> bool:
    """Return whether the large images of a layer are the examples, whose channels may be padded."""
    return layer.C < MIN_STRIP_CHANNELS


def weight_size(layer: PackedConv) -> int:
    """Return the number of stored weights of a convolution."""
    return layer.kernel**2 * layer.C * layer.M


def draw_images(step: Step) -> None:
    """Append the kernels that draw a batch of dSprites, and those that write it as blocked images."""
    pixels = step.batch * SIDE * SIDE
    packed, drawn = Array("packed images", pixels // 8), floats("images, float32", pixels * step.channels)
    colours = [Array("colours", step.batch * 3)] if step.channels == 3 else []
    step.add("_paint" if colours else "_unpack", IMAGES, "", [packed, *colours], [drawn])


def encoder_forward(step: Step, plan: Plan) -> None:
    """Append the forward pass of the encoder."""
    first = plan.convs[0]
    drawn = floats("images, float32", step.batch * SIDE * SIDE * step.channels)
    step.add("_to_blocked", IMAGES, "", [drawn], [step.large(first, "images, blocked")])
    for i, layer in enumerate(plan.convs):
        before = "images, blocked" if i == 0 else f"encoder activation {i}"
        convolve(step, layer, i, before)
    names = [f"encoder activation {len(plan.convs) + i}" for i in range(len(plan.dense) + 1)]
    dense_forward(step, plan, "encoder", FORWARD, names, step.batch, len(plan.convs))


def convolve(step: Step, layer: PackedConv, i: int, before: str) -> None:
    """Append layer i of the encoder."""
    name, after = f"encoder {i + 1}", f"encoder activation {i + 1}"
    copy = parameters("encoder", weight_size(layer), layer.M)
    reads, needed = [step.large(layer, before), copy], step.needs(layer)
    if layer.kernel == 2:
        step.add("_conv2x2", FORWARD, name, reads, [step.small(layer, after)], needed, needed)
        return
    if not layer.plain:
        step.zero_border(after, layer.h, layer.M)
    function, flop = conv4x4_flop(step, layer, "conv4x4")
    step.add(function, FORWARD, name, reads, [step.small(layer, after, border=False)], flop, needed)


def conv4x4_flop(step: Step, layer: PackedConv, name: str) -> tuple[str, int]:
    """Return the function that computes a 4x4 convolution and its operations (see `unbraid.accel.kernels.conv4x4`)."""
    h, product = layer.h, 2 * step.batch * layer.C * layer.M
    if is_image_layer(layer):
        return "_image_conv4x4", product * 16 * h * h
    tuned = step.settings(name, layer.C, layer.M)
    if "GB" in tuned:
        return "_conv4x4_groups", product * 16 * h * (h + 1)
    return "_conv4x4", product * 8 * h * (2 * h + divisor(h, tuned["RS"]))


def encoder_backward(step: Step, plan: Plan) -> None:
    """Append the backward pass of the encoder, from the gradient of its outputs to its weight gradients."""
    count = len(plan.convs)
    names = [f"encoder activation {count + i}" for i in range(len(plan.dense) + 1)]
    sums = [dense_backward(step, plan, "encoder", names, count, activated=True)]
    for i in range(count - 1, 0, -1):
        layer = plan.convs[i]
        x, g, into = f"encoder activation {i}", f"encoder gradient {i + 1}", f"encoder gradient {i}"
        images, gradient = step.large(layer, x), step.small(layer, g)
        sums += weight_gradient(step, layer, "encoder", i + 1, images, gradient)
        sums.append(conv_input_gradient(step, layer, i + 1, images, gradient, into))
    first = plan.convs[0]
    images, gradient = step.large(first, "images, blocked"), step.small(first, "encoder gradient 1", border=False)
    sums.append(image_weight_gradient(step, first, "encoder 1", images, gradient))
    add_parts(step, "encoder", sums)


def conv_input_gradient(step: Step, layer: PackedConv, i: int, x: Array, g: Array, into: str) -> tuple[int, int]:
    """Append the input gradient of convolution i. Return the parts and columns of its partial sums."""
    needed, copy = step.needs(layer), parameters("encoder", weight_size(layer))
    if layer.kernel == 2:
        tuned, flop = step.settings("conv2x2 input gradient", layer.C, layer.M), needed
        programs, function = block_count(step.batch * layer.h**2, tuned["BM"]), "_conv2x2_input_gradient"
    else:
        tuned = step.settings("conv_transpose4x4 gradient", layer.C, layer.M)
        programs, function = transpose_programs(step, layer, tuned), "_conv_transpose4x4"
        flop = transpose_flop(step, layer, tuned)
    part = floats("partial sums", programs * 4 * layer.C)
    step.add(function, INPUTS, f"encoder {i}", [g, x, copy], [Array(into, x.size), part], flop, needed)
    return programs * 4, layer.C


def transpose_programs(step: Step, layer: PackedConv, tuned: Launch) -> int:
    """Return the number of programs per run of a transposed convolution, in the first axis of its grid."""
    return block_count(step.batch * (layer.h + 1), tuned["BM"]) * int(tuned["RS"])


def transpose_flop(step: Step, layer: PackedConv, tuned: Launch) -> int:
    """Return the operations of a transposed convolution, which computes all blocks of the large images."""
    g = layer.h + 1
    rows = block_count(g, tuned["RS"]) * int(tuned["RS"])
    return 2 * step.batch * g * rows * 16 * layer.C * layer.M


def weight_gradient(
    step: Step, layer: PackedConv, part: str, i: int, large: Array, small: Array
) -> list[tuple[int, int]]:  # fmt: skip
    """Append the weight gradient of layer i. Return the parts and columns of its partial sums, if it has any."""
    size, blocks = weight_size(layer), layer.h**2 if layer.kernel == 2 else (layer.h + 1) ** 2
    kind = "conv2x2" if layer.kernel == 2 else "conv4x4"
    split = step.settings(f"{kind} weight gradient", layer.C, layer.M)["SPLIT"]
    out = floats(f"{part} parameter gradients" if split == 1 else "partial sums", split * size)
    flop = 2 * step.batch * blocks * size
    step.add(f"_{kind}_weight_gradient", WEIGHTS, f"{part} {i}", [large, small], [out], flop, step.needs(layer))
    return [] if split == 1 else [(split, size)]


def image_weight_gradient(step: Step, layer: PackedConv, name: str, images: Array, gradient: Array) -> tuple[int, int]:
    """Append the weight gradient of the first layer of the encoder. Return the parts and columns of its sums."""
    tuned = step.settings("image weight gradient", layer.C, layer.M)
    programs = block_count(step.batch * layer.h**2, tuned["BM"] * tuned["IT"])
    size = weight_size(layer)
    flop = 2 * step.batch * layer.h**2 * size
    part = floats("partial sums", programs * size)
    step.add("_image_conv4x4_weight_gradient", WEIGHTS, name, [images, gradient], [part], flop, step.needs(layer))
    return programs, size


def decoder_forward(step: Step, plan: Plan) -> None:
    """Append the forward pass of the decoder, which ends with the likelihood."""
    deep = len(plan.dense)
    dense_forward(step, plan, "decoder", FORWARD, ["latents", *activations(plan)[:deep]], step.batch, 0)
    names = activations(plan)[deep - 1 :]
    for i, layer in enumerate(plan.convs[:-1]):
        tuned = step.settings("conv_transpose4x4", layer.C, layer.M)
        copy = parameters("decoder", weight_size(layer), layer.C)
        reads, writes = [step.small(layer, names[i]), copy], [step.large(layer, names[i + 1])]
        flop = transpose_flop(step, layer, tuned)
        step.add("_conv_transpose4x4", FORWARD, f"decoder {deep + i + 1}", reads, writes, flop, step.needs(layer))
    likelihood(step, plan.convs[-1], names[-1], f"decoder {deep + len(plan.convs)}")


def activations(plan: Plan) -> list[str]:
    """Return the names of the activations of a decoder, one for each layer but the last."""
    return [f"decoder activation {i + 1}" for i in range(len(plan.dense) + len(plan.convs) - 1)]


def likelihood(step: Step, layer: PackedConv, before: str, name: str) -> None:
    """Append the last layer of the decoder with the likelihood, and the sums of its results."""
    tuned = step.settings("image conv_transpose4x4", layer.C, layer.M)
    g, width = layer.h + 1, COLUMNS // (4 * layer.C)
    groups, parts = block_count(g, width), block_count(g, width) * tuned["RS"]
    rows = (block_count(g, tuned["RS"]) + (tuned["RS"] > 1)) * tuned["RS"]
    pixels = width + 1  # a group of blocks is computed from this number of small pixels
    partial = floats("partial sums", step.batch * parts * (1 + COLUMNS))
    reads = [step.small(layer, before), parameters("decoder", weight_size(layer), layer.C),
             floats("images, float32", step.batch * SIDE * SIDE * step.channels)]  # fmt: skip
    slopes = step.large(layer, "image gradient")
    flop = 2 * step.batch * groups * rows * pixels * 2 * layer.M * COLUMNS
    step.add("_image_conv_transpose4x4", FORWARD, name, reads, [slopes, partial], flop, step.needs(layer))
    step.add("torch.sum", SUMS, "", [partial], [floats("partial sums", step.batch * (1 + 4 * layer.C))])


def decoder_backward(step: Step, plan: Plan) -> None:
    """Append the backward pass of the decoder, from the gradient of the images to its weight gradients."""
    deep, names = len(plan.dense), activations(plan)[len(plan.dense) - 1 :]
    sums = last_layer_gradients(step, plan.convs[-1], names[-1], f"decoder {deep + len(plan.convs)}")
    for i in range(len(plan.convs) - 2, -1, -1):
        layer, g = plan.convs[i], step.large(plan.convs[i], gradient_of(names[i + 1]))
        sums += weight_gradient(step, layer, "decoder", deep + i + 1, g, step.small(layer, names[i]))
        sums.append(transpose_input_gradient(step, layer, f"decoder {deep + i + 1}", g, names[i]))
    dense_backward(step, plan, "decoder", ["latents", *activations(plan)[:deep]], 0, activated=False)
    add_parts(step, "decoder", sums[:-1])  # the bias of a dense layer is summed in the kernel of its weight gradient


def gradient_of(activation: str) -> str:
    """Return the name of the gradient with respect to an activation."""
    return "latent gradients" if activation == "latents" else activation.replace("activation", "gradient")


def last_layer_gradients(step: Step, layer: PackedConv, before: str, name: str) -> list[tuple[int, int]]:
    """Append both gradients of the last layer. Return the parts and columns of the partial sums."""
    into = gradient_of(before)
    step.zero_border(into, layer.h, layer.M)
    tuned = step.settings("image decoder gradient", layer.C, layer.M)
    programs, size = block_count(step.batch * layer.h**2, tuned["BM"] * tuned["IT"]), weight_size(layer)
    reads = [step.large(layer, "image gradient"), step.small(layer, before, border=False), parameters("decoder", size)]
    writes = [step.small(layer, into, border=False), floats("partial sums", programs * (size + layer.M))]
    flop, needed = 2 * 2 * step.batch * layer.h**2 * size, 2 * step.needs(layer)
    step.add("_image_conv4x4_weight_gradient", LAST, name, reads, writes, flop, needed)
    return [(programs, size), (4 * step.batch, layer.C), (programs, layer.M)]


def transpose_input_gradient(step: Step, layer: PackedConv, name: str, g: Array, before: str) -> tuple[int, int]:
    """Append the input gradient of a transposed convolution. Return the parts and columns of its partial sums."""
    into, tuned = gradient_of(before), step.settings("conv4x4 gradient", layer.C, layer.M)
    if not layer.plain:
        step.zero_border(into, layer.h, layer.M)
    function, flop = conv4x4_flop(step, layer, "conv4x4 gradient")
    if "GB" in tuned:
        programs = block_count(step.batch * layer.h // tuned["GB"], tuned["BM"])
    else:
        programs = block_count(step.batch * layer.h, tuned["BM"]) * divisor(layer.h, tuned["RS"])
    reads = [g, step.small(layer, before, border=False), parameters("decoder", weight_size(layer))]
    writes = [step.small(layer, into, border=False), floats("partial sums", programs * layer.M)]
    step.add(function, INPUTS, name, reads, writes, flop, step.needs(layer))
    return programs, layer.M


def widths(plan: Plan) -> list[int]:
    """Return the numbers of stored columns of the input and of the outputs of dense layers."""
    outputs = [layer.matrix[1] for layer in plan.dense]
    return [plan.inputs, *outputs[:-1], plan.outputs or outputs[-1]]


def value_sizes(plan: Plan, part: str) -> list[int]:
    """Return the number of bytes of a stored input or output of dense layers, for each of them.

    Latents and the outputs of encoders and critics are float32.
    """
    sizes = [HALF] * (len(plan.dense) + 1)
    sizes[0] = HALF if part == "encoder" else FLOAT
    sizes[-1] = FLOAT if plan.outputs else HALF
    return sizes


def dense_arrays(plan: Plan, part: str, names: list[str], batch: int) -> list[Array]:
    """Return the input and the outputs of dense layers."""
    sizes = zip(names, widths(plan), value_sizes(plan, part), strict=True)
    return [Array(name, batch * width * size) for name, width, size in sizes]


def dense_needs(plan: Plan, i: int, batch: int) -> int:
    """Return the operations that dense layer i needs."""
    return 2 * batch * widths(plan)[i] * widths(plan)[i + 1]


def dense_flop(layer: Dense, batch: int) -> int:
    """Return the operations of a dense layer with its padded matrix."""
    return 2 * batch * layer.weight.shape[0] * layer.weight.shape[1]


def dense_forward(
    step: Step, plan: Plan, part: str, group: str, names: list[str], batch: int, first: int
) -> None:  # fmt: skip
    """Append dense layers, the first of which has number first + 1 in its network."""
    values = dense_arrays(plan, part, names, batch)
    for i, layer in enumerate(plan.dense):
        copy = parameters(part, *dense_slots(layer))
        flop, needed = dense_flop(layer, batch), dense_needs(plan, i, batch)
        step.add("_dense", group, f"{part} {first + i + 1}", [values[i], copy], [values[i + 1]], flop, needed)


def dense_slots(layer: Dense) -> tuple[int, int]:
    """Return the numbers of stored weights and of stored bias elements of a dense layer."""
    inputs, outputs = layer.matrix
    return inputs * outputs, outputs


def dense_backward(
    step: Step, plan: Plan, part: str, names: list[str], first: int, activated: bool
) -> tuple[int, int]:  # fmt: skip
    """Append both gradients of the dense layers of an encoder or decoder.

    Return the parts and columns of the partial sums of the input gradient. They exist if there is an activation before
    the first dense layer (`activated`).
    """
    values = dense_arrays(plan, part, names, step.batch)
    gradients = [Array(gradient_of(v.name), v.size) for v in values]
    for i in reversed(range(len(plan.dense))):
        layer = plan.dense[i]
        flop, needed, name = dense_flop(layer, step.batch), dense_needs(plan, i, step.batch), f"{part} {first + i + 1}"
        out = floats(f"{part} parameter gradients", sum(dense_slots(layer)))
        step.add("_dense_weight_gradient", WEIGHTS, name, [values[i], gradients[i + 1]], [out], flop, needed)
        masks = [values[i]] if i > 0 or activated else []
        reads = [gradients[i + 1], *masks, parameters(part, dense_slots(layer)[0])]
        writes, parts, columns = [gradients[i]], 0, widths(plan)[0]
        if i == 0 and activated:
            parts = block_count(step.batch, step.settings("dense input gradient", *layer.matrix)["BM"])
            writes.append(floats("partial sums", parts * columns))
        step.add("_dense_input_gradient", INPUTS, name, reads, writes, flop, needed)
    last = plan.convs[-1].M
    return parts * columns // last, last


def add_parts(step: Step, part: str, sums: list[tuple[int, int]]) -> None:
    """Append the launches that add the partial sums of a network, given the parts and columns of each sum."""
    read = floats("partial sums", sum(parts * columns for parts, columns in sums))
    written = floats(f"{part} parameter gradients", sum(columns for _, columns in sums))
    step.add("_part_sums", SUMS, "", [read], [written])


def optimise(step: Step, plan: Plan, part: str) -> None:
    """Append the check that the gradients of a network are finite, and its step of Adam."""
    size = plan.packing.size
    gradients = floats(f"{part} parameter gradients", size)
    step.add("_block_sums", SUMS, "", [gradients], ())
    state = adam_state(part, size)
    step.add("_adam", ADAM, "", [gradients, *state], [*state, parameters(part, size)])


def adam_state(part: str, size: int) -> list[Array]:
    """Return parameters and their moments."""
    return [floats(f"{part} parameters", size), floats(f"{part} moments", 2 * size)]


def critic_steps(step: Step, plan: Plan) -> None:
    """Append the two uses of FactorVAE's critic.

    The first use, with the latents of the batch, has an input gradient only. The second has the latents and their
    permutation, so its batch has twice the size. Its weight gradients are computed in the kernel of Adam.
    """
    for use, batch in (("first use", step.batch), ("second use", 2 * step.batch)):
        names = [f"critic activation {i}, {use}" for i in range(len(plan.dense) + 1)]
        dense_forward(step, plan, "critic", CRITIC_FORWARD, names, batch, 0)
        values = dense_arrays(plan, "critic", names, batch)
        gradients = [Array(gradient_of(value.name), value.size) for value in values]
        for i in reversed(range(len(plan.dense))):
            layer, flop = plan.dense[i], dense_flop(plan.dense[i], batch)
            masks = [values[i]] if i > 0 else []
            reads = [gradients[i + 1], *masks, parameters("critic", dense_slots(layer)[0])]
            needed, name = dense_needs(plan, i, batch), f"critic {i + 1}"
            step.add("_dense_input_gradient", CRITIC_INPUTS, name, reads, [gradients[i]], flop, needed)
    for i in reversed(range(len(plan.dense))):
        layer, size = plan.dense[i], sum(dense_slots(plan.dense[i]))
        factors, state = [values[i], gradients[i + 1]], adam_state("critic", size)
        step.add("_block_sums", CRITIC_SUMS, "", factors[:1], ())
        step.add("_block_sums", CRITIC_SUMS, "", factors[1:], ())
        flop, needed = dense_flop(layer, batch), dense_needs(plan, i, batch)
        writes = [*state, parameters("critic", size)]
        step.add("_dense_adam", CRITIC_ADAM, f"critic {i + 1}", [*factors, *state], writes, flop, needed)


def plans(channels: int) -> tuple[Plan, Plan, Plan]:
    """Return the plans of the encoder, of the decoder and of FactorVAE's critic."""
    encoder, decoder = locatello((channels, SIDE, SIDE), LATENTS)
    shape = (channels, SIDE, SIDE)
    found = plan_encoder(encoder, shape), plan_decoder(decoder, shape), plan_dense(critic(LATENTS))
    return cast(tuple[Plan, Plan, Plan], found)


def model_step(method: str, channels: int, runs: int = 128, batch: int = 64) -> list[Kernel]:
    """Return the kernels of one model-step.

    Args:
        method: "beta_vae" or "factor_vae".
        channels: Number of channels of the images, 1 or 3.
        runs: Number of runs in the stack.
        batch: Number of images per run.
    """
    encoder, decoder, discriminator = plans(channels)
    step = Step(batch, runs, channels)
    draw_images(step)
    encoder_forward(step, encoder)
    decoder_forward(step, decoder)
    decoder_backward(step, decoder)
    encoder_backward(step, encoder)
    optimise(step, encoder, "encoder")
    optimise(step, decoder, "decoder")
    if method == "factor_vae":
        critic_steps(step, discriminator)
    return step.kernels
