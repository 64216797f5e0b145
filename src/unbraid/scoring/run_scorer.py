"""Score one run: find existing scores, encode the examples that metrics need, and record new scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.holdout import SideView
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.metrics.protocol import (
    Outcome,
    Protocol,
    Rows,
    Selection,
    Values,
    identity,
    identity_digest,
    sample_description,
)
from unbraid.noise import Noise
from unbraid.runs.run import Run
from unbraid.runs.scores import add_scores, find_score, mark_latest, outdated_scores, read_scores
from unbraid.runtime.progress import ignore_message
from unbraid.scoring.encoding import encode_tables
from unbraid.scoring.factor_table import FactorTable, factor_periods


@dataclass(frozen=True)
class ExampleTable:
    """The examples that are encoded for scoring: a dataset on the device of the runs, and indices of its examples."""

    data: FactorData
    index: torch.Tensor

    @classmethod
    def of(cls, data: FactorData, protocol: Protocol) -> ExampleTable:
        """Return the examples that a protocol selects."""
        index = protocol.grid_indices(data.sizes) if data.gridded else protocol.list_indices(len(data))
        return cls(data, torch.as_tensor(index, device=data.device))

    @cached_property
    def factors(self) -> FactorTable:
        """The factors of the examples."""
        return FactorTable.of(self.data, self.index)

    def identity(self, name: str, protocol: Protocol) -> dict[str, Any]:
        """Return the properties that identify the score of a metric on these examples."""
        sizes = protocol.sizes(len(self.index))
        about = self.factors.continuous, self.factors.missing, factor_periods(self.data)
        return identity(name, protocol.seed, sizes, protocol.draws, *about)


class EncodingQueue:
    """Encodes examples with several runs, in the order of the runs.

    When the posteriors of a run are requested, adjacent runs are encoded together with it where possible. Their
    posteriors stay in memory until they are requested. The posteriors of each run can be requested once.
    """

    def __init__(self, scorers: Sequence[RunScorer]) -> None:
        self.pending = list(scorers)
        self.encoded: dict[int, Gaussian] = {}
        self.posteriors: Iterator[Gaussian] | None = None

    def pop_posterior(self, scorer: RunScorer, on_message: Callable[[str], None]) -> Gaussian:
        """Return the posteriors of the examples of one run, (n, d), and remove them from the queue."""
        if self.posteriors is None:
            self.posteriors = encode_tables([(s.run, s.data, s.index) for s in self.pending], on_message)
        while id(scorer) not in self.encoded:
            self.encoded[id(self.pending.pop(0))] = next(self.posteriors)
        return self.encoded.pop(id(scorer))


class RunScorer:
    """Scores one run with one protocol. The examples are encoded when their codes are first needed.

    In all functions of this class, `kind` is a kind of codes: one of the `code_kinds` of the run's method, such as
    "mean".
    """

    def __init__(self, run: Run, table: ExampleTable, protocol: Protocol) -> None:
        if run.divergence is not None:
            raise UserError(
                f"Run {run.id} diverged at step {run.divergence['step']} and has no codes to score. Leave the run out."
            )
        self.run, self.table, self.data, self.index, self.protocol = run, table, table.data, table.index, protocol
        self.records = [] if run.path is None else read_scores(run.path, sides=True)
        self.sizes = protocol.sizes(len(self.index))
        self.code_rows: dict[str, Rows] = {}
        self.kinds_to_score: set[str] = set()
        self.queue = EncodingQueue([self])

    def record_key(self, name: str, kind: str) -> dict[str, Any]:
        """Return the fields that identify the record of a metric."""
        source = {"codes": kind, "data": self.data.name, "source": getattr(self.data, "fingerprint", None)}
        if isinstance(self.data, SideView) and self.data.name != self.run.spec.data:
            source["side"] = self.data.side
        return {**self.table.identity(name, self.protocol), **source}

    def find_values(self, name: str, kind: str) -> Values | None:
        """Return the values of a metric, or None if they have not been computed."""
        record = find_score(self.records, self.record_key(name, kind))
        return None if record is None else dict(record["values"])

    def missing_metrics(self, names: Iterable[str], kind: str) -> list[str]:
        """Return the metrics that have not been computed. If there are any, add `kind` to `kinds_to_score`."""
        missing = [name for name in names if self.find_values(name, kind) is None]
        if missing:
            self.kinds_to_score.add(kind)
        return missing

    def add_outcome(self, kind: str, outcome: Outcome) -> None:
        """Add new scores to the records and, if the run has a folder, to its file of scores."""
        new = [{**self.record_key(name, kind), "values": values} for name, values in outcome.values.items()]
        self.records = [*self.records, *new] if self.run.path is None else add_scores(self.run.path, new)
        self.kinds_to_score.discard(kind)
        if not self.kinds_to_score:
            self.code_rows = {}

    def mark_latest(self, names: Iterable[str], kinds: Iterable[str]) -> None:
        """Make the scores that were asked for the latest ones in the folder of the run, so that tables show them."""
        keys = [self.record_key(name, kind) for kind in kinds for name in names]
        if self.run.path is not None and outdated_scores(self.records, keys):
            mark_latest(self.run.path, keys)

    def flat_scores(self, names: Iterable[str], kinds: Iterable[str]) -> dict[str, Any]:
        """Return a flat dictionary with the digest and the sample sizes of the protocol, and with all scores.

        The scores have names such as `mig.discrete_mig`.
        """
        flat: dict[str, Any] = {"protocol": identity_digest(self.record_key(name, "") for name in names)}
        flat |= sample_description(self.sizes, self.protocol)
        for kind, name in ((kind, name) for kind in kinds for name in names):
            suffix = "" if kind == self.run.spec.method.code_kinds[0] else f".{kind}"
            flat |= {f"{name}.{key}{suffix}": value for key, value in (self.find_values(name, kind) or {}).items()}
        return flat

    def rows(self, kind: str, on_message: Callable[[str], None] = ignore_message) -> Rows:
        """Return the rows of codes and factors that metrics use. The first call computes all kinds of codes."""
        if not self.code_rows:
            q = self.queue.pop_posterior(self, on_message)
            zero = torch.tensor(0, device=q.mean.device)
            method, seed = self.run.spec.method, zero + self.protocol.seed
            factors, selection = self.table.factors, Selection(self.index.cpu().numpy(), len(self.data))
            for name in method.code_kinds:
                codes = method.code(self.run.net, q, name, Noise.from_seed(seed, zero))
                arrays = codes.cpu().numpy(), *factors
                self.code_rows[name] = self.protocol.rows(*arrays, selection, factor_periods(self.data))
        return self.code_rows[kind]


def share_encoding_queue(scorers: Sequence[RunScorer]) -> None:
    """Give several scorers the same queue. Their runs can then be encoded together."""
    queue = EncodingQueue(scorers)
    for scorer in scorers:
        scorer.queue = queue
