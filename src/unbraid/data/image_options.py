"""Apply the options `modified` and `noise` of a dataset name, which change the images of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unbraid.data.dataset import FactorData
from unbraid.data.manipulated import CLIP, add_fixed_noise, apply_manipulation
from unbraid.data.modified_images import SUFFIXES, read_modified_images
from unbraid.errors import UserError


def apply_image_options(data: FactorData, options: Mapping[str, str], root: str | Path | None = None) -> FactorData:
    """Apply the option `modified` or `noise` of a dataset name, if there is one."""
    if "modified" in options and "noise" in options:
        raise UserError(
            f"The options 'modified' and 'noise' of {data.name} cannot be combined. Got both. Choose one of them."
        )
    if "modified" in options:
        images = Path(options["modified"]).suffix in SUFFIXES
        return (read_modified_images if images else apply_manipulation)(data, options["modified"], root)
    if "noise" not in options:
        return data
    text = options["noise"].removesuffix(CLIP)
    try:
        eps = float(text)
    except ValueError:
        raise UserError(
            f"The option 'noise' must be a number, such as 0.1 or 0.1{CLIP}. Got {options['noise']!r} instead."
        ) from None
    return add_fixed_noise(data, eps, clip=text != options["noise"])
