"""Short labels of runs that are shown together. Settings that all these runs share are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unbraid.runs.spec import RunSpec

COMMON = (
    "data", "steps", "batch", "learning_rate", "latents", "net", "likelihood", "precision", "validation",
    "factorised_support", "weight_decay", "clip_norm", "orthogonal_jacobian", "sparse_jacobian", "hessian_penalty",
    "seed",
)  # fmt: skip
"""The settings that runs of all methods have, in the order in which labels show them."""


def run_labels(specs: Iterable[RunSpec]) -> dict[str, str]:
    """Return a dictionary from the id of each run to its label.

    A label consists of the method (or "untrained" if the run has 0 steps) and the settings in which the runs differ.

    A setting of a method is left out if all runs of this method have the same value. A setting of the training, such as
    the data or the seed, is left out if all runs that have this setting have the same value. (Some runs lack a setting.
    For example, an adopted model has no learning rate.) The label of a single run has all settings of its method, and
    its seed.

    >>> from unbraid.methods import VAE, BetaVAE
    >>> methods = [BetaVAE(beta=1.0), BetaVAE(beta=4.0), VAE()]
    >>> list(run_labels(RunSpec(method, "toy", latents=5) for method in methods).values())
    ['beta_vae beta=1', 'beta_vae beta=4', 'vae']
    """
    settings = {spec.id: spec.flat(complete=True) for spec in specs}
    rows = list(settings.values())
    if len(rows) == 1:
        return {run: _label(row, [*_method_settings(row), "seed"]) for run, row in settings.items()}
    methods = {row["method"]: row for row in rows}
    own = {
        name: differing([row for row in rows if row["method"] == name], _method_settings(example))
        for name, example in methods.items()
    }
    common = [name for name in COMMON if differing([row for row in rows if row.get(name) is not None], [name])]
    return {run: _label(row, [*own[row["method"]], *common]) for run, row in settings.items()}


def _method_settings(values: dict[str, Any]) -> list[str]:
    """Return the names of the settings of the method."""
    return [name for name in values if name not in ("method", "model", *COMMON)]


def differing(rows: Sequence[dict[str, Any]], names: Iterable[str]) -> list[str]:
    """Return those of `names` for which the rows have different values.

    >>> differing([{"a": 1, "b": 1}, {"a": 1, "b": 2}], ["a", "b"])
    ['b']
    """
    return [name for name in names if len({str(row.get(name)) for row in rows}) > 1]


def shared_settings(specs: Iterable[RunSpec]) -> dict[str, Any]:
    """Return the settings that have the same value in all runs, by name."""
    rows = [spec.flat() for spec in specs]
    names = rows[0] if rows else {}
    vary = differing(rows, names)
    return {name: value for name, value in names.items() if name not in vary and value is not None}


def shared_sentence(specs: Sequence[RunSpec]) -> str:
    """Return a sentence with the settings that all runs share. It is empty for one run, or if no setting is shared."""
    shared = shared_settings(specs)
    if len({spec.id for spec in specs}) < 2 or not shared:
        return ""
    return f"All runs have {', '.join(_text(name, value) for name, value in shared.items())}."


def _text(name: str, value: Any) -> str:
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def _label(values: dict[str, Any], names: Iterable[str]) -> str:
    texts = [_text(name, values[name]) for name in names if values.get(name) is not None]
    method = values["method"].removeprefix("__main__:")  # the module of methods in scripts and notebooks
    return " ".join(["untrained" if values.get("steps") == 0 else method, *texts])
