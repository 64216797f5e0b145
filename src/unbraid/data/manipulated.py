"""Datasets of images with a small fixed change in each image.

The change is a learned pattern that misleads VAEs, or noise of the same strength as a control.

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

PATTERN_LEVELS = 127  # the pixels of a pattern are integers from -PATTERN_LEVELS to PATTERN_LEVELS
# Noise is drawn after this many skipped draws of the random stream of an example, because the first draws of the stream
# determine the colours and backgrounds of the example.
FIRST_NOISE_DRAW = 1 << 20
CLIP = ":clip"  # suffix of the value of the option 'noise' that selects clipping, as in noise=0.1:clip


def reflect(y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    r"""Reflect pixels that are outside [0, 1] at 0 or at 1.

    .. math:: y - 2 \mathrm{relu}(y - 1) + 2 \mathrm{relu}(-y)

    Here y is the changed image. The result is in [0, 1] if y is in [-1, 2]. The formula in the paper has the unchanged
    image on the right-hand side, but must mean the changed image.
    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1.

    >>> reflect(torch.tensor([1.1, -0.1, 0.5])).tolist()
    [0.8999999761581421, 0.10000000149011612, 0.5]
    """
    return y - 2 * torch.relu(y - 1) + 2 * torch.relu(-y)


class ChangedImages(FactorData):
    """The images of a base dataset, each with a fixed change.

    Factors, grid and sampling are those of the base dataset.
    """

    def __init__(self, base: FactorData, name: str) -> None:
        if len(base.shape) != 3:
            raise UserError(
                f"The options 'modified' and 'noise' need a dataset of images. Got {base.name} with examples of shape "
                f"{base.shape} instead. Choose a dataset of images."
            )
        super().__init__(name, base.names, base.sizes, base.shape, base.table)
        self.base, self.gridded, self.sampler = base, base.gridded, base.sampler
        self.categorical, self.cyclic = base.categorical, base.cyclic
        self.continuous, self.successive = base.continuous, base.successive
        self.values: Any = getattr(base, "values", None)

    @property
    def fingerprint(self) -> str | None:
        """A digest of the content of the images, or None if their name already identifies them."""
        fingerprint: str | None = getattr(self.base, "fingerprint", None)
        return fingerprint

    def __len__(self) -> int:
        return len(self.base)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """Return the change that is added to each image at `index`. The sum may be outside [0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} must define change(index).")

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return the changed images at `index`, with pixels in [0, 1]."""
        return self._to_unit_range(self.base.batch(index, noise) + self.change(index))

    def _to_unit_range(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Map changed pixels to [0, 1]."""
        return reflect(y)

    def _examples(self, index: Tensor) -> Tensor:
        return self.batch(index).mul(255).round().byte()

    def _draw_uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return self.base._draw_uniform(noise, n)

    def draw_consecutive(self, noise: Noise, n: int) -> Int[Tensor, "n 2"]:
        """Draw the pairs of the base dataset."""
        return self.base.draw_consecutive(noise, n)

    def factors_at(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """Return the factors of the examples at `index`."""
        return self.base.factors_at(index)

    def factor_values_at(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """Return the factors of the examples at `index`, with the original numbers of continuous factors."""
        return self.base.factor_values_at(index)

    @property
    def missing_labels(self) -> dict[str, int]:
        """The number of missing labels of each factor that has any."""
        return self.base.missing_labels

    def index_of(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Return the indices of the examples with these factors."""
        return self.base.index_of(factors)

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ChangedImages)
        moved.base = self.base.to(device)
        return moved


class ManipulatedImages(ChangedImages):
    """Images x' = x + eps m(w), where x is the original image, w are its factors, and m(w) is a learned pattern.

    Attributes:
        patterns: All patterns, in units of 1 / `PATTERN_LEVELS`.
        which: Index of the pattern of each example.
        metadata: Metadata of the file that the patterns were read from.
        eps: Strength of the manipulation.
        digest: Digest of the file.
    """

    def __init__(
        self,
        base: FactorData,
        name: str,
        patterns: Int8[Tensor, "p c h w"],
        which: Int16[Tensor, " n"],
        metadata: Mapping[str, Any],
    ) -> None:
        super().__init__(base, name)
        self.patterns, self.which = patterns.to(base.device), which.to(base.device)
        self.metadata, self.eps, self.digest = metadata, float(metadata["eps"]), ""

    @property
    def fingerprint(self) -> str | None:
        """The digest of the file of patterns, preceded by the fingerprint of the base dataset if it has one."""
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
    """Images with uniform noise on [-eps, eps] in every pixel and channel, as a control for `ManipulatedImages`.

    The noise of an example is always the same. Pixels outside [0, 1] are reflected, as in `ManipulatedImages`, or
    clipped if `clip` is true. The paper does not say which of these it uses. With clipping, half of the black pixels do
    not change.
    """

    def __init__(self, base: FactorData, name: str, eps: float, clip: bool = False) -> None:
        super().__init__(base, name)
        self.eps, self.clip = eps, clip

    def _to_unit_range(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Map changed pixels to [0, 1]."""
        return y.clamp(0, 1) if self.clip else super()._to_unit_range(y)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """Return noise that takes 256 equally spaced values from -eps to eps."""
        noise = ExampleNoise(index)
        noise.draws = FIRST_NOISE_DRAW
        return (noise.bytes(len(index), *self.shape).float() - 127.5) * (self.eps / 127.5)


def add_fixed_noise(data: FactorData, eps: float, clip: bool = False) -> NoisyImages:
    """Add fixed uniform noise on [-eps, eps] to every image of a dataset.

    Args:
        data: A dataset of images.
        eps: Strength of the noise, in (0, 1].
        clip: Whether to clip pixels at 0 and 1 instead of reflecting them.

    Returns:
        The changed dataset, with the option ``noise=`` in its name.

    Raises:
        UserError: If `eps` is out of range, or if the data are not images.
    """
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise UserError(f"The strength of the noise must be > 0 and <= 1. Got {eps:g} instead.")
    return NoisyImages(data, add_option(data.name, f"noise={eps:g}{CLIP * clip}"), eps, clip)


def apply_manipulation(data: FactorData, file: str | Path, root: str | Path | None = None) -> ManipulatedImages:
    """Apply a manipulation that `unbraid.modify` has written to a file.

    Args:
        data: The dataset of images for which the manipulation was made.
        file: A path, or the name of a file in the folder ``modified`` of the data folder. "default" means the file in
            that folder that is named after the dataset, such as ``dsprites.safetensors``.
        root: Data folder. The default is the environment variable UNBRAID_DATA. If it is not set, the default is
            $XDG_DATA_HOME/unbraid, or else ~/.local/share/unbraid.

    Returns:
        The changed dataset, with the option ``modified=`` in its name.

    Raises:
        UserError: If the file does not exist, if it is damaged, or if it was made for a different dataset.
    """
    path = find_file(str(file), data, root)
    tensors, metadata = read_manipulation(path)
    check_file(path, metadata, data)
    patterns, which = tensors["patterns"], tensors["which"]
    _check_tensors(path, patterns, which, data)
    changed = ManipulatedImages(data, add_option(data.name, f"modified={file}"), patterns, which, metadata)
    changed.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return changed


def _check_tensors(path: Path, patterns: Tensor, which: Tensor, data: FactorData) -> None:
    valid = (patterns.dtype, which.dtype) == (torch.int8, torch.int16) and tuple(patterns.shape[1:]) == data.shape
    valid = valid and which.shape == (len(data),) and 0 <= int(which.min()) <= int(which.max()) < len(patterns)
    if not valid:
        raise UserError(
            f"{path} must contain int8 patterns of shape (p, {', '.join(map(str, data.shape))}) and int16 indices of "
            f"the patterns of {len(data):,} examples. Got different contents instead. Restore a complete copy, or "
            "create the file again."
        )


def add_option(name: str, option: str) -> str:
    """Return the name of a dataset with one more option."""
    return f"{name}{'&' if '?' in name else '?'}{option}"
