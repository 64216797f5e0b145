"""The evaluation protocol: which rows each metric receives, and what identifies a score.

A score is identified by its metric, estimator, options, sample sizes, seed and library versions.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics import METRICS, TRAITS
from unbraid.runtime.progress import ignore_message
from unbraid.runtime.provenance import library_versions

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, float]
LINES_PER_FACTOR = 100  # number of complete lines along each factor in the table of a large grid
LIBRARIES = ("unbraid", "numpy", "scipy", "scikit-learn", "numba")


class Outcome(NamedTuple):
    """Results of several metrics: the scores, and the error messages of the metrics that raised one."""

    values: dict[str, Values]
    errors: dict[str, str]

    def values_or_raise(self) -> dict[str, Values]:
        """Return the scores of all metrics, or raise the first error."""
        for name, reason in self.errors.items():
            raise UserError(f"{name}: {reason}")
        return self.values


@dataclass(frozen=True)
class Rows:
    """A table of codes and factors, and the row numbers of its samples.

    `train` and `test` are the samples of metrics that fit and test a predictor. `sample` is the sample of all other
    metrics; if it is None, they receive the training sample.
    """

    codes: Array
    factors: Array
    train: Array
    test: Array
    sample: Array | None = None

    @classmethod
    def sample_with_replacement(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Draw both samples independently and with replacement, as Locatello et al. (2019) sample a factor grid.

        If the table has few rows, most test rows are also training rows, so accuracies do not measure generalisation.
        """
        rng = np.random.default_rng(seed)
        return cls(codes, factors, rng.integers(len(codes), size=train), rng.integers(len(codes), size=test))

    @classmethod
    def sample_disjoint(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Draw disjoint random samples without replacement. If there are too few rows, both shrink in proportion.

        Metrics that need no test sample receive up to `train` rows, however many rows the test sample takes.
        """
        order = np.random.default_rng(seed).permutation(len(codes))
        n_train, n_test = disjoint_sizes(len(codes), train, test)
        return cls(codes, factors, order[:n_train], order[n_train : n_train + n_test], order[:train])

    def with_codes(self, codes: Array) -> Rows:
        """Return the same samples and factors with different codes."""
        return replace(self, codes=codes)

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each sample and of the table."""
        sizes = {"train": len(self.train), "test": len(self.test), "table": len(self.codes)}
        return sizes if self.sample is None else {**sizes, "sample": len(self.sample)}

    def score(self, names: Iterable[str], seed: int, on_metric: Callable[[str], None] = ignore_message) -> Outcome:
        """Compute the named metrics, each on the arrays that its signature names. Equal fits are computed once.

        Args:
            names: Keys of `METRICS`.
            seed: Random seed that is passed to every metric that takes one.
            on_metric: Function that is called with the name of each metric before it is computed.

        Returns:
            The scores, and the error messages of the metrics that raised a `ValueError`.
        """
        from unbraid.metrics.trees import cached_fits

        outcome = Outcome({}, {})
        with cached_fits():
            for name in names:
                on_metric(name)
                try:
                    outcome.values[name] = self._score(name, seed)
                except ValueError as error:
                    outcome.errors[name] = str(error)
        return outcome

    def _score(self, name: str, seed: int) -> Values:
        """Compute one metric on the arrays that its signature names."""
        parameters = inspect.signature(METRICS[name]).parameters
        sample = self.train if self.sample is None or "test_codes" in parameters else self.sample
        rows: Any = slice(None) if TRAITS[name].whole_table else sample
        arrays = {"codes": self.codes[rows], "factors": self.factors[rows]}
        arrays |= {"test_codes": self.codes[self.test], "test_factors": self.factors[self.test]}
        arguments: dict[str, Any] = {key: value for key, value in arrays.items() if key in parameters}
        return METRICS[name](**arguments, **({"seed": seed} if "seed" in parameters else {}))


def disjoint_sizes(count: int, train: int, test: int) -> tuple[int, int]:
    """Return the sizes of disjoint training and test samples of `count` rows.

    They are the requested sizes, or smaller sizes in the same proportion if there are too few rows.

    >>> disjoint_sizes(70_000, 10_000, 5_000), disjoint_sizes(9_000, 10_000, 5_000)
    ((10000, 5000), (6000, 3000))
    """
    if train + test <= count:
        return train, test
    n_train = max(1, count * train // (train + test))
    return n_train, count - n_train


DRAWS = ("disjoint", "reference")


@dataclass(frozen=True)
class Protocol:
    """Which rows of a dataset the metrics receive.

    Codes are computed for a table of examples: all examples of a small dataset, or about `table` examples of a large
    one. Metrics receive samples of the rows of this table.

    Args:
        train: Number of rows from which metrics learn.
        test: Number of rows on which metrics that fit a predictor are tested.
        table: Maximum number of examples for which the whole dataset is encoded. The table of a larger dataset holds
            this many random examples. If the dataset is a grid of factors, the table also holds 100 complete lines
            along each factor (see `grid_indices`).
        seed: Random seed for the samples and the metrics.
        draws: How the samples are drawn. With "disjoint", no row is in both samples, and both samples shrink in
            proportion if the table has too few rows. With "reference", both samples are drawn independently and with
            replacement, as in the library of Locatello et al. (2019), arXiv:1811.12359. Use "reference" to compare
            scores with published numbers. On small datasets it overstates every accuracy, because most test rows are
            also training rows.

    Raises:
        UserError: If `draws` is neither "disjoint" nor "reference".

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
        if self.draws not in DRAWS:
            raise UserError(unknown_name_message("way to draw rows", self.draws, DRAWS))

    def sizes(self, count: int) -> dict[str, int]:
        """Return the sizes of the samples from a table with `count` rows, and the size of the table.

        >>> Protocol().sizes(9_000)
        {'train': 6000, 'test': 3000, 'table': 9000, 'sample': 9000}
        """
        if self.draws == "reference":
            return {"train": self.train, "test": self.test, "table": count}
        train, test = disjoint_sizes(count, self.train, self.test)
        return {"train": train, "test": test, "table": count, "sample": min(self.train, count)}

    def sample_indices(self, count: int) -> Array:
        """Draw `train` of `count` row indices, for computations that need no test rows."""
        rng = np.random.default_rng(self.seed)
        if self.draws == "reference":
            return rng.integers(count, size=self.train)
        return rng.choice(count, size=min(self.train, count), replace=False)

    def grid_indices(self, sizes: Sequence[int]) -> Array:
        """Return the indices of the examples in the table of a grid of factors.

        The table of a small grid holds all examples. The table of a large grid holds a random selection of examples and
        100 complete lines along each factor. A line is the set of examples that differ in one factor only and take all
        of its values. Interventions on that factor need such sets.

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
        return np.unique(np.concatenate(parts))

    def list_indices(self, count: int) -> Array:
        """Return the sorted indices of the examples in the table of `count` examples that form no grid.

        The table holds all examples, or a random selection of `table` examples if there are more.
        """
        if count <= self.table:
            return np.arange(count)
        return np.sort(np.random.default_rng(self.seed).choice(count, self.table, replace=False))

    def rows(self, codes: Array, factors: Array) -> Rows:
        """Return the samples of a table of codes (n, d) and factors (n, k) that the metrics receive."""
        draw = Rows.sample_disjoint if self.draws == "disjoint" else Rows.sample_with_replacement
        return draw(codes, factors, self.train, self.test, self.seed)

    def rows_with_zero_codes(self, sizes: Sequence[int], d: int) -> Rows:
        """Return the samples of a grid of factors, with d latents that are all zero.

        Use `Rows.with_codes` to replace the zeros by other codes.

        >>> Protocol(train=5, test=5).rows_with_zero_codes((3, 4), 2).codes.shape
        (12, 2)
        """
        factors = np.stack(np.unravel_index(self.grid_indices(sizes), tuple(sizes)), axis=1)
        return self.rows(np.zeros((len(factors), d)), factors)


def sample_description(sizes: Mapping[str, int], protocol: Protocol) -> dict[str, Any]:
    """Return the columns of a result table that describe the samples."""
    return {"train_rows": sizes["train"], "test_rows": sizes["test"], "draws": protocol.draws}


def identity(name: str, seed: int, sizes: Mapping[str, int], draws: str = "disjoint") -> dict[str, Any]:
    """Return the properties that must be equal for two scores to be comparable.

    Args:
        name: A key of `METRICS`.
        seed: Random seed for the metric and its samples.
        sizes: Sizes of the samples, as `Protocol.sizes` returns them.
        draws: How the samples were drawn, "disjoint" or "reference".

    Returns:
        A dictionary of metric, estimator, options, sample sizes, draws, seed and library versions. Its values are
        unchanged when they are written to JSON and read again.

    Example:
        >>> identity("mig", 0, {"train": 10_000})["options"]
        {'bins': 20}
    """
    parameters = inspect.signature(METRICS[name]).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"}
    plain = json.loads(json.dumps(options))  # tuples become lists, as when the identity is read from a file
    about = {"metric": name, "estimator": TRAITS[name].estimator, "options": plain}
    return {**about, "rows": dict(sizes), "draws": draws, "seed": seed, "versions": _library_versions()}


@functools.cache
def _library_versions() -> dict[str, str]:
    """Return the versions of the libraries that affect scores."""
    return library_versions(LIBRARIES)


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


def resolve_metric_names(names: Iterable[str] | None) -> list[str]:
    """Return the requested metric names without repetitions, or all names if `names` is None.

    Raises:
        UserError: If a name is not in `METRICS`. The message suggests the most similar name.
    """
    requested = list(METRICS) if names is None else list(dict.fromkeys(names))
    for name in requested:
        if name not in METRICS:
            raise UserError(unknown_name_message("metric", name, list(METRICS)))
    return requested
