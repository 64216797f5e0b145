"""The encoder and the decoder of a run as parts to export, with examples on which they are traced and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.exporting.plain_network import (
    Decoder,
    Encoder,
    float32_copy,
    output_meanings,
    plain_copy,
    remove_unused_layers,
)
from unbraid.runs.run import Run

TRACED_EXAMPLES = 3  # batch size of tracing
CHECKED_BATCHES = (4, 1)  # batch sizes of the checks; they differ from `TRACED_EXAMPLES`, because any size must work
EXAMPLES = TRACED_EXAMPLES + max(CHECKED_BATCHES)


@dataclass(frozen=True)
class ExportPart:
    """An encoder or a decoder to export.

    Attributes:
        name: "encoder" or "decoder".
        original: The module of the run.
        module: A copy of `original` in plain operations. This copy is exported.
        input: The name of the input.
        meanings: Descriptions of the input and the outputs, by name.
        examples: Inputs with which the module is traced and checked.
    """

    name: str
    original: nn.Module
    module: nn.Module
    input: str
    meanings: dict[str, str]
    examples: Tensor

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in order."""
        return [name for name in self.meanings if name != self.input]

    @torch.no_grad()
    def run(self, x: Tensor) -> list[Tensor]:
        """Return the outputs of the original module."""
        outputs = self.original(x)
        return list(outputs) if isinstance(outputs, tuple) else [outputs]

    def describe(self) -> dict[str, Any]:
        """Return the shape, type and meaning of each input and output, for JSON. "n" is the number of examples."""
        tensors = dict(zip(self.meanings, [self.examples, *self.run(self.examples)], strict=True))
        facts = {name: {"shape": ["n", *tensor.shape[1:]], "dtype": "float32", "meaning": self.meanings[name]}
                 for name, tensor in tensors.items()}  # fmt: skip
        return {"inputs": {self.input: facts.pop(self.input)}, "outputs": facts}


def export_parts(run: Run, data: FactorData) -> list[ExportPart]:
    """Return the encoder of a run and, if it has one, the decoder."""
    net, plain = float32_copy(run.net), plain_copy(run.net)
    index = torch.linspace(0, len(data) - 1, min(len(data), EXAMPLES), device=data.device).long()
    x = data.batch(index).cpu()
    encoder = Encoder(run, net).eval()
    meanings = {"x": _input_meaning(run, data), **output_meanings(run.spec.method, run.spec.latents)}
    module = remove_unused_layers(Encoder(run, plain).eval(), x)
    parts = [ExportPart("encoder", encoder, module, "x", meanings, _repeat_rows(x))]
    if net.decoder is not None:
        with torch.no_grad():
            outputs = dict(zip(encoder.names, encoder(x), strict=True))
        source = "latents" if "latents" in outputs else "codes"
        meanings = {"z": f"the encoder's output {source!r}, or other values of the same kind",
                    "examples": "means of p(x|z), on the same scale as the examples"}  # fmt: skip
        z = _decoder_inputs(outputs[source])
        parts.append(ExportPart("decoder", Decoder(net).eval(), Decoder(plain).eval(), "z", meanings, z))
    return parts


def _decoder_inputs(z: Tensor) -> Tensor:
    """Return latents of examples that alternate with random latents.

    The random latents are added because an untrained encoder maps all examples to similar latents.
    """
    random = torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    return _repeat_rows(torch.stack([z, random], 1).flatten(0, 1))


def _input_meaning(run: Run, data: FactorData) -> str:
    pixels = "images (n, c, h, w) with pixels in [0, 1]; divide uint8 values by 255"
    vectors = "vectors (n, d) with the values of the dataset"
    return f"examples of {run.spec.data}: {pixels if len(data.shape) == 3 else vectors}"


def _repeat_rows(x: Tensor) -> Tensor:
    """Return as many rows as tracing and checking need. Rows are repeated if there are too few."""
    return x.repeat(-(-EXAMPLES // len(x)), *[1] * (x.ndim - 1))[:EXAMPLES].contiguous()
