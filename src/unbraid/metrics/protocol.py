"""Which rows each metric sees, and what a score is a score of: metric, estimator, sample sizes, seed and versions."""

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

from unbraid.errors import UserError, unknown
from unbraid.metrics import METRICS, TRAITS
from unbraid.runtime.provenance import versions

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, float]
LINES = 100  # rows a factor that a large grid's table holds with every value of that factor
LIBRARIES = ("unbraid", "numpy", "scipy", "scikit-learn", "numba")


def silent(note: str) -> None:
    """Tell nobody."""


class Outcome(NamedTuple):
    """What each metric gave, and why those that refused did."""

    values: dict[str, Values]
    refused: dict[str, str]

    def whole(self) -> dict[str, Values]:
        """The values, or the first refusal as an error."""
        for name, reason in self.refused.items():
            raise UserError(f"{name}: {reason}")
        return self.values


@dataclass(frozen=True)
class Rows:
    """Codes and factors of a table, and the row numbers of its samples.

    `train` and `test` are for metrics that fit and test a predictor; `sample` is for metrics that do neither, and is
    the training sample if it is None.
    """

    codes: Array
    factors: Array
    train: Array
    test: Array
    sample: Array | None = None

    @classmethod
    def drawn(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Independent draws with replacement, as the large study samples a factor grid.

        With few rows most test rows are also training rows: accuracies are then those of rows seen before.
        """
        rng = np.random.default_rng(seed)
        return cls(codes, factors, rng.integers(len(codes), size=train), rng.integers(len(codes), size=test))

    @classmethod
    def split(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Disjoint random samples without replacement; both shrink in proportion if there are fewer rows.

        Metrics without a test sample see up to `train` rows, whatever is left to test on.
        """
        order = np.random.default_rng(seed).permutation(len(codes))
        cut, rest = disjoint_sizes(len(codes), train, test)
        return cls(codes, factors, order[:cut], order[cut : cut + rest], order[:train])

    def of(self, codes: Array) -> Rows:
        """The same rows of other codes of the same table."""
        return replace(self, codes=codes)

    def sizes(self) -> dict[str, int]:
        """How many rows there are of each kind."""
        sizes = {"train": len(self.train), "test": len(self.test), "table": len(self.codes)}
        return sizes if self.sample is None else {**sizes, "sample": len(self.sample)}

    def score(self, names: Iterable[str], seed: int, tell: Callable[[str], None] = silent) -> Outcome:
        """Every named metric on the arrays its signature asks for; equal fits of trees are made once."""
        from unbraid.metrics.trees import remembered

        outcome = Outcome({}, {})
        with remembered():
            for name in names:
                tell(name)
                try:
                    outcome.values[name] = self._score(name, seed)
                except ValueError as error:
                    outcome.refused[name] = str(error)
        return outcome

    def _score(self, name: str, seed: int) -> Values:
        wanted = inspect.signature(METRICS[name]).parameters
        sample = self.train if self.sample is None or "test_codes" in wanted else self.sample
        rows: Any = slice(None) if TRAITS[name].whole_table else sample
        arrays = {"codes": self.codes[rows], "factors": self.factors[rows]}
        arrays |= {"test_codes": self.codes[self.test], "test_factors": self.factors[self.test]}
        given: dict[str, Any] = {key: value for key, value in arrays.items() if key in wanted}
        return METRICS[name](**given, **({"seed": seed} if "seed" in wanted else {}))


def disjoint_sizes(count: int, train: int, test: int) -> tuple[int, int]:
    """How many of `count` rows to learn from and to test on: as many as asked for, or fewer in the same proportion.

    >>> disjoint_sizes(70_000, 10_000, 5_000), disjoint_sizes(9_000, 10_000, 5_000)
    ((10000, 5000), (6000, 3000))
    """
    if train + test <= count:
        return train, test
    cut = max(1, count * train // (train + test))
    return cut, count - cut


DRAWS = ("disjoint", "reference")


@dataclass(frozen=True)
class Protocol:
    """Which rows metrics see.

    The table is every example of the grid, or about `table` of the examples of a large one. Metrics learn from `train`
    of its rows and are tested on `test` others. With `draws` "disjoint", the default, no row is in both samples, and
    both shrink in proportion where the table has fewer rows than they need. With "reference" both samples are drawn
    independently and with replacement, as the library of Locatello et al. (2019), arXiv:1811.12359, does: use it to
    compare with published numbers. On small datasets it overstates every accuracy, because most test rows are
    training rows as well.
    """

    train: int = 10_000
    test: int = 5_000
    table: int = 65_536
    seed: int = 0
    draws: str = "disjoint"

    def __post_init__(self) -> None:
        if self.draws not in DRAWS:
            raise UserError(unknown("way to draw rows", self.draws, DRAWS))

    def sizes(self, count: int) -> dict[str, int]:
        """The sizes of the samples of a table of `count` rows, and of the table.

        >>> Protocol().sizes(9_000)
        {'train': 6000, 'test': 3000, 'table': 9000, 'sample': 9000}
        """
        if self.draws == "reference":
            return {"train": self.train, "test": self.test, "table": count}
        train, test = disjoint_sizes(count, self.train, self.test)
        return {"train": train, "test": test, "table": count, "sample": min(self.train, count)}

    def examples(self, count: int) -> Array:
        """Row numbers, of `count`, of one sample of `train` rows, for what needs no test rows."""
        rng = np.random.default_rng(self.seed)
        if self.draws == "reference":
            return rng.integers(count, size=self.train)
        return rng.choice(count, size=min(self.train, count), replace=False)

    def index(self, sizes: Sequence[int]) -> Array:
        """The examples in the table: all of a small grid; of a large one a random choice, completed along lines.

        A line is an example with every value of one factor, the others as they are: what an intervention on that factor
        needs. There are 100 of them for each factor.

        >>> len(Protocol().index((3, 4)))
        12
        """
        count = math.prod(sizes)
        if count <= self.table:
            return np.arange(count)
        rng = np.random.default_rng(self.seed)
        parts = [rng.choice(count, self.table, replace=False)]
        for j, size in enumerate(sizes):
            factors = rng.integers(sizes, size=(LINES, len(sizes))).repeat(size, axis=0)
            factors[:, j] = np.tile(np.arange(size), LINES)
            parts.append(np.ravel_multi_index(tuple(factors.T), tuple(sizes)))
        return np.unique(np.concatenate(parts))

    def some(self, count: int) -> Array:
        """The examples in the table of data that is no grid: all, or a random choice of many."""
        if count <= self.table:
            return np.arange(count)
        return np.sort(np.random.default_rng(self.seed).choice(count, self.table, replace=False))

    def rows(self, codes: Array, factors: Array) -> Rows:
        """The samples that metrics see of a table."""
        draw = Rows.split if self.draws == "disjoint" else Rows.drawn
        return draw(codes, factors, self.train, self.test, self.seed)

    def blank(self, sizes: Sequence[int], d: int) -> Rows:
        """The rows of a grid of these sizes with d codes, all of them zero: where planted codes go.

        >>> Protocol(train=5, test=5).blank((3, 4), 2).codes.shape
        (12, 2)
        """
        factors = np.stack(np.unravel_index(self.index(sizes), tuple(sizes)), axis=1)
        return self.rows(np.zeros((len(factors), d)), factors)


def samples_of(sizes: Mapping[str, int], protocol: Protocol) -> dict[str, Any]:
    """What a row of scores says about the rows that its metrics saw."""
    return {"train_rows": sizes["train"], "test_rows": sizes["test"], "draws": protocol.draws}


def identity(name: str, seed: int, sizes: Mapping[str, int], draws: str = "disjoint") -> dict[str, Any]:
    """What must agree for two scores to be compared: metric, estimator, options, samples, seed and versions.

    >>> identity("mig", 0, {"train": 10_000})["options"]
    {'bins': 20}
    """
    parameters = inspect.signature(METRICS[name]).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"}
    plain = json.loads(json.dumps(options))  # as it will be read back: tuples become lists
    about = {"metric": name, "estimator": TRAITS[name].estimator, "options": plain}
    return {**about, "rows": dict(sizes), "draws": draws, "seed": seed, "versions": _versions()}


@functools.cache
def _versions() -> dict[str, str]:
    return versions(LIBRARIES)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields in which two identities differ; scores may be compared where there are none.

    >>> sizes = {"train": 10_000, "test": 5_000}
    >>> differences(identity("mig", 0, sizes), identity("mig", 1, sizes))
    {'seed': (0, 1)}
    """
    return {key: (a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)}


def check_alike(identities: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to compare scores that were not made alike."""
    for other in identities[1:]:
        if unlike := differences(identities[0], other):
            told = "; ".join(f"{key}: {a} and {b}" for key, (a, b) in unlike.items())
            raise UserError(f"Scores can be compared only if they were made alike. These differ in {told}. Score anew.")


def stamp(identities: Iterable[Mapping[str, Any]]) -> str:
    """Eight hex digits that agree exactly where the identities do."""
    text = json.dumps(list(identities), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def chosen(names: Iterable[str] | None) -> list[str]:
    """The metrics asked for, all of them by default; unknown names are refused with the nearest."""
    asked = list(METRICS) if names is None else list(dict.fromkeys(names))
    for name in asked:
        if name not in METRICS:
            raise UserError(unknown("metric", name, list(METRICS)))
    return asked
