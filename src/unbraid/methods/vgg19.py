"""Features of a VGG-19 whose weights are in a file of the user (Simonyan and Zisserman 2015, arXiv:1409.1556)."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods.network_files import find_network_file

Layers = Literal["123", "345"]
CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34)  # their indices in torchvision's `features`
POOLED = (5, 10, 19, 28)  # the convolutions that follow a max pooling
OUTPUTS: dict[str, tuple[int, ...]] = {"123": (0, 5, 10), "345": (10, 19, 28)}  # the layers of VAE-123 and VAE-345
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the RGB pixels of ImageNet, as torchvision states them
REMEDY = "Download the file again, or pass another one."


class Convolution(NamedTuple):
    """A 3x3 convolution: its number among the layers of the network, its weight and its bias."""

    layer: int
    weight: Float[Tensor, "out in 3 3"]
    bias: Float[Tensor, " out"]


class VGG19(NamedTuple):
    """The first convolutions of a VGG-19, and the mean and the standard deviation of the pixels, of shape (3, 1, 1)."""

    mean: Float[Tensor, "3 1 1"]
    std: Float[Tensor, "3 1 1"]
    convolutions: tuple[Convolution, ...]


def smallest_size(layers: str) -> int:
    """Return the least height and width of an image that the max poolings below the last layer do not shrink to 0.

    >>> smallest_size("123"), smallest_size("345")
    (4, 16)
    """
    return int(2 ** sum(index <= OUTPUTS[layers][-1] for index in POOLED))


def compute_vgg19(x: Float[Tensor, "b c h w"], network: VGG19, layers: str) -> list[Float[Tensor, "b ..."]]:
    """Return the outputs of the layers, after their ReLU.

    Args:
        x: Images with one or three channels and pixels in [0, 1]. One channel is repeated three times. The mean of
            ImageNet is subtracted, and the result is divided by the standard deviation.
        network: The network up to the last layer.
        layers: "123" for the first convolutions of the first, second and third block of the network (relu1_1, relu2_1
            and relu3_1), or "345" for those of the third, fourth and fifth block.

    Returns:
        Three tensors.
    """
    h, found = (x - network.mean) / network.std, []  # subtracting three means repeats a single channel
    for index, weight, bias in network.convolutions:
        h = F.max_pool2d(h, 2) if index in POOLED else h
        h = F.conv2d(h, weight, bias, padding=1).relu()
        if index in OUTPUTS[layers]:
            found.append(h)
    return found


def load_vgg19(name: str, layers: str, device: torch.device) -> VGG19:
    """Return the network in the file with a name (see `find_network_file`), on a device. It is kept in memory.

    The file is read in a thread of its own. In the thread of the caller, transformations such as `torch.func.grad` may
    be active, and they would wrap the tensors that are kept.
    """
    return _load(name, layers, str(device))


@functools.lru_cache(maxsize=4)
def _load(name: str, layers: str, device: str) -> VGG19:
    def load() -> VGG19:
        mean, std, convolutions = read_vgg19(find_network_file(name), layers)
        moved = (Convolution(index, weight.to(device), bias.to(device)) for index, weight, bias in convolutions)
        return VGG19(mean.to(device), std.to(device), tuple(moved))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(load).result()


def read_vgg19(path: Path, layers: str) -> VGG19:
    """Read a VGG-19 up to the last of some layers.

    The file has the weights of torchvision's `vgg19`, ``features.N.weight`` and ``features.N.bias``, written by
    `torch.save` or in the safetensors format. The numbers of channels are those of the tensors in the file.

    Args:
        path: A file .pth, .pt or .safetensors. No code in it is run.
        layers: "123" or "345" (see `compute_vgg19`).

    Returns:
        The network, in float32.

    Raises:
        UserError: If the file is damaged, or does not have the tensors of a VGG-19.
    """
    needed = [index for index in CONVOLUTIONS if index <= OUTPUTS[layers][-1]]
    try:
        tensors = _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_saved(path)
        _check_is_vgg19(tensors)
        found, channels = [], 3
        for index in needed:
            found.append(_as_convolution(tensors, index, channels))
            channels = len(found[-1].bias)
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        return VGG19(mean, std, tuple(found))
    except UserError as error:
        raise UserError(
            f"{path} must have the weights of a VGG-19 in the form of torchvision. {error} {REMEDY}"
        ) from None
    except Exception as error:  # for a damaged file, torch.load raises errors of many types
        raise UserError(
            f"{path} must be a complete file of tensors, written by torch.save or in the safetensors format. PyTorch "
            f"cannot read it. {REMEDY}"
        ) from error


def _read_saved(path: Path) -> Any:
    """Read a file that `torch.save` wrote. Objects other than tensors and plain values are rejected, not created."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the old format of the published file
        return torch.load(path, map_location="cpu", weights_only=True)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of the convolutions from a safetensors file."""
    with safetensors.safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys() if name.startswith("features.")}  # noqa: SIM118


def _check_is_vgg19(tensors: Any) -> None:
    """Raise a UserError if a file has no dictionary of tensors, or the layers of another network, such as VGG-16."""
    if not isinstance(tensors, Mapping):
        raise UserError(f"It must be a dictionary of tensors. Got {type(tensors).__name__} instead.")
    matches = (re.fullmatch(r"features\.(\d+)\.weight", str(name)) for name in tensors)
    found = sorted(int(match[1]) for match in matches if match)
    if tuple(found) != CONVOLUTIONS[: len(found)] or not found:
        raise UserError(f"Its convolutions must be the layers {list(CONVOLUTIONS)}. Got {found} instead.")


def _as_convolution(tensors: Mapping[str, Any], index: int, channels: int) -> Convolution:
    """Return a convolution with the given number of input channels, or raise a UserError if its tensors do not fit."""
    weight, bias = (_get_tensor(tensors, f"features.{index}.{part}") for part in ("weight", "bias"))
    if weight.ndim != 4 or weight.shape[1:] != (channels, 3, 3) or bias.shape != weight.shape[:1] or not len(bias):
        raise UserError(
            f"features.{index}.weight must have the shape (n, {channels}, 3, 3), and features.{index}.bias the shape "
            f"(n). Got {tuple(weight.shape)} and {tuple(bias.shape)} instead."
        )
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise UserError(f"The values of features.{index} must be finite. Got NaN or infinity instead.")
    return Convolution(index, weight, bias)


def _get_tensor(tensors: Mapping[str, Any], name: str) -> Tensor:
    """Return a tensor in float32, or raise a UserError if no tensor of floating-point numbers has this name."""
    value = tensors.get(name)
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided):
        raise UserError(f"It must have a tensor {name} of floating-point numbers.")
    return value.detach().to(torch.float32).contiguous()
