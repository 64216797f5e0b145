"""The details of one run on a page: what its codes encode, reconstructions, traversals and controls."""

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

N_HEAT_MAP_EXAMPLES = 10_000  # examples for the heat maps
COLUMNS = 9  # pictures per latent
SPAN = 2.0  # traversals run from -SPAN to SPAN, in standard deviations of the prior or in radians
N_RECONSTRUCTIONS = 8  # examples that are reconstructed
MAX_FACTORS = 40  # most factors in the heat maps


@dataclass(frozen=True)
class Examples:
    """The examples that a page starts from, and their indices in the dataset."""

    index: Tensor
    x: Tensor

    @classmethod
    def of(cls, data: FactorData, count: int) -> Examples:
        """A random choice of examples, the same for every run on the data."""
        chosen = np.random.default_rng(7).choice(len(data), min(count, len(data)), replace=False)
        index = torch.from_numpy(np.sort(chosen)).to(data.device)
        return cls(index, data.batch(index))


@torch.no_grad()
def run_detail(run: Run, data: FactorData, examples: Examples) -> dict[str, Any]:
    """Everything that the page shows of one run except its scores; with controls if the run has a decoder."""
    index = torch.as_tensor(Protocol(table=N_HEAT_MAP_EXAMPLES).list_indices(len(data)), device=data.device)
    q = encode_table(run, data, index)
    codes, names = _column_codes(run, q)
    found: dict[str, Any] = {"codes": names, "nats": None, "factors": [], "information": [], "importances": []}
    nats = run.spec.method.information(q)
    if nats is not None and len(nats) == len(names):
        found["nats"] = [round(float(value), 4) for value in nats]
    if data.names:
        found |= _heat_maps(codes, data.factors(index).cpu().numpy()[:, :MAX_FACTORS], list(data.names[:MAX_FACTORS]))
    if run.net.decoder is None:
        return found
    controls = run.spec.method.controls(run.net, run.net.encode(examples.x), q)
    if is_drawable(data):
        found["reconstructions"] = _reconstructions(run, data, examples, controls)
        found["traversals"] = _traversals(run, data, found)
    return {**found, "controls": controls_json(controls, found)}


def _column_codes(run: Run, q: Any) -> tuple[Array, list[str]]:
    """The codes of a run with one column per latent or subspace, and the names of the columns."""
    codes = run.codes(q, run.spec.method.column_code_kind).cpu().numpy()
    return codes, run.spec.method.column_names(codes.shape[1])


def _heat_maps(codes: Array, factors: Array, names: list[str]) -> dict[str, Any]:
    """The information of each code about each factor as a share of the entropy, and the importances of DCI.

    Both have shape (codes, factors). Factors that do not vary are left out.
    """
    varying = [j for j in range(factors.shape[1]) if np.ptp(factors[:, j]) > 0]
    factors, names = factors[:, varying], [names[j] for j in varying]
    if not names:
        return {}
    shares = mutual_information(discretise(codes), factors) / entropy(factors)
    with cached_fits():
        importances = [boosted_trees(codes, column).importances("mean") for column in factors.T]
    return {
        "factors": names,
        "information": _round_matrix(shares),
        "importances": _round_matrix(np.stack(importances, 1)),
    }


def _round_matrix(matrix: Array) -> list[list[float]]:
    return [[round(float(value), 3) for value in row] for row in matrix]


def _reconstructions(run: Run, data: FactorData, examples: Examples, controls: Controls) -> list[dict[str, Any]]:
    """Two rows of pictures: examples, and their reconstructions by the run."""
    index = examples.index[:N_RECONSTRUCTIONS]
    latents = torch.cat([controls.to_latents(controls.start[i : i + 1], i) for i in range(len(index))])
    reconstructed = decoded_images(run.decode(latents), data)
    first = picture_row(example_images(data, index), f"{len(index)} examples of {data.name}")
    return [first, picture_row(reconstructed, f"reconstructions of the same {len(index)} examples by {run.label}")]


def _traversals(run: Run, data: FactorData, found: dict[str, Any]) -> list[dict[str, Any]]:
    """One row of pictures per direction, with its name, its information in nats, and the factor it encodes best."""
    traversal = decode_traversal(run, data, middle_example(data), torch.linspace(-SPAN, SPAN, COLUMNS))
    rows = []
    for label, decoded in zip(traversal.labels, traversal.decoded, strict=True):
        factor = main_factor(label.column, found)
        words = f"{label.name} moved from -{SPAN:g} to {SPAN:g}"
        words += f"; it encodes {factor['name']} best" if factor else ""
        tiles = picture_row(decoded_images(decoded, data), words)
        rows.append({"name": label.name, "note": label.note, "factor": factor, **tiles})
    return rows


def controls_json(controls: Controls, found: dict[str, Any]) -> dict[str, Any]:
    """The controls as JSON, each with the information of its code in nats and the factor that it encodes best."""
    columns = [controls.column(i) for i in range(len(controls.names))]
    nats = [None if column is None or not found["nats"] else found["nats"][column] for column in columns]
    return {**controls.to_dict(), "factors": [main_factor(column, found) for column in columns], "nats": nats}


def main_factor(column: int | None, found: dict[str, Any]) -> dict[str, Any] | None:
    """The factor about which a column of the code has most information, with its share of the entropy, or None."""
    if column is None or column >= len(found["information"]):
        return None
    shares = found["information"][column]
    best = max(range(len(shares)), key=shares.__getitem__)
    return {"name": found["factors"][best], "share": shares[best]}
