"""Images with a small fixed change for each example: learned patterns that mislead VAEs, or noise of equal strength.

Reference: Zietlow, Rolinek, Martius (2021), arXiv:2102.06822.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Int8, Int16
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.manipulation_files import check_file, find_file, read_manipulation
from unbraid.data.rendered.painted import ExampleNoise
from unbraid.errors import UserError
from unbraid.noise import Noise

PATTERN_LEVELS = 127  # levels of a pattern's pixels on either side of 0
FIRST_NOISE_DRAW = 1 << 20  # far beyond the draws of an example's noise that choose the colours of painted data
CLIP = ":clip"  # suffix of the option 'noise'


def reflect(y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    r"""Reflect changed pixels at 0 and 1, so that they lie in [0, 1].

    .. math:: y - 2 \mathrm{relu}(y - 1) + 2 \mathrm{relu}(-y)

    This holds for y in [-1, 2]. The reference writes the unchanged image on the right-hand side, but means the changed
    one.
    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1.

    >>> reflect(torch.tensor([1.1, -0.1, 0.5])).tolist()
    [0.8999999761581421, 0.10000000149011612, 0.5]
    """
    return y - 2 * torch.relu(y - 1) + 2 * torch.relu(-y)


class ChangedImages(FactorData):
    """The images of a base dataset, each with a fixed change. Factors, grid and sampling are those of the base."""

    def __init__(self, base: FactorData, name: str) -> None:
        if len(base.shape) != 3:
            raise UserError(
                f"The options 'modified' and 'noise' need images. {base.name} has examples of shape {base.shape}. "
                "Choose a dataset of images."
            )
        super().__init__(name, base.names, base.sizes, base.shape, base.table)
        self.base, self.gridded, self.categorical, self.sampler = base, base.gridded, base.categorical, base.sampler
        self.values: Any = getattr(base, "values", None)

    @property
    def fingerprint(self) -> str | None:
        """Identify the content of the images where the name does not, or None."""
        fingerprint: str | None = getattr(self.base, "fingerprint", None)
        return fingerprint

    def __len__(self) -> int:
        return len(self.base)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """Return what is added to the images at `index`, before they are brought back into [0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} must define change(index).")

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return the changed images at `index`, with pixels in [0, 1]."""
        return self._to_unit_range(self.base.batch(index, noise) + self.change(index))

    def _to_unit_range(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Bring changed pixels back into [0, 1]."""
        return reflect(y)

    def _examples(self, index: Tensor) -> Tensor:
        return self.batch(index).mul(255).round().byte()

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return self.base._draw_uniform(noise, n)

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return the factors of the examples at `index`."""
        return self.base.factors_at(index)

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Return the index of the examples with these factors."""
        return self.base.index_of(factors)

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ChangedImages)
        moved.base = self.base.to(device)
        return moved


class ManipulatedImages(ChangedImages):
    """Images x' = x + eps m(w), where m(w) is one of a table of patterns.

    Example i has the pattern `patterns[which[i]]`, in units of 1 / `PATTERN_LEVELS`. `facts` is the metadata of the
    file.
    """

    def __init__(
        self,
        base: FactorData,
        name: str,
        patterns: Int8[Tensor, "p c h w"],
        which: Int16[Tensor, " n"],
        facts: Mapping[str, Any],
    ) -> None:
        super().__init__(base, name)
        self.patterns, self.which = patterns.to(base.device), which.to(base.device)
        self.facts, self.eps, self.digest = facts, float(facts["eps"]), ""

    @property
    def fingerprint(self) -> str | None:
        """The digest of the file of patterns, after the fingerprint of the unchanged data if there is one."""
        base = super().fingerprint
        return f"{base}+{self.digest}" if base else self.digest

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """Return eps times the patterns of the examples at `index`."""
        return self.patterns[self.which[index].long()].float() * (self.eps / PATTERN_LEVELS)

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data, including the patterns, on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ManipulatedImages)
        moved.patterns, moved.which = self.patterns.to(device), self.which.to(device)
        return moved


class NoisyImages(ChangedImages):
    """The control: uniform noise on [-eps, eps] in every pixel and channel, always the same for the same example.

    Pixels outside [0, 1] are reflected, as those of `ManipulatedImages` are, or clipped if `clip`. The paper does not
    say which. With clipping, half of the black pixels remain unchanged.
    """

    def __init__(self, base: FactorData, name: str, eps: float, clip: bool = False) -> None:
        super().__init__(base, name)
        self.eps, self.clip = eps, clip

    def _to_unit_range(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Bring changed pixels back into [0, 1]."""
        return y.clamp(0, 1) if self.clip else super()._to_unit_range(y)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """Return noise that takes 256 equally spaced values from -eps to eps."""
        noise = ExampleNoise(index)
        noise.draws = FIRST_NOISE_DRAW
        return (noise.bytes(len(index), *self.shape).float() - 127.5) * (self.eps / 127.5)


def add_fixed_noise(data: FactorData, eps: float, clip: bool = False) -> NoisyImages:
    """Return the data with fixed uniform noise on [-eps, eps] added to every image.

    Args:
        data: A dataset of images.
        eps: Strength of the noise, in (0, 1].
        clip: Whether to clip pixels at 0 and 1 instead of reflecting them.

    Returns:
        A dataset with the option ``noise=`` in its name.

    Raises:
        UserError: If `eps` is out of range, or if the data are not images.
    """
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise UserError(f"The strength of the noise must be > 0 and <= 1. Got {eps:g} instead.")
    return NoisyImages(data, _add_option(data.name, f"noise={eps:g}{CLIP * clip}"), eps, clip)


def apply_manipulation(data: FactorData, file: str | Path, root: str | Path | None = None) -> ManipulatedImages:
    """Return the data with the manipulation in `file`, as `unbraid.modify` writes it.

    Args:
        data: The dataset of images for which the manipulation was made.
        file: A path, or the name of a file in the folder ``modified`` of the data folder, or "default" for
            ``NAME.safetensors`` in that folder.
        root: The data folder. Default: the environment variable UNBRAID_DATA, or the usual place.

    Returns:
        A dataset with the option ``modified=`` in its name.

    Raises:
        UserError: If the file does not exist, is damaged, or was made for other data.
    """
    path = find_file(str(file), data, root)
    tensors, facts = read_manipulation(path)
    check_file(path, facts, data)
    patterns, which = tensors["patterns"], tensors["which"]
    _check_tensors(path, patterns, which, data)
    changed = ManipulatedImages(data, _add_option(data.name, f"modified={file}"), patterns, which, facts)
    changed.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return changed


def _check_tensors(path: Path, patterns: Tensor, which: Tensor, data: FactorData) -> None:
    valid = (patterns.dtype, which.dtype) == (torch.int8, torch.int16) and tuple(patterns.shape[1:]) == data.shape
    valid = valid and which.shape == (len(data),) and 0 <= int(which.min()) <= int(which.max()) < len(patterns)
    if not valid:
        raise UserError(
            f"{path} must hold int8 patterns of shape (p, {', '.join(map(str, data.shape))}) and, for each of "
            f"{len(data):,} examples, the int16 number of its pattern. It does not. Restore a complete copy, or create "
            "the file again."
        )


def _add_option(name: str, option: str) -> str:
    return f"{name}{'&' if '?' in name else '?'}{option}"


def apply_image_options(data: FactorData, options: Mapping[str, str], root: str | Path | None = None) -> FactorData:
    """Return the data changed by the option `modified` or `noise` of a dataset name, if there is one."""
    if "modified" in options and "noise" in options:
        raise UserError(f"The options 'modified' and 'noise' of {data.name} exclude each other. Got both. Choose one.")
    if "modified" in options:
        return apply_manipulation(data, options["modified"], root)
    if "noise" not in options:
        return data
    text = options["noise"].removesuffix(CLIP)
    try:
        eps = float(text)
    except ValueError:
        raise UserError(
            f"The option 'noise' must be a number, such as 0.1, or 0.1{CLIP}. Got {options['noise']!r}."
        ) from None
    return add_fixed_noise(data, eps, clip=text != options["noise"])
