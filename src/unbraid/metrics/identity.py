"""What identifies a score: its metric, revision, estimator, options, sample sizes, seed and library versions."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS
from unbraid.runtime.provenance import library_versions

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")  # libraries that affect the scores of metrics


def as_continuous(continuous: Iterable[bool] | None) -> tuple[bool, ...] | None:
    """Return whether each factor is continuous, as a tuple, or None if all factors are discrete.

    >>> as_continuous([False, True]), as_continuous([False, False])
    ((False, True), None)
    """
    flags = tuple(bool(flag) for flag in continuous or ())
    return flags if any(flags) else None


def identity(
    name: str,
    seed: int,
    sizes: Mapping[str, int],
    draws: str = "disjoint",
    continuous: Sequence[bool] | None = None,
    missing: bool = False,
    periods: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """Return the properties that must be equal for two scores to be comparable.

    Args:
        name: A key of `METRICS`, with options if there are any, as in "mig?bins=10".
        seed: Random seed for the metric and its samples.
        sizes: Sizes of the samples, as `Protocol.sizes` returns them.
        draws: How the samples were drawn, "disjoint" or "reference".
        continuous: Whether each factor is continuous. By default all factors are discrete.
        missing: Whether any label is missing.
        periods: The period of each factor, or None for a factor that is not cyclic. By default it is not known which
            factors are cyclic.

    Returns:
        A dictionary of metric, estimator, options, sample sizes, draws, seed and versions (see `score_versions`). Its
        values are unchanged when they are written to JSON and read again. Four fields are present only where they
        apply: `interventions`, if the metric draws disjoint training and test rows from the whole table;
        `continuous`, if the metric takes factors and one of them is continuous; `missing`, if the metric takes
        factors and a label is missing; and `periods`, if the metric takes periods and they are known.

    Example:
        >>> identity("mig", 0, {"train": 10_000})["options"]
        {'bins': 20}
    """
    parameters, given = inspect.signature(METRICS[name]).parameters, METRICS.options(name)
    omitted = {"seed", *TRAITS[name].later_options} - set(given)
    options = {p.name: p.default for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.name not in omitted}
    plain = json.loads(json.dumps(options))  # tuples become lists, as when the identity is read from a file
    about = {"metric": name, "estimator": TRAITS[name].estimator, "options": plain}
    if "draws" in parameters and draws == "disjoint":
        about["interventions"] = "disjoint rows"
    if "factors" in parameters and (flags := as_continuous(continuous)):
        about["continuous"] = list(flags)
    if "factors" in parameters and missing:
        about["missing"] = True
    if "periods" in parameters and periods is not None:
        about["periods"] = list(periods)
    return {
        **about,
        "rows": dict(sizes),
        "draws": draws,
        "seed": seed,
        "versions": score_versions(TRAITS[name].revision),
    }


def score_versions(revision: str, libraries: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Return the versions that identify a score.

    Args:
        revision: The version of unbraid that last changed the numbers of the metric (see `Trait`). It replaces the
            installed version in the result, so that a new version of unbraid computes a stored score again only if the
            numbers of the metric have changed.
        libraries: Names of other libraries that affect the score.

    Returns:
        The versions of Python, of unbraid and of the libraries, by name.

    Example:
        >>> score_versions("0.1.0", ())["unbraid"]
        '0.1.0'
    """
    return {**_library_versions(libraries), "unbraid": revision}


@functools.cache
def _library_versions(libraries: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of Python and of some libraries. They do not change while the program runs."""
    return library_versions(libraries)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two identities differ. If there are none, the two scores are comparable.

    Args:
        a: An identity, as `identity` returns it.
        b: Another identity.

    Returns:
        A dictionary from the name of each field that differs to its two values.

    Example:
        >>> sizes = {"train": 10_000, "test": 5_000}
        >>> differences(identity("mig", 0, sizes), identity("mig", 1, sizes))
        {'seed': (0, 1)}
    """
    return {key: (a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)}


def check_comparable(identities: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `UserError` if the identities are not all equal."""
    for other in identities[1:]:
        if unequal := differences(identities[0], other):
            fields = "; ".join(f"{key}: {a} and {b}" for key, (a, b) in unequal.items())
            raise UserError(
                "Scores can be compared only if they were computed in the same way. "
                f"These differ in {fields}. Score the runs again."
            )


def identity_digest(identities: Iterable[Mapping[str, Any]]) -> str:
    """Return a hash of the identities as eight hexadecimal digits."""
    text = json.dumps(list(identities), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
