"""Every Triton kernel against float64: layers against PyTorch's convolutions, Adam and noise against their tensors.

Without a GPU they run in Triton's interpreter, in float32. All memory that a launcher asks for holds NaN first and lies
between guards, and so do all arguments: what is left unwritten, written outside or read from outside shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap
from torch.nn.grad import conv2d_weight

from guarded import DEVICE, guarded, hurried, room
from unbraid import noise as noises
from unbraid.engine.adam import adam_step
from unbraid.methods.base import Adam
from unbraid.noise import GAMMA, Noise

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.engine.kernels import noise as drawn
from unbraid.engine.kernels import tuned
from unbraid.engine.kernels.adam import adam
from unbraid.engine.kernels.bits import Unpack
from unbraid.engine.kernels.blocked import block, blocked, border
from unbraid.engine.kernels.down import down
from unbraid.engine.kernels.jit import blocks, interpreted, power
from unbraid.engine.kernels.two import two, two_back, two_weight
from unbraid.engine.kernels.up import BERNOULLI, GAUSSIAN, image, image_nll, up
from unbraid.engine.kernels.weights import image_weight_gradient, weight_gradient

# Sums of up to 2,000 float32 products are off by some 3e-7 of their norm, any wrong element by far more. On a GPU
# float32 products are TensorFloat-32, of 10 bits.
CLOSE = 2e-6 if DEVICE == "cpu" else 3e-3

Case = tuple[int, int, int, int, int, bool]
# runs, batch, side of the small image, channels of the large and of the small one, whether the small one is plain.
# Together: one tile and several, full ones and not, sides that are no power of two, all widths in both layouts.
CASES: list[Case] = [
    (1, 1, 4, 32, 32, True),
    (2, 5, 14, 32, 32, False),
    (1, 4, 16, 32, 32, True),
    (2, 3, 8, 32, 64, False),
    (1, 2, 6, 64, 32, True),
    (2, 5, 6, 64, 64, False),
    (3, 4, 4, 64, 64, True),
    (1, 1, 2, 64, 32, False),
]
ImageCase = tuple[int, int, int, int, int, int, bool]
# runs, batch, side of the small image, channels as stored and as they are, width, whether the small image is plain
IMAGES: list[ImageCase] = [
    (1, 1, 4, 1, 1, 32, True),
    (2, 5, 16, 4, 3, 32, False),
    (3, 4, 8, 1, 1, 64, False),
    (2, 3, 6, 4, 3, 64, True),
]


@pytest.fixture(autouse=True)
def _guarded() -> Iterator[None]:
    with hurried(), guarded():
        yield


def tiled(name: str, cases: Sequence[tuple[int, ...]] = CASES, at: tuple[int, int] = (3, 4)) -> pytest.MarkDecorator:
    """All cases with the tiles chosen for float32, and those for which others were chosen for bfloat16 with these.

    `at` says where in a case the two widths are that launches are chosen by.
    """
    wanted = [("float32", case) for case in cases]
    if DEVICE == "cpu":  # tiles for bfloat16 may not fit a GPU's shared memory with float32
        wanted += [("bfloat16", case) for case in cases if (name, *(case[i] for i in at)) in tuned.HALF]
    return pytest.mark.parametrize(("tiles", "case"), wanted, indirect=["tiles"], ids=str)


@pytest.fixture
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which tiles float32 takes."""
    if request.param == "bfloat16":
        monkeypatch.setattr(tuned, "WHOLE", tuned.HALF)
    return str(request.param)


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Float64 numbers that float32 represents exactly."""
    return (scale * torch.randn(*shape)).double()


def given(values: Tensor) -> Tensor:
    """The same numbers in float32 on the device, between guards."""
    inside, _ = room(tuple(values.shape), device=DEVICE)
    return inside.copy_(values)


def stretch(values: Tensor) -> Tensor:
    """Rows of numbers as a stretch of longer rows of NaN: how a stack keeps the parameters of every run."""
    wide = torch.full((len(values), values.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 24:-32] = values
    return wide[:, 24:-32]


class Gradient:
    """Where a weight gradient goes: a stretch of longer rows whose other elements must stay as they are."""

    def __init__(self, runs: int, size: int) -> None:
        self.wide = torch.full((runs, size + 40), math.nan, device=DEVICE)
        self.out = self.wide[:, 16:-24]

    def found(self) -> Tensor:
        assert bool(self.wide[:, :16].isnan().all())
        assert bool(self.wide[:, -24:].isnan().all())
        return self.out


def in_blocks(x: Tensor, stored: int | None = None) -> Tensor:
    """Images (r, b, c, h, h) blocked, as `kernels.blocked` describes it."""
    r, b, c, h = x.shape[:4]
    channels, g = stored or c, h // 2 + 1
    framed = F.pad(x, (1, 1, 1, 1, 0, channels - c)).view(r, b, channels, g, 2, g, 2)
    return framed.permute(0, 1, 3, 5, 4, 6, 2).reshape(r, b, g, g, 4 * channels)


def laid(x: Tensor, plain: bool) -> Tensor:
    """Images (r, b, c, h, h) plain or blocked."""
    return x.permute(0, 1, 3, 4, 2).contiguous() if plain else in_blocks(x)


def taps(w: Tensor, stored: int | None = None) -> Tensor:
    """4x4 weights of every run, (r, M, C, 4, 4), as flat (dy, dx, py, px, C, M)."""
    r, m, c = w.shape[:3]
    parts = w.view(r, m, c, 2, 2, 2, 2).permute(0, 3, 5, 4, 6, 2, 1)
    return F.pad(parts, (0, 0, 0, (stored or c) - c)).reshape(r, -1)


def near(found: Tensor, wanted: Tensor, tolerance: float = CLOSE) -> None:
    """Check shapes, and that the difference is small against the norm; NaN is never near."""
    assert found.shape == wanted.shape
    error = float((found.double().cpu() - wanted).norm() / wanted.norm())
    assert error <= tolerance, error


def each(function: Callable[..., Tensor], *stacks: Tensor) -> Tensor:
    """A function of one run, run after run."""
    return torch.stack([function(*values) for values in zip(*stacks, strict=True)])


def conv(x: Tensor, w: Tensor) -> Tensor:
    return each(lambda a, b: F.conv2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def transposed(x: Tensor, w: Tensor) -> Tensor:
    return each(lambda a, b: F.conv_transpose2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def weights_of(x: Tensor, g: Tensor, kernel: int) -> Tensor:
    """The gradient of a convolution's weights from its inputs and the gradients of its outputs."""
    shape = (g.shape[2], x.shape[2], kernel, kernel)
    return each(lambda a, b: conv2d_weight(a, shape, b, 2, kernel // 2 - 1), x, g)


def spread(bias: Tensor) -> Tensor:
    """A bias a run, (r, c), against images."""
    return bias[:, None, :, None, None]


def sums(part: Tensor) -> Tensor:
    """The parts of a sum, (r, parts, c), added up."""
    return part.double().sum(1)


# Layouts


@pytest.mark.parametrize(("channels", "stored"), [(1, 1), (3, 4)])
@pytest.mark.parametrize("side", [2, 6, 32])
def test_block_puts_every_pixel_in_its_place(side: int, channels: int, stored: int) -> None:
    """Pixel (y, x) is number (y + 1) % 2, (x + 1) % 2 of block (y + 1) // 2, (x + 1) // 2; all else is zero."""
    x = randn(2, 3, channels, side, side)
    found = block(given(x), stored, torch.float32)
    assert torch.equal(found.double().cpu(), in_blocks(x, stored))
    g = side // 2 + 1
    pixels = found.view(2, 3, g, g, 2, 2, stored).double().cpu()
    for y in range(side):
        for at in range(side):
            place = pixels[:, :, (y + 1) // 2, (at + 1) // 2, (y + 1) % 2, (at + 1) % 2]
            assert torch.equal(place[..., :channels], x[:, :, :, y, at])
            place.zero_()
    assert not pixels.any()


def test_block_takes_images_in_any_memory_layout() -> None:
    """What `vmap` hands over need not be contiguous."""
    x = given(randn(3, 2, 8, 8, 3)).permute(1, 0, 4, 2, 3)
    assert torch.equal(block(x, 4, torch.float32), block(x.contiguous(), 4, torch.float32))


@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("side", [2, 6, 16])
def test_border_is_zeroed_and_nothing_else(side: int, channels: int) -> None:
    """The frame becomes zero, the pixels inside stay as they are."""
    x = randn(2, 3, channels, side, side)
    framed = given(in_blocks(x))
    inside = in_blocks(torch.ones_like(x)) == 1
    framed[~inside.to(DEVICE)] = math.nan
    assert torch.equal(border(framed, side, channels).double().cpu(), in_blocks(x))


# Layers of 4x4


@tiled("down")
def test_down_is_a_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run its own weights and bias; the border of a blocked result is zero."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, M)
    y, _ = down(given(in_blocks(x)), stretch(taps(w)), stretch_like(bias, taps(w)), h, C, M, plain)
    wanted = (conv(x, w) + spread(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    near(y, laid(wanted, plain))
    assert not y.cpu()[laid(torch.ones_like(wanted), plain) == 0].any()


def stretch_like(values: Tensor, other: Tensor) -> Tensor:
    """A stretch of rows as long as those of another: kernels take one distance between runs for weight and bias."""
    wide = torch.full((len(values), other.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 8 : 8 + values.shape[1]] = values
    return wide[:, 8 : 8 + values.shape[1]]


@tiled("down back")
def test_down_is_the_gradient_of_a_transposed_convolution(case: Case, tiles: str) -> None:
    """Masked where the activations are zero (or below), with its sums as the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    x, w = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, M, h, h).relu()
    y, part = down(given(in_blocks(x)), stretch(taps(w)), None, h, C, M, plain, act=given(laid(act, plain)))
    wanted = torch.where(act > 0, conv(x, w), 0.0)
    near(y, laid(wanted, plain))
    assert not y.cpu()[laid(act, plain) == 0].any()
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)  # sums of either sign, against a smaller norm


@tiled("image", IMAGES, (3, 5))
def test_down_from_an_image(case: ImageCase, tiles: str) -> None:
    """The encoder's first layer, of one channel or of three stored as four."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4), randn(runs, M)
    flat = taps(w, stored)
    y, _ = down(given(in_blocks(x, stored)), stretch(flat), stretch_like(bias, flat), h, stored, M, plain)
    near(y, laid((conv(x, w) + spread(bias)).relu(), plain))


def test_down_from_one_image_for_all_runs() -> None:
    """Images may be an expanded view: every run reads the same ones."""
    x, w, bias = randn(1, 3, 3, 16, 16), randn(2, 32, 3, 4, 4), randn(2, 32)
    flat, shared = taps(w, 4), given(in_blocks(x, 4)).expand(2, -1, -1, -1, -1)
    y, _ = down(shared, stretch(flat), stretch_like(bias, flat), 8, 4, 32, False)
    near(y, laid((conv(x.expand(2, -1, -1, -1, -1), w) + spread(bias)).relu(), False))


@tiled("up")
def test_up_is_a_transposed_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run its own weights and bias; the border of the result is zero in spite of the bias."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, C)
    y, _ = up(given(laid(x, plain)), stretch(taps(w)), stretch_like(bias, taps(w)), h, C, M, plain)
    wanted = (transposed(x, w) + spread(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    near(y, in_blocks(wanted))
    assert not y.cpu()[in_blocks(torch.ones_like(wanted)) == 0].any()


@tiled("up back")
def test_up_is_the_gradient_of_a_convolution(case: Case, tiles: str) -> None:
    """Masked where the activations are zero, with its sums as the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = up(given(laid(g, plain)), stretch(taps(w)), None, h, C, M, plain, act=given(in_blocks(act)))
    wanted = torch.where(act > 0, transposed(g, w), 0.0)
    near(y, in_blocks(wanted))
    assert not y.cpu()[in_blocks(act) == 0].any()
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


@tiled("weight")
def test_weight_gradient(case: Case, tiles: str) -> None:
    """Of a convolution and of the transposed one alike: large images against small ones, into a stretch of rows."""
    runs, batch, h, C, M, plain = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * C * M)
    weight_gradient(given(in_blocks(x)), given(laid(g, plain)), gradient.out, h, C, M, plain)
    near(gradient.found(), taps(weights_of(x, g, 4)))


# Layers at the image


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_image_is_a_transposed_convolution(case: ImageCase, biased: bool) -> None:
    """The decoder's output; without a bias, the gradient by the encoder's input. No ReLU, no padded channel."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=0.1), randn(runs, channels)
    flat = taps(w, stored)
    added = stretch_like(F.pad(bias, (0, stored - channels)), flat) if biased else None
    y = image(given(laid(x, plain)), stretch(flat), added, stored, channels, h, plain)
    near(y, transposed(x, w) + (spread(bias) if biased else 0))


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize(("kind", "scale"), [(BERNOULLI, 0.1), (BERNOULLI, 8.0), (GAUSSIAN, 0.1)])
def test_image_nll(case: ImageCase, kind: int, scale: float) -> None:
    """The negative log-likelihood of every sample, its slopes by the output and their sums, logits of hundreds too."""
    runs, batch, h, stored, channels, M, plain = case
    x, w = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=scale)
    bias, target = randn(runs, channels), torch.rand(runs, batch, channels, 2 * h, 2 * h).double()
    flat, shifts = taps(w, stored), F.pad(bias, (0, stored - channels))
    loss, slopes, totals = image_nll(
        given(laid(x, plain)), stretch(flat), stretch_like(shifts, flat), given(target), stored, plain, kind
    )
    output = (transposed(x, w) + spread(bias)).requires_grad_()
    losses = {
        BERNOULLI: lambda: F.binary_cross_entropy_with_logits(output, target, reduction="none"),
        GAUSSIAN: lambda: 0.5 * (output - target).square(),
    }
    wanted = losses[kind]().sum((2, 3, 4))
    (slope,) = torch.autograd.grad(wanted.sum(), output)
    near(loss, wanted.detach())
    near(slopes, in_blocks(slope, stored))
    assert not slopes.cpu()[in_blocks(torch.ones_like(slope), stored) == 0].any()
    assert totals.shape == (runs, batch, 4, stored)
    near(totals.double().sum(2), F.pad(slope.sum((3, 4)), (0, stored - channels)), 10 * CLOSE)


@tiled("image weight", IMAGES, (3, 5))
def test_image_weight_gradient_of_an_encoder(case: ImageCase, tiles: str) -> None:
    """Images against gradients of the first layer's outputs; padded channels get zero."""
    runs, batch, h, stored, channels, M, plain = case
    x, g = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * stored * M)
    image_weight_gradient(given(in_blocks(x, stored)), given(laid(g, plain)), gradient.out, h, stored, plain)
    near(gradient.found(), taps(weights_of(x, g, 4), stored))


@tiled("image back", IMAGES, (3, 5))
def test_image_weight_gradient_of_a_decoder(case: ImageCase, tiles: str) -> None:
    """Slopes times a number a sample: the weights' gradient, the masked one of the activations below, its sums."""
    runs, batch, h, stored, channels, M, plain = case
    slope, w = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4, scale=0.1)
    act, scale = randn(runs, batch, M, h, h).relu(), randn(runs, batch)
    gradient, below = Gradient(runs, 16 * stored * M), given(torch.full_like(laid(act, plain), math.nan))
    if not plain:
        border(below, h, M)
    part = image_weight_gradient(
        given(in_blocks(slope, stored)), given(laid(act, plain)), gradient.out, h, stored, plain,
        stretch(taps(w, stored)), given(scale), below,
    )  # fmt: skip
    scaled = slope * scale[..., None, None, None]
    wanted = torch.where(act > 0, conv(scaled, w), 0.0)
    near(gradient.found(), taps(weights_of(scaled, act, 4), stored))
    near(below, laid(wanted, plain))
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


# Layers of 2x2

TWO = [(1, 1, 4, 32, 64), (3, 5, 4, 64, 64), (2, 3, 8, 32, 32), (2, 4, 6, 64, 32)]  # runs, batch, side, channels


def pairs(w: Tensor) -> Tensor:
    """2x2 weights of every run, (r, M, C, 2, 2), as flat (py, px, C, M)."""
    return w.permute(0, 3, 4, 2, 1).reshape(len(w), -1)


@tiled("two", TWO)
def test_two_is_a_convolution_with_relu(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Between plain images, every run its own weights and bias."""
    runs, batch, h, C, M = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 2, 2, scale=0.2), randn(runs, M)
    y = two(given(laid(x, True)), stretch(pairs(w)), stretch_like(bias, pairs(w)), h, C, M)
    near(y, laid((conv(x, w) + spread(bias)).relu(), True))


@tiled("two back", TWO)
def test_two_back_is_its_gradient(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Masked where the activations are zero, with its sums as the gradient of the bias."""
    runs, batch, h, C, M = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 2, 2)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = two_back(given(laid(g, True)), stretch(pairs(w)), given(laid(act, True)), h, C, M)
    wanted = torch.where(act > 0, transposed(g, w), 0.0)
    near(y, laid(wanted, True))
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


@tiled("two weight", TWO)
def test_two_weight_is_the_gradient_of_its_weights(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Into a stretch of rows."""
    runs, batch, h, C, M = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 4 * C * M)
    two_weight(given(laid(x, True)), given(laid(g, True)), gradient.out, h, C, M)
    near(gradient.found(), pairs(weights_of(x, g, 2)))


# Adam


@pytest.mark.parametrize("begun", [0, 1, 4_999, 299_997])
@pytest.mark.parametrize("constants", [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-8), (0.0, 0.99, 1e-3)], ids=str)
def test_adam_equals_the_tensor_version(constants: tuple[float, float, float], begun: int) -> None:
    """Three steps from any on; rates of 0 move no weight, a dead run keeps every bit, so do the neighbours in a row."""
    settings, runs, size, wide = Adam(0.1, *constants), 4, 2500, 2600
    rows, moment1 = torch.randn(2, runs, wide, device=DEVICE).unbind()
    moment2 = torch.rand(runs, wide, device=DEVICE)
    if begun == 0:
        moment1.zero_()
        moment2.zero_()
    copy = torch.randn(runs, wide, device=DEVICE)
    before = [t.clone() for t in (rows, moment1, moment2, copy)]
    after = [t.clone().cpu() for t in before[:3]]
    rate = torch.tensor([0.1, 0.0, 0.3, 0.5], device=DEVICE)
    alive = torch.tensor([True, True, False, True], device=DEVICE)
    part = slice(40, 40 + size)
    for t in range(begun + 1, begun + 4):
        grad = torch.randn(runs, size, device=DEVICE)
        grad[:, :7] = 0
        views = [tensor[:, part] for tensor in (rows, moment1, moment2, copy)]
        adam(*views, grad, rate, alive, torch.tensor(t, device=DEVICE), settings)
        row, first, second = (tensor[:, part] for tensor in after)
        adam_step(row, grad.cpu(), first, second, rate.cpu()[:, None], t, settings)
    live = alive.cpu()
    for ours, wanted, start in zip((rows, moment1, moment2), after, before, strict=False):
        # Steps are up to 1.5 long, and the few float32 roundings of each are 1e-7 of that.
        torch.testing.assert_close(ours.cpu()[live], wanted[live], rtol=3e-6, atol=2e-6)
        assert torch.equal(ours[2], start[2])
        assert torch.equal(ours[:, :40], start[:, :40])
        assert torch.equal(ours[:, 40 + size :], start[:, 40 + size :])
    assert torch.equal(rows[1], before[0][1])
    assert not torch.equal(moment1[1], before[1][1])
    assert torch.equal(copy[:, part][alive], rows[:, part][alive])
    assert torch.equal(copy[2], before[3][2])
    assert torch.equal(copy[:, 40 + size :], before[3][:, 40 + size :])


def test_adam_rounds_the_copy_that_kernels_read() -> None:
    """The copy is the new row in its own precision; the row keeps float32."""
    rows, moment1, moment2 = torch.zeros(3, 2, 100, device=DEVICE).unbind()
    rows += torch.randn(2, 100, device=DEVICE)
    copy, start = rows.bfloat16(), rows.clone()
    grad, rate = torch.randn(2, 100, device=DEVICE), torch.tensor([0.1, 0.2], device=DEVICE)
    alive, step = torch.ones(2, dtype=torch.bool, device=DEVICE), torch.tensor(1, device=DEVICE)
    adam(rows, moment1, moment2, copy, grad, rate, alive, step, Adam(0.1))
    torch.testing.assert_close(rows, start - rate[:, None] * grad.sign(), rtol=0, atol=1e-5)  # but for epsilon
    # Rounding to nearest or, in the interpreter, towards zero: within one unit in the last of 8 bits.
    torch.testing.assert_close(copy.float(), rows, rtol=2**-7, atol=0)
    assert not torch.equal(copy.float(), rows)


# Noise

KEYS = [0, 1, -1, 2**63 - 1, -(2**63), 0x1234567890ABCDEF]
SHAPES = [(1,), (7, 3), (1024,), (3, 700)]


def starts(draw: int) -> int:
    return noises._signed(draw * GAMMA)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_draws_are_those_of_the_tensor_version(shape: tuple[int, ...]) -> None:
    """Words and uniform numbers bit by bit, normal ones to rounding, for every key and draw."""
    keys = torch.tensor(KEYS)
    for draw in (1, 2, 1000):
        wanted = [Noise(key, draw - 1) for key in keys]
        words = drawn.Draw.apply(keys.to(DEVICE), starts(draw), shape, drawn.WORDS)
        assert torch.equal(words.cpu(), torch.stack([noise._words(shape) for noise in wanted]))
        uniform = drawn.Draw.apply(keys.to(DEVICE), starts(draw), shape, drawn.UNIFORM)
        assert torch.equal(uniform.cpu(), torch.stack([Noise(key, draw - 1).uniform(*shape) for key in keys]))
        normal = drawn.Draw.apply(keys.to(DEVICE), starts(draw), shape, drawn.NORMAL)
        reference = torch.stack([Noise(key, draw - 1).normal(*shape) for key in keys])
        torch.testing.assert_close(normal.cpu(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 5, 1024)], ids=str)
def test_bytes_are_those_of_the_tensor_version(shape: tuple[int, ...]) -> None:
    """Eight to a word, bit by bit."""
    keys = torch.tensor(KEYS)
    found = drawn.Draw.apply(keys.to(DEVICE), starts(2), shape, drawn.BYTES)
    assert torch.equal(found.cpu(), torch.stack([Noise(key, 1).bytes(*shape) for key in keys]))


def test_draws_under_vmap_are_those_of_each_key() -> None:
    """One level and two, whichever dimension holds the keys."""
    keys = torch.tensor(KEYS).view(2, 3).to(DEVICE)

    def draw(key: Tensor) -> Tensor:
        return drawn.Draw.apply(key, starts(3), (4, 5), drawn.WORDS)

    wanted = torch.stack([torch.stack([Noise(k, 2)._words((4, 5)) for k in row]) for row in keys.cpu()])
    assert torch.equal(vmap(draw)(keys[0]).cpu(), wanted[0])
    assert torch.equal(vmap(vmap(draw))(keys).cpu(), wanted)
    assert torch.equal(vmap(vmap(draw), in_dims=1)(keys).cpu(), wanted.transpose(0, 1))


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_keys_are_those_of_the_tensor_version(stream: int) -> None:
    """For one run, for many with one step, for many with a step each."""
    seeds, steps = torch.tensor(KEYS), torch.tensor([0, 1, 5, 2**40, 300_000, 7])
    start = noises._signed(stream * GAMMA)
    for seed, step in ((seeds[5], steps[4]), (seeds, steps[4]), (seeds, steps)):
        found = drawn.Key.apply(seed.to(DEVICE), step.to(DEVICE), start)
        assert torch.equal(found.cpu(), Noise.of(seed, step, stream).key)


def test_keys_under_vmap_are_those_of_each_pair() -> None:
    """Seeds, steps or both mapped; nested in either order, with as many seeds as steps or not."""
    start = noises._signed(GAMMA)

    def key(seed: Tensor, step: Tensor) -> Tensor:
        return drawn.Key.apply(seed, step, start)

    seeds, steps = torch.tensor(KEYS, device=DEVICE), torch.arange(6, device=DEVICE) ** 9
    table = Noise.of(seeds.cpu()[:, None], steps.cpu(), 1).key
    assert torch.equal(vmap(key, (0, None))(seeds, steps[3]).cpu(), table[:, 3])
    assert torch.equal(vmap(key, (None, 0))(seeds[2], steps).cpu(), table[2])
    assert torch.equal(vmap(key)(seeds, steps).cpu(), table.diagonal())
    for n in (6, 4):
        assert torch.equal(vmap(vmap(key, (None, 0)), (0, None))(seeds, steps[:n]).cpu(), table[:, :n])
        assert torch.equal(vmap(vmap(key, (0, None)), (None, 0))(seeds, steps[:n]).cpu(), table[:, :n].T)


def test_noise_goes_through_kernels_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose draws are mixed gives the same numbers with kernels, and has drawn as often."""

    def sequence(seed: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        noise = Noise.of(seed, step, 1)
        z = noise.normal(5, 2)
        found = (noise.uniform(3), noise.integers(7, 9), noise.bytes(2, 8), noise.shuffle(torch.arange(8.0).view(4, 2)))
        assert noise.draws == 6
        return noise.key, *found, z

    seeds, step = torch.tensor([3, 1, 4]), torch.tensor(20)
    wanted = [vmap(sequence, (0, None))(seeds, step), sequence(seeds[0], step)]
    calls = []
    monkeypatch.setattr(noises, "_kernels", lambda device: calls.append(device) or drawn)
    if DEVICE == "cuda":
        pytest.skip("Noise on a GPU takes these kernels anyway, on the CPU they cannot run")
    found = [vmap(sequence, (0, None))(seeds, step), sequence(seeds[0], step)]
    assert len(calls) == 12
    for ours, theirs in zip(found, wanted, strict=True):
        for a, b in zip(ours[:-1], theirs[:-1], strict=True):
            assert torch.equal(a, b)
        torch.testing.assert_close(ours[-1], theirs[-1], rtol=1e-5, atol=1e-5)


# Images of bits


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 64, 64), (3, 8, 24)], ids=str)
def test_bits_are_unpacked(shape: tuple[int, ...]) -> None:
    """Pixel j of an image is bit j % 8 of its byte j // 8; indices of any shape, mapped or not."""
    table = torch.randint(0, 256, (5, math.prod(shape) // 8), dtype=torch.uint8)
    pixels = ((table[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).float().view(5, *shape)
    index = torch.tensor([[4, 0, 0], [2, 3, 4]])

    def unpack(chosen: Tensor) -> Tensor:
        return Unpack.apply(table.to(DEVICE), chosen, shape)

    assert torch.equal(unpack(index.to(DEVICE)).cpu(), pixels[index])
    assert torch.equal(vmap(unpack)(index.to(DEVICE)).cpu(), pixels[index])
    assert torch.equal(vmap(vmap(unpack), in_dims=1)(index.to(DEVICE)).cpu(), pixels[index.T])


# Launches


@pytest.mark.parametrize(("n", "size"), [(1, 64), (64, 64), (65, 64), (0, 8)])
def test_blocks_cover(n: int, size: int) -> None:
    """As many blocks as needed and no more."""
    count = blocks(n, size)
    assert count * size >= n > (count - 1) * size


def test_power_is_the_next_power_of_two() -> None:
    assert [power(n) for n in (1, 2, 3, 4, 5, 72, 1024, 1025)] == [1, 2, 4, 4, 8, 128, 1024, 2048]


def test_kernels_are_interpreted_only_without_a_gpu() -> None:
    assert interpreted() == (DEVICE == "cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_launch_divides_its_layer(dtype: torch.dtype) -> None:
    """Tiles of channels cover every width of a layer exactly: kernels have no masks there."""
    for C in (32, 64):
        for M in (32, 64):
            for name in ("down", "down back"):
                assert M % tuned.launch(name, C, M, dtype)["BO"] == 0
            for name in ("up", "up back"):
                assert 4 * C % tuned.launch(name, C, M, dtype)["BN"] == 0
            for name, columns in (("weight", 4 * M), ("two weight", M)):
                tile = tuned.launch(name, C, M, dtype)
                assert 4 * C % tile["TM"] == 0
                assert columns % tile["TN"] == 0, (name, C, M)


def test_room_for_blocked_images() -> None:
    """Blocks of 2x2 pixels with a border of one."""
    assert blocked(torch.zeros(2, 3), 8, 4, torch.float32).shape == (2, 3, 5, 5, 16)
