"""What one run has learned: which code tells of which factor, what it makes of examples, what each latent does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.methods.controls import Controls
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.protocol import Array, Protocol
from unbraid.metrics.trees import boosted_trees, remembered
from unbraid.noise import Noise
from unbraid.pictures.dataset import as_pictures, has_meshes, mesh_pictures
from unbraid.pictures.traversal import sweep
from unbraid.reporting.images import strip
from unbraid.runs.run import Run
from unbraid.scoring.encoding import encode_table

ROWS = 10_000  # examples that heat maps are made from
COLUMNS = 9  # pictures a latent
SPAN = 2.0  # standard deviations of the prior, or radians
SHOWN = 8  # examples that are decoded
FACTORS = 40  # at most, in heat maps


@dataclass(frozen=True)
class Examples:
    """The examples a page starts from."""

    index: Tensor
    x: Tensor

    @classmethod
    def of(cls, data: FactorData, count: int) -> Examples:
        """Some examples, the same for every run on the data."""
        chosen = np.random.default_rng(7).choice(len(data), min(count, len(data)), replace=False)
        index = torch.from_numpy(np.sort(chosen)).to(data.device)
        return cls(index, data.batch(index))


def drawable(data: FactorData) -> bool:
    """Whether examples can be shown as pictures."""
    return len(data.shape) == 3 or has_meshes(data)


def drawn(examples: Tensor, data: FactorData) -> list[Tensor]:
    """Decoded examples as pictures."""
    return list(examples.cpu()) if len(data.shape) == 3 else mesh_pictures(examples, data)


@torch.no_grad()
def detail(run: Run, data: FactorData, examples: Examples) -> dict[str, Any]:
    """Everything the page shows of one run beside its scores, and its knobs where it has a decoder."""
    index = torch.as_tensor(Protocol(table=ROWS).some(len(data)), device=data.device)
    q = encode_table(run, data, index)
    codes, names = _codes(run, q)
    found: dict[str, Any] = {"codes": names, "nats": None, "factors": [], "information": [], "importances": []}
    nats = run.spec.method.information(q)
    if nats is not None and len(nats) == len(names):
        found["nats"] = [round(float(value), 4) for value in nats]
    if data.names:
        found |= _heat(codes, data.factors(index).cpu().numpy()[:, :FACTORS], list(data.names[:FACTORS]))
    if run.net.decoder is None:
        return found
    controls = run.spec.method.controls(run.net, run.net.encode(examples.x), q)
    if drawable(data):
        found["reconstructions"] = _reconstructions(run, data, examples, controls)
        found["traversals"] = _traversals(run, data, found)
    return {**found, "controls": knobs(controls, found)}


def _codes(run: Run, q: Any) -> tuple[Array, list[str]]:
    """Codes whose columns a person would name: those the metrics see, or of subspaces one number each."""
    method = run.spec.method
    kind = "components" if "components" in method.code_kinds else method.code_kinds[0]
    zero = torch.tensor(0, device=q.mean.device)
    codes = method.code(run.net, q, kind, Noise.of(zero, zero)).cpu().numpy()
    noun = {"components": "subspace", "ambient": "coordinate"}.get(kind, "latent")
    return codes, [f"{noun} {i}" for i in range(codes.shape[1])]


def _heat(codes: Array, factors: Array, names: list[str]) -> dict[str, Any]:
    """Information as a share of each factor's entropy, and the importances of DCI, both (codes, factors)."""
    moving = [j for j in range(factors.shape[1]) if np.ptp(factors[:, j]) > 0]
    factors, kept = factors[:, moving], [names[j] for j in moving]
    if not kept:
        return {}
    told = mutual_information(discretise(codes), factors) / entropy(factors)
    with remembered():
        trees = [boosted_trees(codes, column).importances("mean") for column in factors.T]
    return {"factors": kept, "information": _rounded(told), "importances": _rounded(np.stack(trees, 1))}


def _rounded(matrix: Array) -> list[list[float]]:
    return [[round(float(value), 3) for value in row] for row in matrix]


def _reconstructions(run: Run, data: FactorData, examples: Examples, controls: Controls) -> list[dict[str, Any]]:
    """A row of examples and a row of what the run makes of their codes."""
    index = examples.index[:SHOWN]
    latents = torch.cat([controls.place(controls.start[i : i + 1], i) for i in range(len(index))])
    made = drawn(run.decode(latents), data)
    first = strip(as_pictures(data, index), f"{len(index)} examples of {data.name}")
    return [first, strip(made, f"the same {len(index)} examples as {run.label} reconstructs them")]


def _traversals(run: Run, data: FactorData, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A strip a direction with its name, the nats it carries and the factor its code tells most of."""
    middle = [[size // 2 for size in data.sizes]]
    example = int(data.index(middle)[0]) if data.gridded else len(data) // 2
    walked = sweep(run, data, example, torch.linspace(-SPAN, SPAN, COLUMNS))
    rows = []
    for label, decoded in zip(walked.labels, walked.images, strict=True):
        name, _, rest = label.partition("\n")
        factor = carried(name, found)
        words = f"{name} moved from -{SPAN:g} to {SPAN:g}" + (f"; it tells most of {factor['name']}" if factor else "")
        rows.append({"name": name, "note": rest, "factor": factor, **strip(drawn(decoded, data), words)})
    return rows


def knobs(controls: Controls, found: dict[str, Any]) -> dict[str, Any]:
    """The controls as JSON, each with the nats and the factor of its code."""
    told = [carried(name, found) for name in controls.names]
    numbers = [re.search(r"\d+$", name) for name in controls.names] if found["nats"] else []
    nats = [found["nats"][int(number[0])] if number else None for number in numbers]
    return {**controls.to_dict(), "factors": told, "nats": nats or [None] * len(told)}


def carried(name: str, found: dict[str, Any]) -> dict[str, Any] | None:
    """The factor that the code of this name tells most of, with the share of its entropy."""
    number = re.fullmatch(r"(latent|subspace|appearance|perspective) (\d+)", name)
    if number is None or not found["information"] or int(number[2]) >= len(found["information"]):
        return None
    shares = found["information"][int(number[2])]
    best = max(range(len(shares)), key=shares.__getitem__)
    return {"name": found["factors"][best], "share": shares[best]}
