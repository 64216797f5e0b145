"""Decoders that together use every operator that a page can run, and decoders that a page cannot run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unbraid.nets.vae import VAENet

LATENTS = 5
Function = Callable[[Tensor], Any]


class Apply(nn.Module):
    """A dense layer to a tensor of a given shape, then a function of this tensor, with layers that it may use."""

    def __init__(self, function: Callable[..., Tensor], shape: tuple[int, ...] = (2, 3, 4), *layers: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(LATENTS, torch.Size(shape).numel())
        self.function, self.shape, self.layers = function, shape, nn.ModuleList(layers)

    def forward(self, z: Tensor) -> Tensor:
        result: Tensor = self.function(2 * self.first(z).unflatten(1, self.shape), *self.layers)
        return result


class Residual(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.path(x)
        return x + y


def after(*layers: nn.Module, shape: tuple[int, ...] = (4, 6, 5)) -> Apply:
    """A dense layer to an image, then these layers."""
    return Apply(nn.Sequential(*layers), shape)


def positive(function: Function) -> Function:
    return lambda x: function(x.abs() + 0.1)


def small(function: Function) -> Function:
    """The function of values between -1 and 1."""
    return lambda x: function(x.sigmoid() * 1.8 - 0.9)


FUNCTIONS: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in [
            "abs",
            "asinh",
            "atan",
            "ceil",
            "cos",
            "cosh",
            "erf",
            "exp",
            "expm1",
            "floor",
            "neg",
            "relu",
            "round",
            "sigmoid",
            "sign",
            "sin",
            "sinh",
            "tanh",
            "trunc",
        ]
    },
    **{
        name: positive(getattr(torch, name))
        for name in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]
    },
    **{name: small(getattr(torch, name)) for name in ["acos", "asin", "atanh", "tan"]},
    "acosh": lambda x: torch.acosh(1.1 + x.abs()),
    **{
        f"activation {f.__name__}": f
        for f in (
            F.elu,
            F.selu,
            F.celu,
            F.gelu,
            F.silu,
            F.mish,
            F.softplus,
            F.softsign,
            F.leaky_relu,
            F.hardswish,
            F.hardsigmoid,
            F.hardtanh,
            F.relu6,
            F.logsigmoid,
            F.tanhshrink,
            F.hardshrink,
            F.softshrink,
        )
    },
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus with settings": lambda x: F.softplus(x, 2.0, 3.0),
    "threshold": lambda x: F.threshold(x, 0.2, -1.0),
    "glu": lambda x: F.glu(x, 3),
    "clamp": lambda x: x.clamp(-0.5) + x.clamp(max=0.7) + x.clamp(-0.1, 0.2),
    "arithmetic": lambda x: (
        torch.sub(torch.add(x, x[:, :1], alpha=3), 2, alpha=0.5) / (2 + x[..., :1].square()) - 1 / (3 + x * x)
    ),
    "powers": lambda x: x**3 + x.abs() ** 0.5 + 2.0**x + (x.abs() + 0.1) ** x,
    "remainders": lambda x: (
        torch.remainder(x, 0.7) + torch.fmod(x, -0.3) + x // 0.25 + torch.div(x, 0.3, rounding_mode="trunc")
    ),
    "extrema": lambda x: torch.maximum(x, x.flip(3)) - torch.minimum(x, x[:, :, :1]) + torch.atan2(x, x.flip(2)),
    "comparisons": lambda x: sum(
        (f(x, 0.3).float() * k for k, f in enumerate((torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge), 1)),
        x,
    ),
    "exclusive": lambda x: (
        ((x > 0) ^ (x < 0.5)).float() + (x > 0).any(3, keepdim=True) - (x > -1).all(2, keepdim=True).float()
    ),
    "logic": lambda x: (
        torch.where((x > 0).logical_and(x < 1) | ~(x > -1), x, x.round().to(torch.int32) * 0.5)
        + torch.logical_or(x > 1, x < 0)
        + ((x > 0) & (x < 0.5)).float()
        + x.bool()
        + torch.full_like(x, 0.25)
    ),
    "copies": lambda x: x.clone().double().to(torch.float32).detach(),
}

REDUCTIONS: dict[str, Function] = {
    "sums": lambda x: x.sum(2) + x.mean((2,)) + x.prod(2) + x.amax(2) + x.amin(2) + x.max(2).values + x.min(2).values,
    "reductions to one number": lambda x: x * x.sum() + x.mean() + x.amax() - x.max() * x.min() + x.prod(),
    "variances": lambda x: x.var(2) + x.std((2,), correction=0) + torch.var_mean(x, 2)[1] + x.norm(dim=2),
    "softmax": lambda x: x.softmax(1) + x.log_softmax(3) + x.logsumexp(2, keepdim=True),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cumsum": lambda x: x.cumsum(2),
}

SHAPES: dict[str, Function] = {
    "views": lambda x: x.transpose(1, 3).reshape(1, 3, 8).permute(0, 2, 1)[:, 1:7:2, 1].unsqueeze(1).squeeze(1),
    "splits": lambda x: torch.cat(
        [x.split([1, 2], 2)[1], x.chunk(3, 2)[0], torch.stack(x.unbind(2), 2), torch.ones(1, 2, 1, 4)], 2
    ),
    "diagonal": lambda x: torch.diagonal(x, 0, 2, 3) + x.unfold(3, 2, 1).sum((2, 4)),
    "t": lambda x: x.flatten(0, 2).t().unsqueeze(0),
    "expand": lambda x: x[:, :, :1].expand(-1, -1, 5, -1) * torch.linspace(-1, 1, 5)[:, None],
    "orders": lambda x: (
        x.flip((1, 3)).roll((1, -2), (2, 3)) + x[:, [1, 0]] + x.index_select(3, torch.tensor([3, 1, 0, 0]))
    ),
    "assignments": lambda x: assigned(x),
    "repeats": lambda x: (
        torch.cat([x.repeat(1, 2, 1, 3), x.tile(2, 1, 3)], 2) + x.repeat_interleave(2, 1).repeat(1, 1, 2, 3)
    ),
    "coordinates": lambda x: torch.cat(
        [
            x[:, :, :1, :1].expand(1, 2, 6, 7),
            torch.stack(torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 7), indexing="ij"))[None],
        ],
        1,
    ),
    "pixel shuffle": lambda x: (
        F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2) + F.pixel_unshuffle(x.reshape(1, 1, 4, 6), 2)[:, 1:2, :1, :1]
    ),
    "matrices": lambda x: (
        x @ x.mT + (x[0] @ x[0].mT)[None] + F.linear(x[0, 0], x[0, 1]) + torch.einsum("bchw,bcvw->bhv", x, x)[:, None]
    ),
    "constant matrices": lambda x: (
        x @ torch.eye(4)[:, :3]
        + torch.addmm(x[0, 0, :, :3], x[0, 1], torch.ones(4, 3), beta=0.5, alpha=2)
        + torch.addmm(torch.ones(3), x[0, 0], x[0, 1].T, beta=2)
        + torch.ones(3, 3) @ x[..., :3]
    ),
}


def interpolation(**settings: Any) -> Function:
    return lambda x: F.interpolate(x, **settings)


def assigned(x: Tensor) -> Tensor:
    """A tensor of zeros, parts of which are set in place."""
    y = torch.zeros(1, 2, 5, 6)
    y[:, :, 1:4, 2:] = x
    y[:, :, :, 1:] += 0.5
    return y


RESIZING: dict[str, Function] = {
    "nearest": interpolation(scale_factor=2),
    "nearest of odd size": interpolation(size=(5, 7)),
    "nearest-exact": interpolation(size=(5, 7), mode="nearest-exact"),
    "bilinear": interpolation(scale_factor=2, mode="bilinear"),
    "bilinear with corners": interpolation(size=(7, 6), mode="bilinear", align_corners=True),
    "bilinear smaller": interpolation(size=(2, 3), mode="bilinear", antialias=True),
    "bicubic": interpolation(scale_factor=1.5, mode="bicubic"),
    "bicubic smaller": interpolation(size=(2, 3), mode="bicubic", antialias=True),
    "area": interpolation(size=(2, 3), mode="area"),
    "1d": lambda x: torch.cat(
        [F.interpolate(x[0], scale_factor=2, mode=m) for m in ("nearest", "linear", "nearest-exact")], 1
    )[None],
    "average pool": lambda x: (
        F.avg_pool2d(x, 2, 1, 1, count_include_pad=False) + F.avg_pool2d(x, 2, 1, 1, divisor_override=3)
    ),
    "average pool 1d": lambda x: (F.avg_pool1d(x[0], 2, 1) + F.adaptive_avg_pool1d(x[0], 4))[None],
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (2, 3)) + F.adaptive_avg_pool2d(x, 1),
    "max pool": lambda x: (
        F.max_pool2d(x, 2, 1, 1) + F.max_pool2d(x, (2, 3), (1, 1), (1, 1), (1, 1), ceil_mode=True)[:, :, :, :1]
    ),
    "max pool 1d": lambda x: F.max_pool1d(x[0], 3, 1, 1, 2)[None],
    "max pool ceil": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
    "zero padding": lambda x: F.pad(x, (1, 2, -1, 1, 0, 1)),
    "other padding": lambda x: (
        F.pad(x, (1, 2, 2, 1), mode="reflect")
        + F.pad(x, (1, 2, 2, 1), mode="replicate")
        + F.pad(x, (1, 2, 2, 1), mode="circular")
    ),
    "padding 1d": lambda x: (F.pad(x[0], (2, 1), mode="reflect") + F.pad(x[0], (2, 1), mode="replicate"))[None],
}

LAYERS: dict[str, nn.Module] = {
    "batch norm": after(nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)),
    "batch norm 1d": Apply(lambda x, norm: norm(x.flatten(1)), (2, 3, 4), nn.BatchNorm1d(24)),
    "group norm": after(nn.GroupNorm(2, 4), nn.GroupNorm(1, 4, affine=False)),
    "layer norm": after(nn.LayerNorm(5), nn.LayerNorm((4, 6, 5), elementwise_affine=False)),
    "rms norm": after(nn.RMSNorm(5)),
    "instance norm": after(nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4)),
    "local response norm": after(nn.LocalResponseNorm(2)),
    "prelu": after(nn.PReLU(4), nn.Dropout(), nn.Identity()),
    "convolutions": after(
        nn.Conv2d(4, 6, 3, 1, 1), nn.ReLU(), nn.Conv2d(6, 5, (3, 1)), nn.Conv2d(5, 5, (2, 3), (2, 1), (1, 1))
    ),
    "a coarse convolution": after(nn.Conv2d(4, 4, 3, (4, 3), 1)),
    "dilation": after(nn.Conv2d(4, 3, 3, 1, 2, 2), nn.ConvTranspose2d(3, 2, 3, 2, 1, 1, 1, True, 2)),
    "groups": after(
        nn.Conv2d(4, 8, 3, 1, 1, groups=2), nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 3, 2, groups=4)
    ),
    "same and other padding": after(
        nn.Conv2d(4, 3, 5, padding="same"), nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular")
    ),
    "sequences": Apply(lambda x, a, b: b(a(x)), (4, 6), nn.Conv1d(4, 5, 3, 2, 1), nn.ConvTranspose1d(5, 2, 4, 2, 1)),
    "thirds": after(nn.ConvTranspose2d(4, 5, (4, 5), 3, (0, 1), (0, 1))),
    "holes": after(nn.ConvTranspose2d(4, 2, 1, 2, 0, 1)),
    "cropped": after(nn.ConvTranspose2d(4, 1, 1, 1, (1, 0))),
    "several images": Apply(
        lambda x, layer: layer(x.reshape(2, 2, 3, 5)).reshape(1, 6, 3, 5), (4, 3, 5), nn.Conv2d(2, 3, 3, padding=1)
    ),
    "dense layers on the last axis": after(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6, bias=False)),
    "weight norm": after(nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 3, 3))),
    "residual blocks": after(
        Residual(4),
        nn.Upsample(scale_factor=2),
        Residual(4),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.GroupNorm(2, 4),
        nn.GELU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.PixelShuffle(2),
    ),
    "attention": Apply(
        lambda x, layer: layer(x, x, x, need_weights=False)[0], (6, 8), nn.MultiheadAttention(8, 2, batch_first=True)
    ),
    "transformer": Apply(lambda x, layer: layer(x), (6, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
    "recurrent": Apply(lambda x, layer: layer(x)[0], (6, 8), nn.GRU(8, 4, batch_first=True)),
    "in place": Apply(lambda x: x.mul_(2).add_(1).relu_(), (6, 8)),
    "shared weights": Apply(lambda x, layer: layer(layer(x)), (6, 8), nn.Linear(8, 8)),
}


class Together(nn.Module):
    """Several decoders of the same latents, whose outputs are flattened and joined, so that they are traced once."""

    def __init__(self, decoders: dict[str, nn.Module]) -> None:
        super().__init__()
        self.names, self.decoders = list(decoders), nn.ModuleList(decoders.values())

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([decoder(z).flatten().unsqueeze(0) for decoder in self.decoders], 1)

    def sizes(self) -> list[int]:
        """The number of outputs of each decoder."""
        return [decoder(torch.zeros(1, LATENTS)).numel() for decoder in self.decoders]


def _decoders() -> dict[str, Together]:
    torch.manual_seed(0)
    small, large = (2, 3, 4), (2, 4, 5)
    return {
        "functions": Together({name: Apply(function, small) for name, function in FUNCTIONS.items()}),
        "reductions": Together({name: Apply(function, small) for name, function in REDUCTIONS.items()}),
        "shapes": Together({name: Apply(function, small) for name, function in SHAPES.items()}),
        "resizing": Together({name: Apply(function, large) for name, function in RESIZING.items()}),
        "layers": Together(LAYERS),
    }


DECODERS = _decoders()


def decoder_net(module: nn.Module) -> tuple[VAENet, tuple[int, ...]]:
    """A network with this decoder, and the shape of its output.

    Its weights are rounded to half precision, so that only the rounding of float32 remains as an error. The statistics
    of batch normalisation are random.
    """
    net = VAENet(nn.Identity(), module, "gaussian").eval().requires_grad_(False)
    random = torch.Generator().manual_seed(0)
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        if name.endswith(("running_mean", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=random) + 0.5)
        if tensor.is_floating_point():
            tensor.copy_(tensor.half())
    return net, tuple(net.decode(torch.zeros(1, LATENTS)).shape[1:])


def largest_errors(module: Together, codes: Tensor, outputs: list[list[float]]) -> dict[str, float]:
    """The largest error of each decoder, as a fraction of the tolerance 1e-6 + 1e-5 |y| for an output y."""
    expected = torch.cat([module(code[None]) for code in codes])
    errors = (torch.tensor(outputs) - expected).abs() / (1e-6 + 1e-5 * expected.abs())
    assert (expected.std(0) > 0).float().mean() > 0.8, "outputs that do not depend on the latents test nothing"
    return {name: float(part.amax()) for name, part in zip(module.names, errors.split(module.sizes(), 1), strict=True)}


UNSUPPORTED: dict[str, tuple[nn.Module, str]] = {
    "a computed index": (Apply(lambda x: x.gather(3, x.argsort(3))), "sort"),
    "an index of the largest": (Apply(lambda x: x.max(3).indices.float()), "max if output 1 is used"),
    "grid sample": (Apply(lambda x: F.grid_sample(x, x.reshape(1, 3, 4, 2), align_corners=False)), "grid_sampler_2d"),
    "convolution in three dimensions": (
        Apply(lambda x, layer: layer(x), (2, 3, 4, 4), nn.Conv3d(2, 2, 2)),
        "convolution in three dimensions",
    ),
    "computed weights": (Apply(lambda x: F.conv2d(x, x.reshape(3, 2, 2, 2))), "convolution with computed weights"),
    "random numbers": (Apply(lambda x: x + torch.randn_like(x)), "randn"),
    "padding with ones": (Apply(lambda x: F.pad(x, (1, 1), value=1.0)), "constant_pad_nd with these arguments"),
    "two indices": (Apply(lambda x: x[:, [0, 1], [2, 1]]), "index with these arguments"),
}
