"""A run's encoder and decoder as files that other programs run: ONNX, or PyTorch's own exported programs.

Nothing takes its name before it was read back, run on examples and found to agree with the run.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError, unknown
from unbraid.exporting.plain_network import Decoder, Encoder, full_net, outputs, plain_net, pruned
from unbraid.runs.folder import read_json
from unbraid.runs.run import Run
from unbraid.runtime import provenance
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.progress import progress

FORMAT = 1
TOLERANCE = 1e-4
RULE = f"every output within {TOLERANCE:g} times its largest magnitude, or within {TOLERANCE:g} where that is below 1"
TRACED, CHECKED = 3, (4, 1)  # examples that are traced, and batches that are run: other sizes, to prove them free
LIBRARIES = ("unbraid", "torch", "onnx", "onnxscript", "onnxruntime")
Runner = Callable[[Tensor], list[Tensor]]


@dataclass(frozen=True)
class Part:
    """An encoder or a decoder: the module as the run has it and in plain operations, names, and inputs to run it on."""

    name: str
    original: nn.Module
    module: nn.Module
    input: str
    means: dict[str, str]  # of the input and the outputs, by name
    examples: Tensor

    @property
    def outputs(self) -> list[str]:
        """What comes out, in order."""
        return [name for name in self.means if name != self.input]

    @torch.no_grad()
    def run(self, x: Tensor) -> list[Tensor]:
        """What the run itself gives."""
        found = self.original(x)
        return list(found) if isinstance(found, tuple) else [found]


def export(
    run: Run, out: str | Path, *, format: str = "onnx", data: str | FactorData | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Write the encoder and the decoder of a run to a folder, and `export.onnx.json` about them, which is returned.

    `format` is "onnx" (`encoder.onnx`, `decoder.onnx`) or "torch" (`.pt2`, for ``torch.export.load``). Batches may have
    any size. The encoder takes examples as the network does, pixels in [0, 1], and gives `codes`, what metrics see by
    default, and `logvar` where the posterior is Gaussian; the decoder takes latents and gives the means of p(x|z).
    All is float32, also for a run trained in bfloat16. Each file is read back and run on examples; unless it agrees
    with the run (`RULE`) nothing is written. `data` is needed only where the spec's name is not enough.
    """
    write = FORMATS.get(format)
    if write is None:
        raise UserError(unknown("format", format, FORMATS))
    check_installed(format)
    folder = Path(out)
    refuse_other(folder, run.id)
    source = load_data(data if data is not None else run.spec.data, quiet=quiet)
    made: dict[str, bytes] = {}
    about: dict[str, Any] = {}
    chosen = parts(run, source)
    with progress("exporting", 2 * len(chosen)) as report:
        for i, part in enumerate(chosen):
            if not quiet:
                report(2 * i, f"writing the {part.name}")
            content, read = write(part)
            if not quiet:
                report(2 * i + 1, f"running the {part.name}")
            file = f"{part.name}.{'onnx' if format == 'onnx' else 'pt2'}"
            made[file] = content
            about[file] = {**described(part), "sha256": hashlib.sha256(content).hexdigest(),
                           "largest_difference": compared(part, read(content), file)}  # fmt: skip
    facts = {
        "format": FORMAT, "kind": format, "run": run.id, "spec": run.spec.to_dict(), "files": about,
        "precision": "float32", "rule": RULE, "versions": provenance.versions(LIBRARIES),
    }  # fmt: skip
    make_folder(folder)
    for file, content in made.items():
        write_atomic(folder / file, content)
    write_atomic(folder / f"export.{format}.json", json.dumps(facts, indent=1).encode())
    return facts


def refuse_other(folder: Path, run: str) -> None:
    """Refuse a folder with the export of another run: a decoder must not lie beside a stranger's encoder."""
    for file in sorted(folder.glob("export.*.json")):
        other = read_json(file).get("run")
        if other != run:
            raise UserError(f"{folder} holds the export of run {other}. Choose another folder, or remove that one.")


def parts(run: Run, data: FactorData) -> list[Part]:
    """What can be exported of a run: the encoder, and the decoder where it has one."""
    net, plain = full_net(run.net), plain_net(run.net)
    spread = torch.linspace(0, len(data) - 1, min(len(data), TRACED + max(CHECKED)), device=data.device).long()
    x = data.batch(spread).cpu()
    encoder = Encoder(run, net).eval()
    meant = {"x": _example(run, data), **outputs(run.spec.method, run.spec.latents)}
    found = [Part("encoder", encoder, pruned(Encoder(run, plain).eval(), x), "x", meant, _enough(x))]
    if net.decoder is not None:
        with torch.no_grad():
            given = dict(zip(encoder.names, encoder(x), strict=True))
        z = given.get("latents", given["codes"])
        far = torch.randn(z.shape, generator=torch.Generator().manual_seed(0))  # where an untrained encoder never looks
        taken = "the encoder's " + ("latents" if "latents" in given else "codes") + ", or others of the same kind"
        meant = {"z": taken, "examples": "means of p(x|z), in the scale of the examples"}
        given_z = _enough(torch.stack([z, far], 1).flatten(0, 1))
        found.append(Part("decoder", Decoder(net).eval(), Decoder(plain).eval(), "z", meant, given_z))
    return found


def _example(run: Run, data: FactorData) -> str:
    pixels = "images (n, c, h, w) with pixels in [0, 1]; divide bytes by 255"
    return f"examples of {run.spec.data}: {pixels if len(data.shape) == 3 else 'vectors (n, d) as the data gives them'}"


def _enough(x: Tensor) -> Tensor:
    """As many rows as tracing and checking take, repeated if there are fewer."""
    wanted = TRACED + max(CHECKED)
    return x.repeat(-(-wanted // len(x)), *[1] * (x.ndim - 1))[:wanted].contiguous()


def described(part: Part) -> dict[str, Any]:
    """Names, shapes and meanings of what goes in and comes out; n is the number of examples."""
    tensors = dict(zip(part.means, [part.examples, *part.run(part.examples)], strict=True))
    facts = {name: {"shape": ["n", *tensor.shape[1:]], "dtype": "float32", "meaning": part.means[name]}
             for name, tensor in tensors.items()}  # fmt: skip
    return {"inputs": {part.input: facts.pop(part.input)}, "outputs": facts}


def compared(part: Part, read: Runner, file: str) -> float:
    """The largest difference from the run over batches of several sizes; one beyond the rule is refused."""
    largest = 0.0
    for size in CHECKED:
        x = part.examples[-size:]
        for name, ours, theirs in zip(part.outputs, part.run(x), read(x), strict=True):
            if ours.shape != theirs.shape:
                raise UserError(
                    f"{file} gives {name} of shape {tuple(theirs.shape)} where the run gives {tuple(ours.shape)}. "
                    "Nothing was written: this network cannot be exported so."
                )
            difference = float((ours - theirs).abs().max())
            if not difference <= TOLERANCE * max(1.0, float(ours.abs().max())):
                raise UserError(
                    f"{file} does not compute what the run does: its {name} are up to {difference:.3g} off, and must "
                    f"agree ({RULE}). Nothing was written. Try the other format."
                )
            largest = max(largest, difference)
    return largest


def traced(part: Part) -> torch.export.ExportedProgram:
    """The part as a graph of operations for any number of examples."""
    sizes = ({0: torch.export.Dim("n", min=1)},)
    with torch.no_grad():
        part.module(part.examples[:TRACED])  # constants that are kept once made are made now, not while tracing
    try:
        with muted():
            return torch.export.export(part.module, (part.examples[:TRACED],), dynamic_shapes=sizes)
    except Exception as error:
        reason = " ".join(str(error).split()[:60]) or type(error).__name__
        raise UserError(
            f"The {part.name} cannot be written as a graph for any number of examples: {reason} ... A network of your "
            "own must be made of PyTorch's operations, without branches that depend on the data or the batch."
        ) from error


def as_torch(part: Part) -> tuple[bytes, Callable[[bytes], Runner]]:
    """The bytes of a .pt2 file, and what reads them."""
    buffer = io.BytesIO()
    with muted():
        torch.export.save(traced(part), buffer)

    def read(content: bytes) -> Runner:
        with muted():
            module = torch.export.load(io.BytesIO(content)).module()

        def run(x: Tensor) -> list[Tensor]:
            with torch.no_grad():
                found = module(x)
            return list(found) if isinstance(found, tuple | list) else [found]

        return run

    return buffer.getvalue(), read


def as_onnx(part: Part) -> tuple[bytes, Callable[[bytes], Runner]]:
    """The bytes of an ONNX model, and what reads them."""
    graph = traced(part)
    try:
        with muted():
            made = torch.onnx.export(
                graph, dynamo=True, input_names=[part.input], output_names=part.outputs, verbose=False
            )
    except Exception as error:
        raise UserError(
            f"The {part.name} uses an operation that ONNX has no words for: {str(error).splitlines()[0]} "
            "Export it with format 'torch' instead."
        ) from error
    assert made is not None
    content: bytes = made.model_proto.SerializeToString()
    return content, lambda stored: onnx_runner(stored, part.input)


def onnx_runner(content: bytes, name: str) -> Runner:
    """What runs an ONNX model: onnxruntime where it is installed, else the reference of the format itself."""
    if importlib.util.find_spec("onnxruntime") is not None:
        session: Any = importlib.import_module("onnxruntime").InferenceSession(content)
    else:
        import onnx.reference

        model = onnx.load_from_string(content)
        session = onnx.reference.ReferenceEvaluator(model, new_ops=[gather_elements()])
    return lambda x: [torch.as_tensor(found) for found in session.run(None, {name: x.numpy()})]


def gather_elements() -> Any:
    """GatherElements for the reference, whose own takes no axis counted from the end and no axis longer than 64."""
    from onnx.reference.op_run import OpRun

    def gathered(self: Any, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        return (np.take_along_axis(data, indices, axis),)

    return type("GatherElements", (OpRun,), {"op_domain": "", "_run": gathered})


FORMATS: dict[str, Callable[[Part], tuple[bytes, Callable[[bytes], Runner]]]] = {"onnx": as_onnx, "torch": as_torch}


def check_installed(format: str) -> None:
    """Refuse ONNX where its packages are missing, naming the extra that brings them."""
    needed: Sequence[str] = ("onnx", "onnxscript") if format == "onnx" else ()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"Export to ONNX needs the package(s) {', '.join(missing)}, not installed here. Install them: "
            "pip install \"unbraid[export]\", or export with format 'torch'."
        )


@contextmanager
def muted() -> Iterator[None]:
    """Without PyTorch's own deprecations and its remarks on packages that are not needed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
