"""Decoders as programs for a page: all methods and networks are supported, and others raise errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.nets import IMAGE_NETS
from support.programs import (
    CASES,
    DECODE,
    WITH_DECODER,
    WITHOUT_DECODER,
    Case,
    decode_job,
    grey_level_error,
    node,
    tensor_ranges,
)
from unbraid.distributions import Likelihood
from unbraid.errors import UserError
from unbraid.methods import METHODS, PCL, UVITAE, VAE
from unbraid.nets.registry import NETS
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import build_vitae_net
from unbraid.reporting.program import decoder_program
from unbraid.spaces.transformers import Cpab

KNOWN = {"input", "linear", "reshape", "strided", "map", "conv", "warp"}
LAYOUTS = [
    name for name in CASES if name in ("vae", "u_vitae", "circle", "projective 5") or name.startswith(("net", "cpab"))
]


def wrapped(*layers: nn.Module, likelihood: str = "gaussian") -> VAENet:
    return VAENet(nn.Identity(), nn.Sequential(*layers), likelihood)


def test_every_method_is_covered() -> None:
    assert set(WITH_DECODER) == set(METHODS) - set(WITHOUT_DECODER)
    assert set(METHODS) - set(WITHOUT_DECODER) <= set(CASES)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_nodes_refer_to_all_weights(name: str) -> None:
    case = CASES[name]
    net = case.build()
    program = decoder_program(net, case.shape, case.latents)
    json.dumps(program.spec, allow_nan=False)
    assert {node["op"] for node in program.spec["nodes"]} <= KNOWN
    assert (program.spec["latents"], program.spec["shape"]) == (case.latents, list(case.shape))
    spans = tensor_ranges(program.spec["nodes"])
    assert [start for start, _ in spans] == [0, *[end for _, end in spans[:-1]]]
    assert len(program.weights) == 2 * spans[-1][1]


def layers(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in nodes if "weight" in node]


@pytest.mark.parametrize("net", IMAGE_NETS)
def test_weights_are_those_of_the_decoder(net: str) -> None:
    """They are rounded to half precision; small layers have two parts."""
    decoder = NETS[net]((1, 32, 32), 5)[1]
    program = decoder_program(VAENet(nn.Identity(), decoder), (1, 32, 32), 5)
    weights = np.frombuffer(program.weights, "<f2").astype(np.float64)
    own = [layer for layer in decoder.modules() if isinstance(layer, nn.Linear | nn.ConvTranspose2d)]
    for op, layer in zip(layers(program.spec["nodes"]), own, strict=True):
        small = layer.weight.numel() <= 2**14
        assert op["parts"] == 1 + small
        for name, tensor in (("weight", layer.weight), ("bias", layer.bias)):
            found = weights[op[name] :][: op["parts"] * tensor.numel()].reshape(op["parts"], -1).sum(0)
            want = tensor.detach().double().numpy().ravel()
            np.testing.assert_allclose(found, want, rtol=2**-21 if small else 2**-11, atol=2**-24)


def test_weights_of_maps_have_two_parts() -> None:
    """Their weights have two parts, whatever their number."""
    case = Case(UVITAE(transform="cpab", nx=8, ny=8), "mlp")
    nodes = decoder_program(case.build(), case.shape, case.latents).spec["nodes"]
    last_of_image = nodes[-1]["in"][0]
    image, maps = layers(nodes[:last_of_image]), layers(nodes[last_of_image:])
    assert any(node["deep"] * node["wide"] > 2**14 for node in maps)
    assert {node["parts"] for node in maps} == {2}
    assert 1 in {node["parts"] for node in image}


@pytest.mark.parametrize(
    "name", ["full size", "net vitae_conv", "CVITAE cpab", "even gaussian", "pmp", "devae", "gyroplanes"]
)
def test_node_decodes_like_torch(name: str) -> None:
    case = CASES[name]
    net, codes = case.build(), case.codes()
    assert (
        grey_level_error(net, codes, node(DECODE, decode_job(decoder_program(net, case.shape, case.latents), codes)))
        < 1
    )


def test_node_reads_every_half_precision_number() -> None:
    bits = np.arange(2**16, dtype="<u2")
    numbers = bits.view("<f2").astype(np.float32)
    finite = np.isfinite(numbers)
    body = "return Array.from(unbraid.half(Uint8Array.from(job)));"
    read = np.array(node(body, list(bits[finite].tobytes())), dtype=np.float32)
    np.testing.assert_array_equal(read, numbers[finite])


def test_a_code_of_another_size_raises() -> None:
    case = Case(VAE(), "mlp", latents=3)
    program = decoder_program(case.build(), case.shape, case.latents)
    body = DECODE.replace("return", "try {") + "} catch (error) { return error.message; }"
    assert node(body, decode_job(program, torch.zeros(1, 4))) == "A code has 3 numbers. Got 4."


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Linear(5, 4), nn.Flatten(0)], r"shape \(4,\). It returned \(4,\) for one code"),
        ([nn.Linear(5, 3)], r"shape \(4,\). It returned \(1, 3\) for one code"),
    ],
)
def test_outputs_of_other_shapes_raise(layers: list[nn.Module], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        decoder_program(wrapped(*layers), (4,), 5)
    assert "unbraid explore" in str(error.value)


@pytest.mark.parametrize("value", [7e4, float("inf"), float("nan")])
def test_weights_beyond_half_precision_raise(value: float) -> None:
    layer = nn.Linear(5, 4)
    with torch.no_grad():
        layer.bias[1] = value
    with pytest.raises(UserError, match=f"at most 65504, .* Got {value:g} in the bias of a linear layer"):
        decoder_program(wrapped(layer), (4,), 5)


def test_node_runs_hooks_and_other_likelihoods() -> None:
    layer = nn.Linear(5, 4)
    layer.register_forward_hook(lambda module, given, output: output + 1)
    net = wrapped(layer).requires_grad_(False)
    net.likelihood = Likelihood(net.likelihood.nll, torch.exp, torch.log)
    codes = torch.randn(3, 5)
    outputs = node(DECODE, decode_job(decoder_program(net, (4,), 5), codes))
    torch.testing.assert_close(torch.tensor(outputs), net.decode(codes), rtol=1e-5, atol=1e-6)


def test_a_missing_decoder_raises() -> None:
    with pytest.raises(UserError, match="no decoder"):
        decoder_program(PCL().build(NETS["mlp"], (1, 8, 8), 4, "bernoulli"), (1, 8, 8), 4)


def test_unsupported_flows_raise() -> None:
    net = build_vitae_net(NETS["mlp"], (1, 8, 8), (2, 2), Cpab(method="squaring"), "bernoulli", False)
    with pytest.raises(UserError, match=r"cannot warp images with .*Cpab.*squaring"):
        decoder_program(net, (1, 8, 8), 4)


def test_a_vitae_decoder_in_another_module_raises() -> None:
    net = UVITAE().build(NETS["mlp"], (1, 8, 8), 4, "bernoulli")
    net.decoder = nn.Sequential(net.decoder)  # type: ignore[assignment, arg-type]
    with pytest.raises(UserError, match="cannot run the operator"):
        decoder_program(net, (1, 8, 8), 4)
