"""A table of codes and factors, and the samples of its rows that metrics receive."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unbraid.errors import UserError
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.identity import identity
from unbraid.runtime.progress import ignore_message

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, float]


class Outcome(NamedTuple):
    """Results of several metrics: the scores, and the error messages of the metrics that raised an error."""

    values: dict[str, Values]
    errors: dict[str, str]

    def values_or_raise(self) -> dict[str, Values]:
        """Return the scores of all metrics, or raise the first error."""
        for name, reason in self.errors.items():
            raise UserError(f"{name}: {reason}")
        return self.values


@dataclass(frozen=True)
class Selection:
    """The examples of a dataset that are rows of a table.

    Attributes:
        index: Sorted indices of the examples, one per row.
        count: Number of examples of the dataset.
    """

    index: Array
    count: int

    def row_numbers(self, examples: Array) -> Array:
        """Return the row number of each example, or raise a `UserError` if an example is not in the table.

        >>> Selection(np.array([2, 5, 7]), 10).row_numbers(np.array([7, 2]))
        array([2, 0])
        """
        rows = np.searchsorted(self.index, examples)
        if not np.array_equal(self.index.take(rows, mode="clip"), examples):
            raise UserError(
                "The table must hold every example that is drawn. Select its examples with the protocol that is used "
                "for scoring."
            )
        return rows


@dataclass(frozen=True)
class Rows:
    """A table of codes and factors, and the row numbers of its samples.

    Attributes:
        codes: The codes, (n, d).
        factors: The factors, (n, k). They are integers, or float64 if a factor is continuous or a label is missing
            (NaN).
        train: Row numbers of the training sample, for metrics that also take a test sample.
        test: Row numbers of the test sample.
        sample: Row numbers of the sample for metrics that take no test sample. If it is None, these metrics receive the
            training sample. Metrics that receive the whole table (see `Trait`) use no sample.
        continuous: Whether each factor is continuous, or None if all factors are discrete.
        periods: One entry per factor: its period, or None if the factor is not cyclic (see `d_lsbd`). If `periods`
            itself is None, it is not known which factors are cyclic.
        draws: How the samples were drawn, "disjoint" or "reference". Some metrics receive the whole table
            and choose their own training and test rows. They draw these rows in the same way.
    """

    codes: Array
    factors: Array
    train: Array
    test: Array
    sample: Array | None = None
    continuous: tuple[bool, ...] | None = None
    draws: str = "disjoint"
    periods: tuple[float | None, ...] | None = None

    @classmethod
    def sample_with_replacement(
        cls, codes: Array, factors: Array, train: int, test: int, seed: int, selection: Selection | None = None
    ) -> Rows:
        """Draw both samples independently and with replacement, as Locatello et al. (2019) sample a factor grid.

        The samples are drawn from all examples of the dataset. The table must contain the examples that
        `draw_with_replacement` draws. If there are few examples, most test rows are also training rows, so accuracies
        do not measure generalisation.
        """
        selection = selection or Selection(np.arange(len(codes)), len(codes))
        fitted, tested = map(selection.row_numbers, draw_with_replacement(selection.count, train, test, seed))
        return cls(codes, factors, fitted, tested, draws="reference")

    @classmethod
    def sample_disjoint(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Draw disjoint random samples without replacement.

        If there are too few rows, both samples shrink in proportion. Metrics that need no test sample still receive up
        to `train` rows, which may then include rows of the test sample.
        """
        order = np.random.default_rng(seed).permutation(len(codes))
        n_train, n_test = disjoint_sizes(len(codes), train, test)
        return cls(codes, factors, order[:n_train], order[n_train : n_train + n_test], order[:train])

    def with_codes(self, codes: Array) -> Rows:
        """Return the same samples and factors with different codes."""
        return replace(self, codes=codes)

    @property
    def missing(self) -> bool:
        """Whether any label is missing, that is, NaN."""
        return self.factors.dtype.kind == "f" and bool(np.isnan(self.factors).any())

    def identity(self, name: str, seed: int) -> dict[str, Any]:
        """Return the properties that identify the score of a metric on these rows (see `identity`)."""
        return identity(name, seed, self.sizes(), self.draws, self.continuous, self.missing, self.periods)

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each sample and of the table."""
        sizes = {"train": len(self.train), "test": len(self.test), "table": len(self.codes)}
        return sizes if self.sample is None else {**sizes, "sample": len(self.sample)}

    def score(self, names: Iterable[str], seed: int, on_metric: Callable[[str], None] = ignore_message) -> Outcome:
        """Compute the named metrics. Each metric receives those arrays that are parameters of its function.

        If several metrics need the same boosted trees, these are fitted once.

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
        """Compute one metric on those arrays that are parameters of its function."""
        parameters = inspect.signature(METRICS[name]).parameters
        sample = self.train if self.sample is None or "test_codes" in parameters else self.sample
        rows: Any = slice(None) if TRAITS[name].whole_table else sample
        arrays = {"codes": self.codes[rows], "factors": self.factors[rows]}
        arrays |= {"test_codes": self.codes[self.test], "test_factors": self.factors[self.test]}
        arguments: dict[str, Any] = {**arrays, "seed": seed, "draws": self.draws, "periods": self.periods}
        if self.continuous is not None and any(self.continuous):
            arguments["continuous"] = self.continuous
        return METRICS[name](**{key: value for key, value in arguments.items() if key in parameters})


def draw_with_replacement(count: int, train: int, test: int, seed: int) -> tuple[Array, Array]:
    """Draw a training and a test sample of the indices of `count` examples, independently and with replacement.

    >>> [part.shape for part in draw_with_replacement(100, 20, 10, seed=0)]
    [(20,), (10,)]
    """
    rng = np.random.default_rng(seed)
    return rng.integers(count, size=train), rng.integers(count, size=test)


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
