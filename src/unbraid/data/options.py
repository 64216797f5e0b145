"""Options in a dataset's name, such as ``dsprites?correlate=x:y:0.2`` or ``scream_dsprites?picture=me.jpg``."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.data.holdout import SIDES, Holdout
from unbraid.data.samplers import CorrelatedSampler, SubsetSampler
from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.files import expand_user

# Options that every dataset in the registry accepts.
COMMON_OPTIONS = {
    "correlate": "FACTOR:FACTOR:SPREAD correlates two factors, both scaled to [0, 1]; the smaller the spread, the "
    "stronger the correlation (0.2 is strong). Of pairs, only the first examples have this distribution",
    "subset": "number of examples in a fixed random subset; only these are drawn, equally often or, with the option "
    "correlate, in proportion to their probability under the correlation",
    "seed": "random seed for the subset [0]",
    "holdout": "examples that are never drawn: element, range or extrapolation, or conditions on factors that must all "
    "hold, such as shape:0+x:16-31. Scores use all examples, or each side separately with `unbraid score --sides`",
    "side": "training or heldout: only the examples of one side of the option holdout",
    "modified": "file written by `unbraid data modify`, or the word `default` for the file that it writes by default. "
    "Its changes are added to the images. For dSprites and Shapes3D also a file of modified images (.npz, .h5) in the "
    "layout of the original",
    "noise": "strength of fixed uniform noise added to every pixel, such as 0.1, as a control for modified images; "
    "pixels beyond 0 and 1 are reflected, or clipped with 0.1:clip",
}
IMAGE_OPTIONS = ("modified", "noise")  # the common options that also apply to users' own data


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """Split a dataset's full name into its plain name and its options.

    >>> split_name("toy?correlate=a:b:0.2&subset=50")
    ('toy', {'correlate': 'a:b:0.2', 'subset': '50'})
    """
    bare, _, text = name.partition("?")
    parts = [part.partition("=") for part in text.split("&") if part]
    return bare, {key: value for key, _, value in parts}


def split_own_name(name: str) -> tuple[str, dict[str, str]]:
    """Split the name of a user's own data into the name without `IMAGE_OPTIONS` and a dictionary of these options.

    If the option `modified` is the path of a file, it is returned as an absolute path.

    >>> split_own_name("photos?size=32&noise=0.1")
    ('photos?size=32', {'noise': '0.1'})
    """
    path, _, text = name.rpartition("?")
    parts = [part.partition("=") for part in text.split("&")] if path else []
    check_repeated_options(name, IMAGE_OPTIONS)
    options = {key: value for key, _, value in parts if key in IMAGE_OPTIONS}
    if not options:
        return name, {}
    if (file := expand_user(options.get("modified", ""))).is_file():
        options["modified"] = str(file.resolve())
    others = "&".join(key + mark + value for key, mark, value in parts if key not in IMAGE_OPTIONS)
    return path + "?" * bool(others) + others, options


def check_repeated_options(name: str, known: Container[str] | None = None) -> None:
    """Raise a UserError if an option occurs several times. If `known` is given, only these options are checked."""
    keys = [part.partition("=")[0] for part in name.rpartition("?")[2].split("&")]
    repeated = [key for key in keys if keys.count(key) > 1 and (key in known if known is not None else key)]
    if repeated:
        raise UserError(f"Each option may occur only once. Got {repeated[0]!r} several times in {name}. Remove one.")


def dataset_options(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a dataset function `make` that users can set as options in the name of the dataset."""
    parameters = inspect.signature(make).parameters
    return {name: p for name, p in parameters.items() if name not in ("device", "progress", "root", "cache")}


def check_options(name: str, make: Callable[..., Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Parse the options that the function `make` accepts, and raise a UserError for unknown options.

    Common options are accepted, but they are not part of the result.
    """
    own = dataset_options(make)
    for key in options:
        if key not in own and key not in COMMON_OPTIONS:
            raise UserError(unknown_name_message(f"option of {name}", key, [*own, *COMMON_OPTIONS]))
    if "seed" in options and "seed" not in own and "subset" not in options:
        raise UserError(
            f"The option 'seed' of {name} is the seed of a random subset. Got no subset. Add one, as in "
            f"{name}?subset=1000&seed={options['seed']}, or leave out the seed. Runs have seeds of their own (--seeds)."
        )
    return {key: _parse_option(value, key, own[key].default) for key, value in options.items() if key in own}


def _parse_option(text: str, key: str, default: Any) -> Any:
    """Convert an option to the type of its default, which is an integer, several integers (64x64), or text."""
    if isinstance(default, tuple):
        return tuple(parse_integer(part, key, 1, 2**31) for part in text.split("x"))
    return parse_integer(text, key, 0, 2**31) if isinstance(default, int) else text


def apply_options(
    data: FactorData, name: str, options: Mapping[str, str], root: str | Path | None = None
) -> FactorData:
    """Return the data with the common options applied, and with `name` as their name.

    The option `side` changes which examples and factors the dataset has. The options `correlate`, `subset` and
    `holdout` only change which examples are drawn.
    """
    if not options:
        return data
    from unbraid.data.image_options import apply_image_options

    changed = copy.copy(apply_image_options(data, options, root))
    changed.name = name
    changed.holdout = Holdout.parse(data, options["holdout"]) if "holdout" in options else None
    if "side" in options:
        return _one_side(changed, options)
    correlated = CorrelatedSampler.parse(data, options["correlate"]) if "correlate" in options else None
    if correlated is not None:
        changed.sampler = correlated
    if "subset" in options or changed.holdout is not None:
        size = parse_integer(options["subset"], "subset", 1, len(data)) if "subset" in options else None
        seed = parse_integer(options.get("seed", "0"), "seed", 0, 2**63 - 1)
        allowed = None if changed.holdout is None else changed.holdout.rows(data, "training")
        changed.sampler = SubsetSampler(data, size, seed, correlated, allowed)
    return changed


def _one_side(data: FactorData, options: Mapping[str, str]) -> FactorData:
    """Return the examples of one side of a holdout, "training" or "heldout", as the option `side` says."""
    if options["side"] not in SIDES:
        raise UserError(unknown_name_message("side of the option 'holdout'", options["side"], list(SIDES)))
    clashes = [key for key in ("correlate", "subset") if key in options]
    if data.holdout is None or clashes:
        got = f"{clashes[0]}=" if clashes else "no holdout="
        raise UserError(
            f"The option 'side' needs the option 'holdout', and no option that changes how often examples are drawn. "
            f"Got {got} in {data.name}. Write, for example, sprites?holdout=range&side={options['side']}."
        )
    return data.holdout.view(data, options["side"])


def parse_integer(text: str, what: str, low: int, high: int) -> int:
    """Return an option as an integer, or raise a UserError if it is not an integer from `low` to `high`."""
    try:
        value = int(text)
    except ValueError:
        raise UserError(f"The option '{what}' must be a whole number. Got {text!r} instead.") from None
    if not low <= value <= high:
        raise UserError(f"The option '{what}' must be between {low} and {high}. Got {value} instead.")
    return value
