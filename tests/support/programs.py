"""Decoders whose images depend strongly on their codes, and JavaScript that is run by node."""

from __future__ import annotations

import base64
import json
import math
import shutil
import subprocess
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.nets import IMAGE_NETS
from unbraid.methods import CVITAE, METHODS, UVITAE, VAE, DiffusionVAE, Method, PoincareVAE
from unbraid.methods.curved import CurvedMethod
from unbraid.methods.devae import SharedDecoder
from unbraid.methods.groupified_vae import CircleDecoder
from unbraid.methods.lie_group import GroupDecoder
from unbraid.nets.registry import NETS
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import VitaeDecoder
from unbraid.reporting.program import SCRIPTS, Program
from unbraid.spaces.projective import EvenDecoder

CODES = 24
CONTRAST = {"bernoulli": 3.0, "gaussian": 0.3, "normal": 0.3}  # standard deviation of the output of a decoder
LATENTS = {"sphere": 5, "flat_torus": 6, "torus": 3, "projective": 5, "rotations": 9}
WITHOUT_DECODER = ("pcl", "cl_ica", "ice_beem")
WITH_DECODER = [name for name in METHODS if name not in WITHOUT_DECODER]


@dataclass(frozen=True)
class Case:
    """A network to test: a method with its number of latents, a network, the shape of an image, and a likelihood."""

    method: Method
    net: str = "locatello"
    shape: tuple[int, ...] = (1, 32, 32)
    latents: int = 6
    likelihood: str = "bernoulli"

    def build(self) -> VAENet:
        """The network with random weights that make images of high contrast."""
        torch.manual_seed(1)
        net = self.method.build(NETS[self.net], self.shape, self.latents, self.likelihood)
        bounded = isinstance(net.decoder, nn.Sequential) and isinstance(net.decoder[-1], nn.Sigmoid)
        return with_contrast(net, self.latents, CONTRAST["bernoulli" if bounded else self.likelihood])

    def codes(self, n: int = CODES) -> Tensor:
        """Random latents; for methods with a curved latent space, points on it."""
        z = torch.randn(n, self.latents, generator=torch.Generator().manual_seed(2))
        return self.method.manifold(self.latents).project(z) if isinstance(self.method, CurvedMethod) else z


def _cases() -> dict[str, Case]:
    found = {name: Case(METHODS[name]()) for name in WITH_DECODER}
    found |= {f"net {name}": Case(VAE(), name, (3, 32, 32), likelihood=_likelihood(name)) for name in IMAGE_NETS}
    found |= {f"{s} {n}": Case(DiffusionVAE(space=s), latents=n) for s, n in LATENTS.items()}  # type: ignore[arg-type]
    found["circle"] = Case(DiffusionVAE(space="sphere"), latents=2)
    for likelihood in ("gaussian", "normal"):
        found[f"even {likelihood}"] = Case(DiffusionVAE(space="projective"), "burgess", likelihood=likelihood)
        found[likelihood] = Case(VAE(), "burgess", (3, 32, 32), likelihood=likelihood)
        found[f"warped {likelihood}"] = Case(UVITAE(), "vitae_mlp_half", (3, 20, 28), likelihood=likelihood)
    for kind in (UVITAE, CVITAE):
        for transform in ("affine", "affine_decomposed", "affine_diffeomorphic", "cpab"):
            case = Case(kind(transform=transform), "vitae_mlp_half", (1, 24, 28))  # type: ignore[arg-type]
            found[f"{kind.__name__} {transform}"] = case
    unbounded = UVITAE(bound="none", perspective_hidden1=8, perspective_hidden2=24)
    found["unbounded affine_diffeomorphic"] = Case(unbounded, "vitae_mlp_half", (1, 24, 28))
    for nx, ny, steps in ((1, 1, 20), (3, 5, 20), (8, 2, 1), (2, 2, 70)):
        method = UVITAE(transform="cpab", nx=nx, ny=ny, flow_steps=steps)
        found[f"cpab {nx}x{ny} {steps}"] = Case(method, "vitae_conv_half", (3, 32, 48))
    found["gyroplanes"] = Case(PoincareVAE(curvature=0.5, first_layer="gyroplanes"))
    found["full size"] = Case(VAE(), "locatello", (1, 64, 64), 10)
    return found


def _likelihood(net: str) -> str:
    """A likelihood whose mean is the output of the network if the network ends with a sigmoid."""
    last = list(NETS[net]((3, 32, 32), 6)[1].modules())[-1]
    return "gaussian" if isinstance(last, nn.Sigmoid) else "bernoulli"


def with_contrast(net: VAENet, latents: int, contrast: float) -> VAENet:
    """Change the weights so that images and maps depend strongly on their codes."""
    decoder: Any = net.decoder
    with torch.no_grad():
        if isinstance(decoder, VitaeDecoder):
            _scale_layers(decoder.appearance, torch.randn(64, decoder.split), contrast)
            _scale_layers(decoder.perspective, torch.randn(64, latents - decoder.split), 0.4)
        elif isinstance(decoder, SharedDecoder):
            own = decoder.embedding[:1].expand(64, -1)
            _scale_layers(decoder.inner, torch.cat([torch.randn(64, latents), own], 1), contrast)
        elif isinstance(decoder, GroupDecoder):
            decoder.generators.mul_(100.0)
            _scale_layers(decoder.inner, decoder.matrices(torch.randn(64, latents)), contrast)
        elif isinstance(decoder, CircleDecoder):
            _scale_layers(decoder.inner, decoder.coordinates(torch.randn(64, latents)), contrast)
        else:
            _scale_layers(
                decoder.inner if isinstance(decoder, EvenDecoder) else decoder, torch.randn(64, latents), contrast
            )
    return net.eval().requires_grad_(False)


def _scale_layers(layers: Any, x: Tensor, contrast: float) -> None:
    """Scale and shift each layer: outputs have mean 0 and deviation 1, or `contrast` in the last layer."""
    last = [layer for layer in layers if isinstance(layer, nn.Linear | nn.ConvTranspose2d)][-1]
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.ConvTranspose2d):
            layer.weight.mul_((contrast if layer is last else 1.0) / layer(x).std(0).mean())
            layer.bias.sub_(layer(x).transpose(0, 1).flatten(1).mean(1))
        x = layer(x)


CASES = _cases()


def scripts() -> str:
    """The JavaScript of the decoders and controls."""
    folder = resources.files("unbraid.reporting").joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text() for name in SCRIPTS)


def node(body: str, job: Any) -> Any:
    """Run the body of a JavaScript function of `job` in node, with our scripts loaded; skips if node is missing."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed: JavaScript is tested in Chromium only (make test-browser)")
    read = 'JSON.parse(require("fs").readFileSync(0, "utf8"))'
    code = f"{scripts()}\nconsole.log(JSON.stringify(((job) => {{ {body} }})({read})));"
    done = subprocess.run(["node", "-e", code], input=json.dumps(job), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


DECODE = """
    const bytes = Uint8Array.from(atob(job.weights), (c) => c.charCodeAt(0));
    const decode = unbraid.decoder(job.spec, bytes);
    return job.codes.map((z) => Array.from(decode(new Float32Array(z))));
"""


def decode_job(program: Program, codes: Tensor) -> dict[str, Any]:
    """The argument of `DECODE`."""
    return {"spec": program.spec, "weights": base64.b64encode(program.weights).decode(), "codes": codes.tolist()}


def grey_level_error(net: VAENet, codes: Tensor, pixels: list[list[float]]) -> float:
    """The largest difference between pixels of JavaScript and of torch, in grey levels of 255."""
    expected = net.decode(codes)
    assert expected.std(0).mean() > 0.08, "images that hardly depend on their codes test nothing"
    return 255 * float((torch.tensor(pixels).view_as(expected) - expected).abs().max())


def tensor_ranges(nodes: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The first element and the end of each tensor of these nodes in the weights, with all its parts, sorted."""
    found: set[tuple[int, int]] = set()
    for node in (node for node in nodes if "weight" in node):
        if node["op"] == "constant":
            sizes = {"weight": math.prod(node["shape"])}
        else:
            wide = node["wide"] * node.get("groups", 1)
            sizes = {"weight": node["deep"] * wide * math.prod(node.get("kernel", [1])), "bias": wide}
        found |= {(node[k], node[k] + n * node["parts"]) for k, n in sizes.items() if node[k] is not None}
    return sorted(found)
