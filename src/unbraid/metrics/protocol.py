"""The evaluation protocol: which rows of a dataset the metrics receive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics import DEFAULT_METRICS, METRICS
from unbraid.metrics.identity import (
    as_continuous,
    check_comparable,
    differences,
    identity,
    identity_digest,
    score_versions,
)
from unbraid.metrics.interventions import DRAWS, check_draws
from unbraid.metrics.options import join_lists
from unbraid.metrics.rows import Array, Outcome, Rows, Selection, Values, disjoint_sizes, draw_with_replacement

LINES_PER_FACTOR = 100  # number of complete lines along each factor in the table of a large grid


@dataclass(frozen=True)
class Protocol:
    """Which rows of a dataset the metrics receive.

    Codes are computed for a table of examples: all examples of a small dataset, or a selection from a large one.
    Metrics receive samples of the rows of this table.

    Args:
        train: Number of rows from which metrics learn.
        test: Number of rows on which metrics that fit a predictor are tested.
        table: A dataset with at most this many examples is encoded completely. The table of a larger dataset holds
            this many random examples. If the dataset is a grid of factors, the table also holds 100 complete lines
            along each factor (see `grid_indices`).
        seed: Random seed for the samples and the metrics.
        draws: How the samples are drawn. With "disjoint", no row is in both samples, and both samples shrink in
            proportion if the table has too few rows. With "reference", both samples are drawn independently and with
            replacement from all examples of the dataset, as in the library of Locatello et al. (2019),
            arXiv:1811.12359. The table of a large dataset then also holds these examples. Use "reference" to compare
            scores with published numbers. On small datasets it overstates every accuracy, because most test rows are
            also training rows.

    Raises:
        UserError: If a number is not whole or too small, or if `draws` is neither "disjoint" nor "reference".

    Example:
        >>> Protocol(train=2_000, test=1_000).sizes(70_000)
        {'train': 2000, 'test': 1000, 'table': 70000, 'sample': 2000}
    """

    train: int = 10_000
    test: int = 5_000
    table: int = 65_536
    seed: int = 0
    draws: str = "disjoint"

    def __post_init__(self) -> None:
        check_draws(self.draws)
        for name, low in {"train": 1, "test": 0, "table": 1, "seed": 0}.items():
            value: Any = getattr(self, name)
            number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not (number and value >= low and value == np.rint(value) < np.inf):
                raise UserError(f"The '{name}' of a protocol must be a whole number from {low}. Got {value!r} instead.")
            object.__setattr__(self, name, int(value))

    def sizes(self, count: int) -> dict[str, int]:
        """Return the sizes of the samples from a table with `count` rows, and the size of the table.

        "sample" is the number of rows that metrics without test rows receive. It is absent with reference draws,
        because these metrics then receive the training rows.

        >>> Protocol().sizes(9_000)
        {'train': 6000, 'test': 3000, 'table': 9000, 'sample': 9000}
        """
        if self.draws == "reference":
            return {"train": self.train, "test": self.test, "table": count}
        train, test = disjoint_sizes(count, self.train, self.test)
        return {"train": train, "test": test, "table": count, "sample": min(self.train, count)}

    def sample_indices(self, count: int) -> Array:
        """Draw `train` row indices from 0 to `count` - 1, for computations that need no test rows."""
        rng = np.random.default_rng(self.seed)
        if self.draws == "reference":
            return rng.integers(count, size=self.train)
        return rng.choice(count, size=min(self.train, count), replace=False)

    def grid_indices(self, sizes: Sequence[int]) -> Array:
        """Return the indices of the examples in the table of a grid of factors.

        The table of a small grid holds all examples. The table of a large grid holds a random selection of examples and
        100 complete lines along each factor. A line is the set of examples that differ in one factor only and take all
        of its values. Interventions on that factor need such sets. With reference draws, the table also holds the
        examples of both samples.

        Args:
            sizes: Number of values of each factor.

        Returns:
            Sorted indices of examples.

        Example:
            >>> len(Protocol().grid_indices((3, 4)))
            12
        """
        count = math.prod(sizes)
        if count <= self.table:
            return np.arange(count)
        rng = np.random.default_rng(self.seed)
        parts = [rng.choice(count, self.table, replace=False)]
        for j, size in enumerate(sizes):
            factors = rng.integers(sizes, size=(LINES_PER_FACTOR, len(sizes))).repeat(size, axis=0)
            factors[:, j] = np.tile(np.arange(size), LINES_PER_FACTOR)
            parts.append(np.ravel_multi_index(tuple(factors.T), tuple(sizes)))
        return np.unique(np.concatenate([*parts, *self._drawn_examples(count)]))

    def list_indices(self, count: int) -> Array:
        """Return the sorted indices of the examples in the table of a dataset with `count` examples that form no grid.

        The table holds all examples, or a random selection of `table` examples if there are more. With reference draws,
        the table also holds the examples of both samples.
        """
        if count <= self.table:
            return np.arange(count)
        table = np.random.default_rng(self.seed).choice(count, self.table, replace=False)
        return np.unique(np.concatenate([table, *self._drawn_examples(count)]))

    def _drawn_examples(self, count: int) -> tuple[Array, ...]:
        """Return both samples of `count` examples for reference draws, or an empty tuple for disjoint draws."""
        return draw_with_replacement(count, self.train, self.test, self.seed) if self.draws == "reference" else ()

    def rows(
        self,
        codes: Array,
        factors: Array,
        continuous: Sequence[bool] | None = None,
        selection: Selection | None = None,
        periods: Sequence[float | None] | None = None,
    ) -> Rows:
        """Return a table of codes and factors, with the samples of its rows that the metrics receive.

        Args:
            codes: The codes, (n, d).
            factors: The factors, (n, k): integers, or float64 if a factor is continuous or a label is missing (NaN).
            continuous: Whether each factor is continuous. By default all factors are discrete.
            selection: Which examples of the dataset the rows hold. By default they hold all of its examples.
            periods: The period of each factor, or None for a factor that is not cyclic. By default it is not known
                which factors are cyclic.

        Returns:
            The table and its samples.

        Example:
            >>> Protocol().rows(np.zeros((3, 1)), np.array([[0.1], [0.2], [0.4]]), [True]).continuous
            (True,)
        """
        if self.draws == "disjoint":
            rows = Rows.sample_disjoint(codes, factors, self.train, self.test, self.seed)
        else:
            rows = Rows.sample_with_replacement(codes, factors, self.train, self.test, self.seed, selection)
        return replace(rows, continuous=as_continuous(continuous), periods=None if periods is None else tuple(periods))

    def rows_with_zero_codes(self, sizes: Sequence[int], d: int, periods: Sequence[float | None] | None = None) -> Rows:
        """Return the samples of a grid of factors, with d latents that are all zero. `periods` is as in `rows`.

        Use `Rows.with_codes` to replace the zeros by other codes.

        >>> Protocol(train=5, test=5).rows_with_zero_codes((3, 4), 2).codes.shape
        (12, 2)
        """
        index = self.grid_indices(sizes)
        factors = np.stack(np.unravel_index(index, tuple(sizes)), axis=1)
        selection = Selection(index, math.prod(sizes))
        return self.rows(np.zeros((len(factors), d)), factors, selection=selection, periods=periods)


def sample_description(sizes: Mapping[str, int], protocol: Protocol) -> dict[str, Any]:
    """Return the columns of a result table that describe the samples."""
    return {"train_rows": sizes["train"], "test_rows": sizes["test"], "draws": protocol.draws}


def sample_sentences(samples: Iterable[tuple[int, int, str]]) -> list[str]:
    """Return one sentence for each distinct triple of number of training rows, number of test rows, and draws.

    >>> sample_sentences([(60, 30, "disjoint"), (60, 30, "disjoint")])
    ['Metrics are fitted on 60 rows and tested on 30 rows (no row is in both sets).']
    """
    overlap = {
        "disjoint": "no row is in both sets",
        "reference": "rows are sampled with replacement, so a row may be in both sets",
    }
    return [
        f"Metrics are fitted on {train:,} rows and tested on {test:,} rows ({overlap[draws]})."
        for train, test, draws in dict.fromkeys(samples)
    ]


def resolve_metric_names(names: str | Iterable[str] | None) -> list[str]:
    """Return the requested metric names without repetitions, or `DEFAULT_METRICS` if `names` is None.

    A string is one name, several names separated by commas, or "all" for all metrics. A name may have options, as in
    "dci_es?probes=rff&sizes=16,32" (see `unbraid.metrics.options`). Options with their default value are left out.

    Raises:
        UserError: If a name is not in `METRICS`, in which case the message suggests the most similar name, if an option
            is wrong, or if a string contains no name.

    Example:
        >>> resolve_metric_names("mig,mig?bins=10,mig?bins=20")
        ['mig', 'mig?bins=10']
    """
    if names is None:
        return list(DEFAULT_METRICS)
    listed: list[Any] = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise UserError(f"Metrics are given by name, such as 'mig' or ['mig', 'dci']. Got {name!r} instead.")
    parts = [part.strip() for entry in listed for part in entry.split(",")]
    requested = join_lists([part for part in parts if part])
    if parts and not requested:
        raise UserError("At least one metric must be named, such as 'mig'. Got an empty name instead.")
    if "all" in requested:
        requested = [*METRICS, *(name for name in requested if name != "all")]
    for name in requested:
        if name == "udr":
            raise UserError("'udr' compares runs with each other. Compute it with: unbraid select RUNS (ub.select)")
        if "?" not in name and name not in METRICS:
            raise UserError(unknown_name_message("metric", name, list(METRICS)))
    return list(dict.fromkeys(map(METRICS.canonical_name, requested)))


def are_named(names: str | Iterable[str] | None) -> bool:
    """Return whether metrics are given by their names, so that all of them must be computed.

    None stands for the default metrics, and "all" for all metrics. In both cases, metrics that cannot be computed for
    the data may be left out.

    >>> are_named(None), are_named("all"), are_named(["all"]), are_named("mig,sap")
    (False, False, False, True)
    """
    return names is not None and resolve_metric_names(names)[: len(METRICS)] != list(METRICS)


__all__ = [
    "DRAWS",
    "Array",
    "Outcome",
    "Protocol",
    "Rows",
    "Selection",
    "Values",
    "are_named",
    "as_continuous",
    "check_comparable",
    "differences",
    "disjoint_sizes",
    "identity",
    "identity_digest",
    "resolve_metric_names",
    "sample_description",
    "sample_sentences",
    "score_versions",
]
