"""Stored graphs compute the same as the modules that were traced, for any batch size, and cannot do anything else."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unbraid.adoption.tracing import trace_graph
from unbraid.errors import UserError
from unbraid.nets.graph import GraphNetwork, find_operation


class Residual(nn.Module):
    """Residual blocks with normalisations, attention, a constant and sizes that depend on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.group, self.batch, self.layer = nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.LayerNorm(8)
        self.register_buffer("grid", torch.linspace(0, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h + F.gelu(self.group(self.second(h))) + self.grid
        h = F.interpolate(self.batch(h), scale_factor=2)[..., :8] + torch.full_like(h[:, :, :1], -torch.inf).exp()
        h = self.layer(F.scaled_dot_product_attention(h, h, h))
        return h.reshape(x.shape[0] * 2, -1).view(x.size(0), -1).softmax(1)


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 2), nn.Tanh()), (3,)),
    "conv": (nn.Sequential(nn.Conv2d(2, 3, 4, 2, 1), nn.LeakyReLU(0.1), nn.Dropout(), nn.Flatten()), (2, 8, 8)),
    "transposed": (
        nn.Sequential(nn.Linear(3, 16), nn.Unflatten(1, (4, 2, 2)), nn.ConvTranspose2d(4, 2, 4, 2, 1), nn.ELU()), (3,)
    ),
    "residual": (Residual(), (2, 8, 8)),
    "circular": (nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.ReLU()), (2, 8, 8)),
    "pooled": (nn.Sequential(nn.AdaptiveMaxPool2d(3), nn.Flatten()), (2, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["conv", *(pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS if name != "conv")]
)
def test_a_stored_graph_computes_the_same_for_any_batch_size(name: str) -> None:
    module, shape = NETWORKS[name]
    module.eval()
    graph, tensors = trace_graph(module, torch.rand(8, *shape), "encoder")
    network = GraphNetwork(json.loads(json.dumps(graph)), tensors)
    for size in (1, 2, 7):
        x = torch.randn(size, *shape)
        torch.testing.assert_close(network(x), module(x), atol=1e-5, rtol=1e-5)
    again, more = trace_graph(network, torch.rand(8, *shape), "encoder")  # a stored network can be exported again
    torch.testing.assert_close(GraphNetwork(again, more)(x), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
def test_upsampling_of_torchscript_is_stored(mode: str) -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Upsample(scale_factor=2, mode=mode)).eval()
    x = torch.rand(8, 2, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, x)
    graph, tensors = trace_graph(traced, x, "encoder")
    torch.testing.assert_close(GraphNetwork(json.loads(json.dumps(graph)), tensors)(x), module(x))


@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default", "aten.relu_.default", "aten.as_strided.default", "aten.empty.memory_format",
        "aten.rand.default", "aten.set_.source_Storage", "aten.nothing.default", "aten.__class__.default",
        "prims.add.default", "os.system", "system", "aten.relu", "__import__",
    ],
)  # fmt: skip
def test_a_graph_with_another_operation_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot be part of a stored network"):
        find_operation(name)
    with pytest.raises(UserError, match="cannot be part of a stored network"):
        GraphNetwork({"nodes": [{"op": name, "args": []}], "output": {"node": "n0"}}, {})


@pytest.mark.parametrize(
    "graph",
    [
        {}, {"nodes": [], "output": {"node": "n0"}}, {"nodes": [{"op": "mul"}], "output": {"node": "n0"}},
        {"nodes": [{"op": "mul", "args": [{"node": "n0"}, 1]}], "output": {"node": "n0"}}, {"nodes": 3, "output": 1},
        {"nodes": [{"op": "mul", "args": [{"node": "x", "dtype": "float32"}, 1]}], "output": {"node": "n0"}},
        {"nodes": [{"op": "mul", "args": [{"float": "text"}, 1]}], "output": {"node": "n0"}},
    ],
)  # fmt: skip
def test_a_damaged_graph_is_refused(graph: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="damaged") as caught:
        GraphNetwork(graph, {})
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.b", "forward"])
def test_a_tensor_with_a_name_that_no_module_can_have_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="damaged"):
        GraphNetwork({"nodes": [], "output": {"node": "x"}}, {name: torch.zeros(1)})


def test_an_unknown_constant_is_refused() -> None:
    for constant in ({"dtype": "load"}, {"unknown": "float32"}):
        node = {"op": "aten.clone.default", "args": [{"node": "x"}], "kwargs": {"memory_format": constant}}
        with pytest.raises(UserError, match="known constants"):
            GraphNetwork({"nodes": [node], "output": {"node": "n0"}}, {})


@pytest.mark.slow
def test_random_and_data_dependent_modules_are_refused() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    class OwnSize(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(3, 2)

    for module in (Noisy(), Branching(), OwnSize()):
        with pytest.raises(UserError, match=r"encoder cannot be traced|cannot be part of a stored network"):
            trace_graph(module, torch.rand(8, 2), "encoder")


def test_values_that_are_not_needed_any_more_are_released() -> None:
    nodes = [
        {"op": "aten.mul.Tensor", "args": [{"node": a}, {"node": b}]}
        for a, b in (("x", "t0"), ("n0", "x"), ("n1", "t0"))
    ]
    network = GraphNetwork({"nodes": nodes, "output": {"node": "n2"}}, {"t0": torch.tensor(3.0)})
    assert network.last_uses == [[], ["n0", "x"], ["n1", "t0"]]
    assert network(torch.tensor([2.0])).tolist() == [36.0]
