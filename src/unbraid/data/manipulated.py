"""Images with small changes that are fixed for each example: patterns learned against VAEs, or noise as strong."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Float, Int, Int8, Int16
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.files.locate import data_folder
from unbraid.data.own.arrays import OwnData
from unbraid.data.rendered.painted import ExampleNoise
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.runtime.files import make_folder, write_atomic

FORMAT = 1
KIND = "manipulation"
LEVELS = 127  # of a pattern's pixels on either side of 0
DRAW = 1 << 20  # of an example's noise: far from those by which painted data choose their colours
CLIP = ":clip"  # after the strength of noise
NAMED = ("base", "names", "sizes", "shape", "examples", "labels")  # what a file says of the data that it is for


def reflected(y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    r"""Changed pixels folded back into [0, 1].

    .. math:: y - 2 \mathrm{relu}(y - 1) + 2 \mathrm{relu}(-y)

    It holds for y in [-1, 2]. The reference writes the unchanged image on the right; the changed one is meant.
    Reference: Zietlow, Rolinek, Martius (2021), supplement, section 3.1.

    >>> reflected(torch.tensor([1.1, -0.1, 0.5])).tolist()
    [0.8999999761581421, 0.10000000149011612, 0.5]
    """
    return y - 2 * torch.relu(y - 1) + 2 * torch.relu(-y)


class Changed(FactorData):
    """Another dataset's images, each with a change of its own; factors, grid and the way to draw are the other's."""

    def __init__(self, base: FactorData, name: str) -> None:
        if len(base.shape) != 3:
            raise UserError(
                f"Only images can be changed pixel by pixel. {base.name} has examples of shape {base.shape}."
            )
        super().__init__(name, base.names, base.sizes, base.shape, base.table)
        self.base, self.gridded, self.categorical, self.law = base, base.gridded, base.categorical, base.law
        self.values: Any = getattr(base, "values", None)

    @property
    def fingerprint(self) -> str | None:
        """What changes when the images do and the name does not."""
        found: str | None = getattr(self.base, "fingerprint", None)
        return found

    def __len__(self) -> int:
        return len(self.base)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """What is added to the images at `index` before they are brought back into [0, 1]."""
        raise UserError(f"{type(self).__name__} must define change(index).")

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """The changed images at `index`, pixels in [0, 1]."""
        return self.within(self.base.batch(index, noise) + self.change(index))

    def within(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Changed pixels brought back into [0, 1]."""
        return reflected(y)

    def _examples(self, index: Tensor) -> Tensor:
        return self.batch(index).mul(255).round().byte()

    def _uniform(self, noise: Noise, n: int) -> Int[Tensor, " n"]:
        return self.base._uniform(noise, n)

    def unplace(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n k"]:
        """The factors of the examples at `index`."""
        return self.base.unplace(index)

    def place(self, factors: Int[Tensor, "n k"]) -> Int[Tensor, " n"]:
        """Where in the grid these factors lie."""
        return self.base.place(factors)

    def to(self, device: str | torch.device) -> FactorData:
        """The same data on another device."""
        moved = super().to(device)
        assert isinstance(moved, Changed)
        moved.base = self.base.to(device)
        return moved


class Modified(Changed):
    """x' = x + eps m(w), where m(w) is one of a table of patterns; `facts` is what the file says of itself."""

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
        """The digest of the file of patterns, and the base's own where it has one."""
        below = super().fingerprint
        return f"{below}+{self.digest}" if below else self.digest

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """The patterns of the examples at `index`, times eps."""
        return self.patterns[self.which[index].long()].float() * (self.eps / LEVELS)

    def to(self, device: str | torch.device) -> FactorData:
        """The same data on another device, patterns with it."""
        moved = super().to(device)
        assert isinstance(moved, Modified)
        moved.patterns, moved.which = self.patterns.to(device), self.which.to(device)
        return moved


class Perturbed(Changed):
    """The control: noise uniform on [-eps, eps] in every pixel and channel, always the same for the same example.

    Pixels are reflected as those of `Modified` are, or cut off with `clip`: the paper does not say which. On black half
    of them then stay as they are.
    """

    def __init__(self, base: FactorData, name: str, eps: float, clip: bool = False) -> None:
        super().__init__(base, name)
        self.eps, self.clip = eps, clip

    def within(self, y: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Changed pixels brought back into [0, 1]."""
        return y.clamp(0, 1) if self.clip else super().within(y)

    def change(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
        """256 equally spaced values from -eps to eps."""
        chance = ExampleNoise(index)
        chance.draws = DRAW
        return (chance.bytes(len(index), *self.shape).float() - 127.5) * (self.eps / 127.5)


def perturbed(data: FactorData, eps: float, clip: bool = False) -> Perturbed:
    """The data with fixed uniform noise of strength `eps` on every image, reflected or cut off at 0 and 1."""
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise UserError(f"The strength of the noise must be > 0 and <= 1. Got {eps:g} instead.")
    return Perturbed(data, _with(data.name, f"noise={eps:g}{CLIP * clip}"), eps, clip)


def modified(data: FactorData, file: str | Path, root: str | Path | None = None) -> Modified:
    """The data with the manipulation in `file`, as `unbraid.modify` writes it.

    `file` is a path, or the name of a file in the folder `modified` of the data folder (`root`, else UNBRAID_DATA), or
    "default", which is NAME.safetensors there. A file made for other data is refused.
    """
    path = find(str(file), data, root)
    tensors, facts = read(path)
    check(path, facts, data)
    patterns, which = tensors["patterns"], tensors["which"]
    count = len(patterns)
    right = (patterns.dtype, which.dtype) == (torch.int8, torch.int16) and tuple(patterns.shape[1:]) == data.shape
    if not right or which.shape != (len(data),) or not 0 <= int(which.min()) <= int(which.max()) < count:
        raise UserError(
            f"{path} must hold int8 patterns of shape (p, {', '.join(map(str, data.shape))}) and for each of "
            f"{len(data):,} examples the int16 number of one. It does not: put back a whole copy, or make it again."
        )
    made = Modified(data, _with(data.name, f"modified={file}"), patterns, which, facts)
    made.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return made


def _with(name: str, option: str) -> str:
    return f"{name}{'&' if '?' in name else '?'}{option}"


def changed(data: FactorData, options: Mapping[str, str], root: str | Path | None = None) -> FactorData:
    """The data as the options `modified` and `noise` of a name say."""
    if "modified" in options and "noise" in options:
        raise UserError(f"Choose one of the options 'modified' and 'noise' of {data.name}. Got both.")
    if "modified" in options:
        return modified(data, options["modified"], root)
    if "noise" not in options:
        return data
    text = options["noise"].removesuffix(CLIP)
    try:
        eps = float(text)
    except ValueError:
        raise UserError(
            f"The option 'noise' must be a number, such as 0.1, or 0.1{CLIP}. Got {options['noise']!r}."
        ) from None
    return perturbed(data, eps, clip=text != options["noise"])


def bare(data: FactorData) -> str:
    """The name of the data without options; of a path the last part."""
    return Path(data.name.partition("?")[0]).name


def default_file(data: FactorData, root: str | Path | None = None) -> Path:
    """Where the manipulation of a dataset is looked for first."""
    return data_folder(root) / "modified" / f"{bare(data)}.safetensors"


def find(file: str, data: FactorData, root: str | Path | None = None) -> Path:
    """The file meant, or a UserError that says where it was looked for and how to make it."""
    usual = default_file(data, root)
    places = [usual] if file == "default" else [Path(file).expanduser(), usual.parent / file]
    for place in places:
        if place.is_file():
            return place
    plain = data.name.partition("?")[0]
    raise UserError(
        f"The manipulation of {plain} must be in {' or '.join(map(str, places))}. There is no such file. Make it: "
        f"unbraid data modify {plain} --out {places[0]}"
    )


def describe(data: FactorData) -> dict[str, Any]:
    """What a manipulation says of the data that it is for.

    Built-in and published data are told by name. Users' own may move, so of them the factors and the form count; where
    those do not fill a grid, `labels` is a digest of them all, because a pattern belongs to a row.
    """
    labels = None if data.gridded else _digest(data.factors(slice(None)))
    form = {"names": list(data.names), "sizes": list(data.sizes), "shape": list(data.shape), "examples": len(data)}
    return {"base": None if isinstance(data, OwnData) else bare(data), **form, "labels": labels}


def _digest(labels: Int[Tensor, "n k"]) -> str:
    return hashlib.sha256(labels.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def check(path: Path, facts: Mapping[str, Any], data: FactorData) -> None:
    """Refuse a file that was made for other data."""
    for key, found in describe(data).items():
        if facts[key] != found:
            plain = data.name.partition("?")[0]
            raise UserError(
                f"{path} was made for other data than {plain}: its '{key}' must be {found}. Got {facts[key]} instead. "
                f"Make one for this data: unbraid data modify {plain} --out FILE"
            )


def write(path: Path, patterns: Int8[Tensor, "p c h w"], which: Int16[Tensor, " n"], facts: Mapping[str, Any]) -> None:
    """The file of a manipulation; `facts` has `eps` and what `describe` gives, and anything else worth knowing."""
    make_folder(path.parent)
    tensors = {"patterns": patterns.cpu().contiguous(), "which": which.cpu().contiguous()}
    about = {"format": FORMAT, "kind": KIND, **facts}
    write_atomic(path, safetensors.torch.save(tensors, {"unbraid": json.dumps(about)}))


def read(path: Path, tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a manipulation's file; what is damaged or something else is refused."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["unbraid"])
            if facts["kind"] != KIND or facts["format"] != FORMAT or not 0 < float(facts["eps"]) <= 1:
                raise UserError(f"kind {facts['kind']}, format {facts['format']}, eps {facts['eps']}")
            wanted = ("patterns", "which") if tensors else ()
            return {name: file.get_tensor(name) for name in wanted}, {**dict.fromkeys(NAMED), **facts}
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} must be a whole file of unbraid data modify, format {FORMAT}. It cannot be read ({error}). Put "
            "back a whole copy, or delete it and make it again."
        ) from error
