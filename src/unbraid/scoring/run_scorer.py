"""The scores of one run: which exist already, the codes that metrics need, and records of new scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.metrics.protocol import (
    Outcome,
    Protocol,
    Rows,
    Values,
    identity,
    identity_digest,
    sample_description,
)
from unbraid.noise import Noise
from unbraid.runs.run import Run
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.runtime.progress import ignore_message
from unbraid.scoring.encoding import encode_tables


@dataclass(frozen=True)
class ExampleTable:
    """The examples that are encoded for scoring: a dataset on the device of the runs, and indices into it."""

    data: FactorData
    index: torch.Tensor

    @classmethod
    def of(cls, data: FactorData, protocol: Protocol) -> ExampleTable:
        """The examples that a protocol selects."""
        index = protocol.grid_indices(data.sizes) if data.gridded else protocol.list_indices(len(data))
        return cls(data, torch.as_tensor(index, device=data.device))


class EncodingQueue:
    """Encodes runs in order. The first run that is requested is encoded together with as many neighbours as possible.

    Posteriors that were computed early are held until they are requested, and given out once.
    """

    def __init__(self, scorers: Sequence[RunScorer]) -> None:
        self.pending = list(scorers)
        self.encoded: dict[int, Gaussian] = {}
        self.posteriors: Iterator[Gaussian] | None = None

    def pop_posterior(self, scorer: RunScorer, on_note: Callable[[str], None]) -> Gaussian:
        """The posteriors of the examples of one run, (n, d)."""
        if self.posteriors is None:
            self.posteriors = encode_tables([(s.run, s.data, s.index) for s in self.pending], on_note)
        while id(scorer) not in self.encoded:
            self.encoded[id(self.pending.pop(0))] = next(self.posteriors)
        return self.encoded.pop(id(scorer))


class RunScorer:
    """Scores of one run under one protocol. Codes are encoded when they are first needed.

    `kind` is always a kind of codes: one of the method's `code_kinds`.
    """

    def __init__(self, run: Run, table: ExampleTable, protocol: Protocol) -> None:
        if run.divergence is not None:
            raise UserError(
                f"Run {run.id} diverged at step {run.divergence['step']} and has no codes to score. Leave it out."
            )
        self.run, self.data, self.index, self.protocol = run, table.data, table.index, protocol
        self.records = [] if run.path is None else read_scores(run.path)
        self.sizes = protocol.sizes(len(self.index))
        self.code_rows: dict[str, Rows] = {}
        self.kinds_to_score: set[str] = set()
        self.queue = EncodingQueue([self])

    def record_key(self, name: str, kind: str) -> dict[str, Any]:
        """The fields in which a record must agree to be the record of this score."""
        about = {"codes": kind, "data": self.data.name, "source": getattr(self.data, "fingerprint", None)}
        return {**identity(name, self.protocol.seed, self.sizes, self.protocol.draws), **about}

    def find_values(self, name: str, kind: str) -> Values | None:
        """The values of a metric if they have been computed, else None."""
        record = find_score(self.records, self.record_key(name, kind))
        return None if record is None else dict(record["values"])

    def missing_metrics(self, names: Iterable[str], kind: str) -> list[str]:
        """The metrics that have not been computed. If there are any, `kind` is noted as still to be scored."""
        missing = [name for name in names if self.find_values(name, kind) is None]
        if missing:
            self.kinds_to_score.add(kind)
        return missing

    def add_outcome(self, kind: str, outcome: Outcome) -> None:
        """Add new scores to the records, and to the folder of the run if it has one."""
        new = [{**self.record_key(name, kind), "values": values} for name, values in outcome.values.items()]
        self.records = [*self.records, *new] if self.run.path is None else add_scores(self.run.path, new)
        self.kinds_to_score.discard(kind)
        if not self.kinds_to_score:
            self.code_rows = {}

    def flat_scores(self, names: Iterable[str], kinds: Iterable[str]) -> dict[str, Any]:
        """The digest and the sample sizes of the protocol, and all scores under flat names."""
        flat: dict[str, Any] = {"protocol": identity_digest(self.record_key(name, "") for name in names)}
        flat |= sample_description(self.sizes, self.protocol)
        for kind, name in ((kind, name) for kind in kinds for name in names):
            suffix = "" if kind == self.run.spec.method.code_kinds[0] else f".{kind}"
            flat |= {f"{name}.{key}{suffix}": value for key, value in (self.find_values(name, kind) or {}).items()}
        return flat

    def rows(self, kind: str, on_note: Callable[[str], None] = ignore_message) -> Rows:
        """The rows of codes and factors that metrics use. The first call encodes all kinds of codes of the run."""
        if not self.code_rows:
            q = self.queue.pop_posterior(self, on_note)
            zero = torch.tensor(0, device=q.mean.device)
            method, seed = self.run.spec.method, zero + self.protocol.seed
            factors = self.data.factors(self.index).cpu().numpy()
            for name in method.code_kinds:
                code = method.code(self.run.net, q, name, Noise.from_seed(seed, zero))
                self.code_rows[name] = self.protocol.rows(code.cpu().numpy(), factors)
        return self.code_rows[kind]


def share_encoding_queue(scorers: Sequence[RunScorer]) -> None:
    """Let scorers encode their runs through one queue, so that runs can be encoded together."""
    queue = EncodingQueue(scorers)
    for scorer in scorers:
        scorer.queue = queue
