"""The details of one run on a page: heat maps of codes and factors, reconstructions, traversals and sliders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.methods.controls import Controls
from unbraid.metrics.labels import as_labels
from unbraid.metrics.protocol import Array, Protocol
from unbraid.metrics.trees import boosted_regression, boosted_trees, cached_fits
from unbraid.pictures.examples import decoded_images, example_images, is_drawable, middle_example
from unbraid.pictures.traversal import decode_traversal
from unbraid.reporting.images import picture_row
from unbraid.runs.run import Run
from unbraid.scoring.code_statistics import information_shares, varying_columns
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.factor_table import FactorTable

N_HEAT_MAP_EXAMPLES = 10_000  # number of examples for the heat maps
COLUMNS = 9  # number of pictures per latent in a traversal
SPAN = 2.0  # traversals run from -SPAN to SPAN, in standard deviations of the prior or in radians
N_RECONSTRUCTIONS = 8  # number of examples that are reconstructed
MAX_FACTORS = 40  # maximum number of factors in the heat maps


@dataclass(frozen=True)
class Examples:
    """The examples from which the sliders of a page can start.

    Attributes:
        index: The indices of the examples in the dataset.
        x: The examples.
    """

    index: Tensor
    x: Tensor

    @classmethod
    def choose(cls, data: FactorData, count: int) -> Examples:
        """Choose examples at random. The choice is the same for every run on the data."""
        chosen = np.random.default_rng(7).choice(len(data), min(count, len(data)), replace=False)
        index = torch.from_numpy(np.sort(chosen)).to(data.device)
        return cls(index, data.batch(index))


@torch.no_grad()
def run_detail(run: Run, data: FactorData, examples: Examples) -> dict[str, Any]:
    """Return everything that the page shows about one run, except its scores.

    Sliders are included if the run has a decoder. Pictures are included if the run has a decoder and the data can be
    drawn.
    """
    index = torch.as_tensor(Protocol(table=N_HEAT_MAP_EXAMPLES).list_indices(len(data)), device=data.device)
    q = encode_table(run, data, index)
    codes, names = _column_codes(run, q)
    detail: dict[str, Any] = {"codes": names, "nats": None, "factors": []}
    detail |= {"information": [], "floor": [], "importances": []}
    nats = run.spec.method.information(q)
    if nats is not None and len(nats) == len(names):
        detail["nats"] = [round(float(value), 4) for value in nats]
    if data.names:
        detail |= _heat_maps(codes, data, index)
    if run.net.decoder is None:
        return detail
    controls = run.spec.method.controls(run.net, run.net.encode(examples.x), q)
    if is_drawable(data):
        detail["reconstructions"] = _reconstructions(run, data, examples, controls)
        detail["traversals"] = _traversals(run, data, detail)
    return {**detail, "controls": controls_json(controls, detail)}


def _column_codes(run: Run, q: Any) -> tuple[Array, list[str]]:
    """Return the codes of a run, with one column per latent or subspace, and the names of these columns."""
    codes = run.codes(q, run.spec.method.column_code_kind).cpu().numpy()
    return codes, run.spec.method.column_names(codes.shape[1])


def _heat_maps(codes: Array, data: FactorData, index: Tensor) -> dict[str, Any]:
    """Return two heat maps of shape (columns of codes, factors), and the names of the factors.

    The heat map "information" has the mutual information of each column and factor, divided by the entropy of the
    factor. The list "floor" has one number per factor: the value of this ratio for codes without information about the
    factor. The heat map "importances" has the importances of DCI. For each factor, examples without a label of this
    factor are left out. Factors that do not vary are omitted.
    """
    factors = FactorTable.of(data, index)
    varying = varying_columns(factors.values)[:MAX_FACTORS]
    if not varying:
        return {}
    factors = factors.select(varying)
    fractions, floor = information_shares(codes, *factors)
    with cached_fits():
        importances = [
            (boosted_regression if column.continuous else boosted_trees)(codes[column.rows], column.values).importances(
                "mean"
            )
            for column in as_labels(*factors).columns()
        ]
    return {
        "factors": [data.names[j] for j in varying],
        "information": _round_matrix(fractions),
        "floor": _round_matrix(floor[None])[0],
        "importances": _round_matrix(np.stack(importances, 1)),
    }


def _round_matrix(matrix: Array) -> list[list[float]]:
    return [[round(float(value), 3) for value in row] for row in matrix]


def _reconstructions(run: Run, data: FactorData, examples: Examples, controls: Controls) -> list[dict[str, Any]]:
    """Return two rows of pictures: examples, and their reconstructions by the run."""
    index = examples.index[:N_RECONSTRUCTIONS]
    latents = torch.cat([controls.to_latents(controls.start[i : i + 1], i) for i in range(len(index))])
    reconstructed = decoded_images(run.decode(latents), data)
    first = picture_row(example_images(data, index), f"{len(index)} examples of {data.name}")
    return [first, picture_row(reconstructed, f"reconstructions of the same {len(index)} examples by {run.label}")]


def _traversals(run: Run, data: FactorData, detail: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row of pictures per latent, with its name, a note, and the factor that it encodes best."""
    traversal = decode_traversal(run, data, middle_example(data), torch.linspace(-SPAN, SPAN, COLUMNS))
    rows = []
    for label, decoded in zip(traversal.labels, traversal.decoded, strict=True):
        factor = main_factor(label.column, detail)
        description = f"{label.name} moved from -{SPAN:g} to {SPAN:g}"
        description += f"; it encodes {factor['name']} best" if factor else ""
        tiles = picture_row(decoded_images(decoded, data), description)
        rows.append({"name": label.name, "note": label.note, "factor": factor, **tiles})
    return rows


def controls_json(controls: Controls, detail: dict[str, Any]) -> dict[str, Any]:
    """Return the sliders as JSON, with the information of each latent in nats and the factor that it encodes best."""
    columns = [controls.column(i) for i in range(len(controls.names))]
    nats = [None if column is None or not detail["nats"] else detail["nats"][column] for column in columns]
    return {**controls.to_dict(), "factors": [main_factor(column, detail) for column in columns], "nats": nats}


def main_factor(column: int | None, detail: dict[str, Any]) -> dict[str, Any] | None:
    """Return the factor about which a column of codes has the most information, or None if the column is unknown.

    In the result, "share" is this information as a fraction of the entropy of the factor, and "floor" is the share for
    codes without information about the factor.
    """
    if column is None or column >= len(detail["information"]):
        return None
    fractions = detail["information"][column]
    best = max(range(len(fractions)), key=fractions.__getitem__)
    return {"name": detail["factors"][best], "share": fractions[best], "floor": detail["floor"][best]}
