"""The conversion of a trained decoder to a program that a web page can run without PyTorch.

A program is a graph and one byte string with all weights in half precision. `torch.export` traces the decoder, and
`tracing.py` converts the traced graph. The page runs the program with the scripts in `SCRIPTS`.

Half precision has 11 significant bits. Rounding the weights of large layers changes a pixel by a fraction of a grey
level. In two kinds of layers, each weight is stored in two parts, the rounded weight and the rounding error. The
first kind is small layers, for which the second part takes little space. The second kind is layers that compute the map
with which VITAE warps an image, because a small error in this map would move whole edges.

A run with precision bf16 rounds the inputs of matrix products and convolutions to bf16. The page does not
round them. For such a run, the pixels on the page differ by a few grey levels from those that PyTorch decodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unbraid.errors import UserError
from unbraid.exporting.plain_network import Decoder, plain_copy
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import VitaeDecoder
from unbraid.reporting.graph import Graph, Value
from unbraid.reporting.layers import write_constant_linear
from unbraid.reporting.tracing import write_module
from unbraid.reporting.weights import EXPLORE_HINT
from unbraid.spaces.cpab import Tessellation, velocity
from unbraid.spaces.expm import SQUARINGS
from unbraid.spaces.transformers import Affine, AffineDecomposed, AffineDiffeomorphic, Cpab, Transformer

SCRIPTS = ("warp.js", "convolution.js", "operators.js", "decoder.js", "controls.js")
"""Files in `assets`, in the order in which a page loads them."""


@dataclass(frozen=True)
class Program:
    """A decoder as a graph and its weights.

    Attributes:
        spec: A dictionary with the number of `latents`, the `shape` of an example, the list `nodes` (see `graph.py`),
            and the index `output` of the node that computes the mean of the likelihood. A node gives the offset of its
            weights, in elements. If its `parts` is 2, the weight is the sum of two tensors, of which the second is
            stored directly after the first.
        weights: All tensors one after the other, as little-endian float16.
    """

    spec: dict[str, Any]
    weights: bytes


def decoder_program(net: VAENet, shape: tuple[int, ...], latents: int) -> Program:
    """Convert the decoder of a network to a program.

    Args:
        net: The network.
        shape: The shape of an example.
        latents: The number of latents.

    Raises:
        UserError: If there is no decoder, a page cannot run an operator, or a weight is too large for half precision.
    """
    if net.decoder is None:
        raise UserError("This method trains an encoder only, so there is no decoder for a page.")
    net, graph = plain_copy(net), Graph()
    z = graph.add("input", [], (1, latents))
    output = _write_vitae(graph, net.decoder, z) if type(net.decoder) is VitaeDecoder else _write_decoder(graph, net, z)
    if output.shape != (1, *shape):
        raise UserError(
            f"The decoder must return examples of shape {tuple(shape)}. It returned {output.shape} for one code. "
            f"{EXPLORE_HINT}"
        )
    spec = {"latents": latents, "shape": list(shape), "nodes": graph.nodes, "output": output.index}
    return Program(spec, graph.weights.content())


def _write_decoder(graph: Graph, net: VAENet, z: Value) -> Value:
    return write_module(graph, Decoder(net).eval(), z)


def _write_vitae(graph: Graph, decoder: VitaeDecoder, z: Value) -> Value:
    """Write the decoder of VITAE.

    The first latents are decoded to an image. The other latents are decoded to a map that warps this image.
    """
    split, rest = decoder.split, z.shape[1] - decoder.split
    image = write_module(graph, _Appearance(decoder).eval(), graph.view(z, (1, split), (z.shape[1], 1), 0))
    graph.weights.exact = True
    parameters = write_module(graph, decoder.perspective, graph.view(z, (1, rest), (z.shape[1], 1), split))
    if parameters.shape != (1, decoder.transformer.dim):
        raise UserError(
            f"A map has {decoder.transformer.dim} parameters. Got shape {parameters.shape} instead. {EXPLORE_HINT}"
        )
    transform, parameters = _write_transform(graph, decoder.transformer, parameters)
    return graph.add("warp", [image, parameters], image.shape, transform=transform)


class _Appearance(nn.Module):
    """The part of the decoder of VITAE that decodes the image before it is warped."""

    def __init__(self, decoder: VitaeDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, z: Tensor) -> Tensor:
        return self.decoder.decode_appearance(z)


def _write_transform(graph: Graph, transformer: Transformer, parameters: Value) -> tuple[dict[str, Any], Value]:
    """Return the name and settings of a family of maps, and the numbers that the page needs to evaluate one map."""
    name = type(transformer).name
    if type(transformer) in (Affine, AffineDecomposed):
        return {"name": name}, parameters
    if type(transformer) is AffineDiffeomorphic:
        bounds = {"stretch": transformer.stretch, "turn": transformer.turn}
        return {"name": name, **bounds, "squarings": SQUARINGS}, parameters
    if isinstance(transformer, Cpab) and transformer.method == "steps":
        cells, steps = transformer.cells, transformer.steps
        squarings = max(0, SQUARINGS + 1 - steps.bit_length())  # as in `cpab.step_table`
        settings = {"nx": cells.nx, "ny": cells.ny, "steps": steps, "squarings": squarings}
        return {"name": name, **settings}, write_constant_linear(graph, parameters, _vertex_velocities(cells))
    raise UserError(f"A page cannot warp images with {transformer}. {EXPLORE_HINT}")


def _vertex_velocities(t: Tessellation) -> Tensor:
    """Return the matrix that maps the parameters of a velocity field to its velocities at all vertices.

    The vertices are first the corners and then the centres of the rectangles of the tessellation, each row by row. The
    field is affine on each triangle, so these velocities determine it. The page stores this matrix instead of the basis
    of the fields, because the matrix has far fewer entries.
    """
    corners = [(i / t.nx, j / t.ny) for j in range(t.ny + 1) for i in range(t.nx + 1)]
    centres = [((i + 0.5) / t.nx, (j + 0.5) / t.ny) for j in range(t.ny) for i in range(t.nx)]
    points = torch.tensor(corners + centres, dtype=torch.float64)
    return velocity(t, torch.eye(t.dim, dtype=torch.float64), points).flatten(1).T
