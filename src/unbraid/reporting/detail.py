"""What one run has learned: which code tells of which factor, what it makes of examples, what each latent does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.methods.controls import Controls
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.protocol import Array, Protocol
from unbraid.metrics.trees import boosted_trees, cached_fits
from unbraid.pictures.examples import decoded_images, example_images, is_drawable, middle_example
from unbraid.pictures.traversal import decode_traversal
from unbraid.reporting.images import picture_row
from unbraid.runs.run import Run
from unbraid.scoring.encoding import encode_table

ROWS = 10_000  # examples that heat maps are made from
COLUMNS = 9  # pictures a latent
SPAN = 2.0  # standard deviations of the prior, or radians
RECONSTRUCTED = 8  # examples that are decoded
MOST_FACTORS = 40  # at most, in heat maps


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


@torch.no_grad()
def run_detail(run: Run, data: FactorData, examples: Examples) -> dict[str, Any]:
    """Everything the page shows of one run beside its scores, and its knobs where it has a decoder."""
    index = torch.as_tensor(Protocol(table=ROWS).list_indices(len(data)), device=data.device)
    q = encode_table(run, data, index)
    codes, names = _codes(run, q)
    found: dict[str, Any] = {"codes": names, "nats": None, "factors": [], "information": [], "importances": []}
    nats = run.spec.method.information(q)
    if nats is not None and len(nats) == len(names):
        found["nats"] = [round(float(value), 4) for value in nats]
    if data.names:
        found |= _heat(codes, data.factors(index).cpu().numpy()[:, :MOST_FACTORS], list(data.names[:MOST_FACTORS]))
    if run.net.decoder is None:
        return found
    controls = run.spec.method.controls(run.net, run.net.encode(examples.x), q)
    if is_drawable(data):
        found["reconstructions"] = _reconstructions(run, data, examples, controls)
        found["traversals"] = _traversals(run, data, found)
    return {**found, "controls": controls_json(controls, found)}


def _codes(run: Run, q: Any) -> tuple[Array, list[str]]:
    """Codes whose columns a person would name: those the metrics see, or of subspaces one number each."""
    codes = run.codes(q, run.spec.method.column_code_kind).cpu().numpy()
    return codes, run.spec.method.column_names(codes.shape[1])


def _heat(codes: Array, factors: Array, names: list[str]) -> dict[str, Any]:
    """Information as a share of each factor's entropy, and the importances of DCI, both (codes, factors)."""
    moving = [j for j in range(factors.shape[1]) if np.ptp(factors[:, j]) > 0]
    factors, kept = factors[:, moving], [names[j] for j in moving]
    if not kept:
        return {}
    told = mutual_information(discretise(codes), factors) / entropy(factors)
    with cached_fits():
        trees = [boosted_trees(codes, column).importances("mean") for column in factors.T]
    return {"factors": kept, "information": _rounded(told), "importances": _rounded(np.stack(trees, 1))}


def _rounded(matrix: Array) -> list[list[float]]:
    return [[round(float(value), 3) for value in row] for row in matrix]


def _reconstructions(run: Run, data: FactorData, examples: Examples, controls: Controls) -> list[dict[str, Any]]:
    """A row of examples and a row of what the run makes of their codes."""
    index = examples.index[:RECONSTRUCTED]
    latents = torch.cat([controls.to_latents(controls.start[i : i + 1], i) for i in range(len(index))])
    made = decoded_images(run.decode(latents), data)
    first = picture_row(example_images(data, index), f"{len(index)} examples of {data.name}")
    return [first, picture_row(made, f"the same {len(index)} examples as {run.label} reconstructs them")]


def _traversals(run: Run, data: FactorData, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A strip a direction with its name, the nats it carries and the factor its code tells most of."""
    traversal = decode_traversal(run, data, middle_example(data), torch.linspace(-SPAN, SPAN, COLUMNS))
    rows = []
    for label, decoded in zip(traversal.labels, traversal.decoded, strict=True):
        factor = main_factor(label.column, found)
        words = f"{label.name} moved from -{SPAN:g} to {SPAN:g}"
        words += f"; it tells most of {factor['name']}" if factor else ""
        tiles = picture_row(decoded_images(decoded, data), words)
        rows.append({"name": label.name, "note": label.note, "factor": factor, **tiles})
    return rows


def controls_json(controls: Controls, found: dict[str, Any]) -> dict[str, Any]:
    """The controls as JSON, each with the nats and the factor of its code."""
    columns = [controls.column(i) for i in range(len(controls.names))]
    nats = [None if column is None or not found["nats"] else found["nats"][column] for column in columns]
    return {**controls.to_dict(), "factors": [main_factor(column, found) for column in columns], "nats": nats}


def main_factor(column: int | None, found: dict[str, Any]) -> dict[str, Any] | None:
    """The factor that this column of the code tells most of, with the share of its entropy, or None."""
    if column is None or column >= len(found["information"]):
        return None
    shares = found["information"][column]
    best = max(range(len(shares)), key=shares.__getitem__)
    return {"name": found["factors"][best], "share": shares[best]}
