"""The structure of the JSON files in the folder of a run or a study.

`unbraid.runtime.schema` checks files against these classes. A key that a class does not have is allowed, so that a
later release can add keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unbraid.metrics.protocol import Protocol
from unbraid.runtime.schema import WrongContentError

FORMAT = 1
STUDY_REMEDY = "Restore the file from a copy, or delete it and run the command of the study again."
RETRAIN = "Restore the file from a copy, or delete the folder of the run and train the run again."


@dataclass(frozen=True)
class OwnCode:
    """What `run.json` records about the user's own method or network.

    Attributes:
        sources: The digests of the source code of the method and of the network, by name. A method or network that is
            part of unbraid is left out.
        strength: The value of the setting of the method that studies vary.
        codes: The kinds of codes of the method, such as "mean" and "sampled".
        files: The paths of the files of the method and of the network, by name, if the user gave them as paths. If the
            module of a name cannot be imported and the user has consented, the file is imported instead.
    """

    sources: dict[str, str] = field(default_factory=dict)
    strength: float | None = None
    codes: list[str] | None = None
    files: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what tables need to know about a method that is not imported."""
        return {name: value for name in ("strength", "codes") if (value := getattr(self, name))}


@dataclass(frozen=True)
class AnyFormat:
    """The field of `run.json` that says which releases can read the file."""

    format: int


@dataclass(frozen=True)
class RunFile:
    """The content of `run.json`, except the provenance of the run, which is not read.

    `data` is the fingerprint of data that were passed as arrays, or None. `files` is the digest of data that were read
    from the user's own files (see `unbraid.runs.run_data.files_digest`), or None.
    """

    id: str
    spec: dict[str, Any]
    own: OwnCode = OwnCode()
    data: str | None = None
    files: str | None = None


@dataclass(frozen=True)
class DivergedFile:
    """The content of `diverged.json`."""

    step: int
    term: str


@dataclass(frozen=True)
class LogLine:
    """The field that each line of `log.jsonl` has. The other fields are the training terms."""

    step: int


@dataclass(frozen=True)
class ScoreLine:
    """The fields of a line of `scores.jsonl` that readers use."""

    metric: str
    codes: str
    values: dict[str, float]
    rows: dict[str, int] | None = None
    data: str | None = None


@dataclass(frozen=True)
class WeightsFacts:
    """The metadata of `weights.safetensors`.

    Attributes:
        id: The id of the run.
        step: The step at which training ended.
        rounded: The type to which the weights were rounded in a compact copy, such as "float16", or None.
        left_out: The networks that a compact copy leaves out (see `Method.training_networks`).
    """

    id: str
    step: int
    rounded: str | None = None
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CheckpointFacts:
    """The metadata of `checkpoint.safetensors`. Release 0.1 did not write the id."""

    step: int
    log: list[dict[str, float]]
    id: str | None = None


@dataclass(frozen=True)
class StackFile:
    """The content of `stack.json`: the ids of the runs of the stack in which a run is trained, in the stack's order."""

    runs: list[str]


@dataclass(frozen=True)
class Position:
    """The position of a run in the sweep of its study.

    Attributes:
        index: The index of the run in the study.
        strength: The value of the hyperparameter that the study varies.
        level: The index of this value in the sweep, starting at 0.
        variant: The name of a variant of the method, such as "without sparsity".
    """

    index: int | None = None
    strength: float | None = None
    level: int | None = None
    variant: str | None = None


@dataclass(frozen=True)
class StudyFile:
    """The content of `study.json`.

    Old studies did not record their protocol. They sampled rows in the same way as the reference library
    (disentanglement_lib), so the default protocol has `draws="reference"`.
    """

    places: dict[str, Position]
    protocol: Protocol = Protocol(draws="reference")

    def __post_init__(self) -> None:
        lowest = {"train": 1, "test": 1, "table": 1, "seed": 0}
        for name, low in lowest.items():
            if (value := getattr(self.protocol, name)) < low:
                raise WrongContentError(f"The field 'protocol.{name}' must be >= {low}. Got {value} instead.")
