"""Training on a GPU, where a step of a fused stack is one CUDA graph, agrees with training on a CPU."""

from __future__ import annotations

import dataclasses
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unbraid as ub
from support.training import Killed, assert_same_run, kill_at_call
from unbraid.accel.capture import EAGER_STEPS
from unbraid.data import BUILT_IN, load
from unbraid.data.dataset import FactorData
from unbraid.manipulation import measure_gap
from unbraid.manipulation.adversarial_training import TERMS, AdversarialTraining
from unbraid.manipulation.settings import fill_settings
from unbraid.methods import METHODS, BetaTCVAE, BetaVAE, FactorVAE, Method
from unbraid.methods.method import Batch, Loss
from unbraid.nets.conv import locatello
from unbraid.nets.registry import NETS
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.folder import RunFolder
from unbraid.runs.spec import RunSpec
from unbraid.scoring.encoding import encode_stack, encode_table
from unbraid.training import compiled as compiled_module
from unbraid.training import loop, schedule
from unbraid.training.active import ActiveStack
from unbraid.training.compiled import MIN_COMPILED_STEPS
from unbraid.training.stack import Stack

pytestmark = pytest.mark.gpu

# Maximum relative difference of the terms of a step from float32 on the CPU, due to the rounding in four layers.
TOLERANCE = {"fp32": 1e-4, "tf32": 3e-3, "bf16": 2e-2}
# The accuracies of PCL and cl-ica are multiples of 1/16 and 1/8, and a rounding error can change one answer.
ABSOLUTE_TOLERANCE = {"pcl": 2.01 / 16, "cl_ica": 1.01 / 8, "tripod": 3.0}
# Where a gradient is only rounding error, the first steps of Adam have a random sign.
MAX_STEP_DIFFERENCE = 0.3
WITHOUT_KERNELS = ("sae", "pca", "ica", "ice_beem")  # linear networks, and an encoder that is differentiated twice


def specs(method: Method, seeds: int, precision: str = "bf16", steps: int = 10, batch: int = 16) -> list[RunSpec]:
    spec = RunSpec(method, "sprites", 0, steps, batch, 1e-4, 4)
    return [dataclasses.replace(spec, seed=seed, precision=precision) for seed in range(seeds)]


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", METHODS)
def test_cuda_stack_equals_cpu(name: str, precision: str, sprites: FactorData) -> None:
    """The terms of a stack on a GPU agree with those on a CPU, for eager steps and for replayed graphs.

    The absolute tolerance is necessary for the small logits of critics. PCL divides by the standard deviation of an
    untrained latent, which amplifies rounding errors. Its accuracy is a fraction of 16 pairs, and rounding may change
    the sign of some of their logits. Tripod has second differences over the small standard deviations of untrained
    latents, and their weight in the loss is about 10.
    """
    cpu = Stack(specs(METHODS[name](), 3, "fp32"), sprites, locatello)
    gpu = Stack(specs(METHODS[name](), 3, precision), sprites.to("cuda"), locatello)
    for _ in range(5):
        cpu.advance()
        gpu.advance()
    assert gpu.captured is not None
    assert gpu.captured.graph is not None
    assert bool(gpu.storage.copied) == (name not in WITHOUT_KERNELS)
    tolerance = ABSOLUTE_TOLERANCE.get(name, 0.05) + TOLERANCE[precision] * cpu.last.abs()
    assert bool(((gpu.last.cpu() - cpu.last).abs() <= tolerance).all()), (gpu.last, cpu.last)


@pytest.mark.parametrize("name", METHODS)
def test_compiled_steps_equal_those_that_are_not_compiled(name: str, sprites: FactorData) -> None:
    """The terms agree after eager steps and replayed graphs, and so does the change of the weights."""
    every = specs(METHODS[name](), 3, steps=MIN_COMPILED_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # because a step that cannot be compiled gives a warning
        compiled, other = (Stack(every, sprites.to("cuda"), locatello, compiled=kind) for kind in (None, False))
        start = other.rows.clone()
        for _ in range(5):
            compiled.advance()
            other.advance()
    kernels, exact = bool(other.storage.copied), every[0].float32_networks
    assert (compiled.compiled is not None) == (kernels and not exact)
    tolerance = ABSOLUTE_TOLERANCE.get(name, 0.05) + TOLERANCE["bf16"] * other.last.abs()
    assert bool(((compiled.last - other.last).abs() <= tolerance).all()), (compiled.last, other.last)
    assert float((compiled.rows - other.rows).norm() / (other.rows - start).norm()) < MAX_STEP_DIFFERENCE


@pytest.mark.parametrize("precision", TOLERANCE)
def test_penalties_on_the_decoder_equal_those_on_a_cpu(precision: str, sprites: FactorData) -> None:
    """The whole step is replayed as a graph. The kernels of the decoder compute in float32."""
    weights = {"orthogonal_jacobian": 0.1, "sparse_jacobian": 0.1, "hessian_penalty": 0.1}
    cpu, gpu = (
        Stack([dataclasses.replace(spec, **weights) for spec in specs(BetaVAE(), 3, kind)], data, locatello)
        for kind, data in (("fp32", sprites), (precision, sprites.to("cuda")))
    )
    for _ in range(5):
        cpu.advance()
        gpu.advance()
    assert gpu.captured is not None
    assert gpu.captured.graph is not None
    assert gpu.storage.copied == ("encoder.row", "decoder.row")
    torch.testing.assert_close(gpu.last.cpu(), cpu.last, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", [*(name for name in BUILT_IN if name != "toy"), "dsprites?noise=0.1"])
@pytest.mark.parametrize(("net", "compiled"), [("locatello", False), ("burgess", False), ("locatello", True)])
def test_every_dataset_trains_in_one_graph(name: str, net: str, compiled: bool) -> None:
    data = load(name, device="cuda")
    spec = RunSpec(BetaVAE(), name, 0, 10, 64, 1e-3, 10, net, precision="bf16")
    stack = Stack([spec, dataclasses.replace(spec, seed=1)], data, NETS[net], compiled=compiled)
    first = None
    for _ in range(30):
        stack.advance()
        first = stack.last.clone() if first is None else first
    assert (stack.compiled is not None) == compiled
    assert stack.captured is not None
    assert stack.captured.graph is not None
    assert first is not None
    assert bool((stack.last[:, 0] < first[:, 0]).all())
    assert int(stack.device_step) == stack.step == 30


def test_a_run_in_a_large_stack_equals_the_run_alone(sprites: FactorData) -> None:
    """After 100 steps, a run in a stack of 128 runs is close to the same run alone."""
    data = sprites.to("cuda")
    every = specs(BetaVAE(), 128, steps=100, batch=64)
    many, one = Stack(every, data, locatello), Stack(every[37:38], data, locatello)
    for _ in range(100):
        many.advance()
        one.advance()
    torch.testing.assert_close(many.last[37], one.last[0], rtol=1e-2, atol=0.05)
    many_row, one_row = many.rows[37], one.rows[0]
    assert float((many_row - one_row).norm() / one_row.norm()) < 1e-2


def test_divergence_on_cuda_affects_one_run_only(sprites: FactorData) -> None:
    stack = Stack(specs(METHODS["beta_vae"](), 2), sprites.to("cuda"), locatello)
    for _ in range(4):
        stack.advance()
    stack.rows[0, 0] = stack.copy[0, 0] = float("nan")
    before = stack.rows[0].clone()
    for _ in range(2):
        stack.advance()
    (divergence,) = stack.divergences()
    assert (divergence.member, divergence.step) == (0, 4)
    assert bool(stack.rows[1].isfinite().all())
    torch.testing.assert_close(stack.rows[0], before, rtol=0, atol=0, equal_nan=True)


def test_a_killed_run_resumes(tmp_path: Path, sprites: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run resumes from its checkpoint and has the same final loss as an uninterrupted run."""
    settings = {"seeds": [0, 1], "steps": 40, "latents": 4, "device": "cuda", "quiet": True}
    whole = ub.train(BetaVAE(), sprites, **settings)
    real, steps = Stack.advance, []

    def advance(stack: Stack) -> None:
        if len(steps) == 25:
            raise KeyboardInterrupt
        steps.append(stack.step)
        real(stack)

    monkeypatch.setattr(Stack, "advance", advance)
    monkeypatch.setattr(loop, "MAX_CHECKPOINT_FRACTION", 1e9)
    with pytest.raises(KeyboardInterrupt):
        ub.train(BetaVAE(), sprites, out=tmp_path, checkpoint_seconds=0, **settings)
    monkeypatch.setattr(Stack, "advance", real)
    resumed: list[int] = []
    resume = Stack.resume
    monkeypatch.setattr(Stack, "resume", lambda stack, step: (resumed.append(step), resume(stack, step)))
    again = ub.train(BetaVAE(), sprites, out=tmp_path, **settings)
    assert resumed == [25]
    for a, b in zip(whole, again, strict=True):
        assert a.log[-1]["loss"] == pytest.approx(b.log[-1]["loss"], rel=1e-3)


def test_a_stack_without_enough_memory_is_halved(sprites: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the GPU really runs out of memory, training continues with halves of the stack, and losses are the same."""
    settings = {"seeds": range(12), "steps": 8, "batch": 1024, "latents": 4, "device": "cuda", "quiet": True}
    torch.cuda.empty_cache()
    base, total = torch.cuda.memory_reserved(), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.reset_peak_memory_stats()
    wanted = ub.train(BetaVAE(), sprites, **settings)
    needed = torch.cuda.max_memory_reserved() - base
    monkeypatch.setattr(schedule, "max_runs_in_memory", lambda spec, data, builder, wanted: wanted)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 0.6 * needed) / total)
    try:
        with pytest.warns(RuntimeWarning, match="do not fit into the memory"):
            runs = ub.train(BetaVAE(), sprites, **settings)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert [run.spec.seed for run in runs] == list(range(12))
    for a, b in zip(wanted, runs, strict=True):
        assert a.log[-1]["loss"] == pytest.approx(b.log[-1]["loss"], rel=1e-3)


def test_small_stacks_train_at_the_same_time(sprites: FactorData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three methods that train on three CUDA streams give the same runs as each method alone, bit for bit."""
    settings = {"seeds": range(3), "steps": 60, "latents": 4, "device": "cuda", "quiet": True}
    methods = [BetaVAE(), BetaTCVAE(), FactorVAE()]
    alone = [run for method in methods for run in ub.train(method, sprites, **settings)]
    streams: list[int] = []
    real = loop.advance_to_end

    def advance_to_end(stacks: list[ActiveStack], *rest: Any) -> None:
        streams.append(len({active.stream for active in stacks}))
        real(stacks, *rest)

    monkeypatch.setattr(loop, "advance_to_end", advance_to_end)
    together = ub.train(methods, sprites, **settings)
    assert streams == [3]
    for a, b in zip(alone, together, strict=True):
        assert a.spec == b.spec
        assert a.log == b.log
        assert all(torch.equal(x, y) for x, y in zip(a.net.parameters(), b.net.parameters(), strict=True))


def test_stacks_that_do_not_fit_at_the_same_time_train_one_after_another(
    sprites: FactorData, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"seeds": range(3), "steps": 20, "latents": 4, "device": "cuda", "quiet": True}
    methods = [BetaVAE(), BetaTCVAE()]
    wanted = [run for method in methods for run in ub.train(method, sprites, **settings)]
    real, steps = Stack.advance, []

    def advance(stack: Stack) -> None:
        steps.append(stack.step)
        if len(steps) == 16:
            raise torch.cuda.OutOfMemoryError("simulated")
        real(stack)

    monkeypatch.setattr(Stack, "advance", advance)
    for a, b in zip(wanted, ub.train(methods, sprites, **settings), strict=True):
        assert a.log == b.log


@dataclass(frozen=True)
class ReadsValue(Method):
    """An objective that copies a value to the CPU, which a CUDA graph cannot capture."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        scale = float(torch.zeros(1, device=batch.x.device).cpu()) + 1
        loss = scale * net.nll(batch.x, q.mean).mean()
        return loss, {"rec": loss}


def test_a_step_that_cannot_be_captured_still_trains(sprites: FactorData) -> None:
    stack = Stack(specs(ReadsValue(), 2), sprites.to("cuda"), locatello)
    for _ in range(EAGER_STEPS):
        stack.advance()
    with pytest.warns(RuntimeWarning, match="cannot be captured"):
        stack.advance()
    first = stack.last.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            stack.advance()
    assert bool((stack.last[:, 0] < first[:, 0]).all())


def test_train_score_and_traverse_on_cuda(tmp_path: Path) -> None:
    runs = ub.train(METHODS["vae"](), "sprites", steps=5, latents=4, device="cuda", seeds=[0, 1], quiet=True)
    assert runs[0].device.type == "cuda"
    assert {"mig.discrete_mig"} <= set(ub.score(runs, ["mig"], quiet=True)[0])
    png, gif = ub.traverse(runs[0], out=str(tmp_path)).paths
    assert png.exists()
    assert gif.exists()


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_stack_encodes_like_its_runs(precision: str, sprites: FactorData) -> None:
    """Encoding with all encoders at once agrees with each encoder in PyTorch, up to the rounding of the format."""
    runs = ub.train(
        BetaVAE(), "sprites", steps=50, latents=4, device="cuda", seeds=range(5), precision=precision, quiet=True
    )
    data = sprites.to("cuda")
    index = torch.arange(0, len(data), 7, device="cuda")
    for run, q in zip(runs, encode_stack(runs, data, index), strict=True):
        wanted = encode_table(run, data, index)
        assert float((q.mean - wanted.mean).norm() / wanted.mean.norm()) < TOLERANCE[precision]


def test_a_manipulation_trains_in_two_graphs(sprites: FactorData) -> None:
    """One graph is for the steps before the manipulation is trained, one for those after. Terms agree with a CPU."""
    settings = fill_settings(sprites, 0.1, 40, 16, 2, 1, "x:y", None, "bernoulli", 1e-3, 0)
    trainings = [AdversarialTraining(sprites.to(device), settings) for device in ("cpu", "cuda")]
    for step in range(10):
        terms = [training.step(step).tolist() for training in trainings]
        assert terms[1] == pytest.approx(terms[0], rel=0.02, abs=0.05), step
    assert all(repeat.__self__.graph is not None for repeat in trainings[1].runners.values())  # type: ignore[attr-defined]
    saved = trainings[1].state()
    other = AdversarialTraining(trainings[1].data, trainings[1].settings)
    other.restore(saved)
    for training in (trainings[1], other):
        for step in range(10, 13):
            training.step(step)
    tolerance = 1e-3 * trainings[1].terms.abs()
    tolerance[TERMS.index("gap")] = 1e-3  # about 0.03, the difference of two errors of about 123
    assert bool(((trainings[1].terms - other.terms).abs() <= tolerance).all())


def test_the_gap_of_rotated_factors_equals_that_on_a_cpu() -> None:
    settings: dict[str, Any] = {"steps": 12, "batch": 16, "samples": 2, "rotations": "x:y"}
    cpu, cuda = (measure_gap("sprites", device=device, **settings) for device in ("cpu", "cuda"))
    assert cuda["disentangling"] == pytest.approx(cpu["disentangling"], rel=0.02)
    assert cuda["entangling"] == pytest.approx(cpu["entangling"], rel=0.02)


def test_a_killed_training_with_compiled_steps_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_module, "MIN_COMPILED_STEPS", 0)
    test_a_killed_training_ends_with_the_same_bits(Stack, "advance", 20, "bf16", tmp_path, monkeypatch)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(("owner", "name", "call"), [(Stack, "advance", 20), (RunFolder, "write_checkpoint", 8),
                                                     (RunFolder, "finish", 2)])  # fmt: skip
def test_a_killed_training_ends_with_the_same_bits(
    owner: type, name: str, call: int, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six runs in two stacks of three, one after another.

    The process is killed at a step of the second stack, while it writes checkpoints, or while it writes finished runs.
    """
    monkeypatch.setattr(schedule, "max_runs_in_memory", lambda *arguments: 3)
    monkeypatch.setattr(schedule, "group_small_stacks", lambda stacks, size: ([stack] for stack in stacks))
    monkeypatch.setattr(loop, "MAX_CHECKPOINT_FRACTION", math.inf)  # a checkpoint after every step

    def train_six(out: Path) -> list[ub.Run]:
        return ub.train(
            BetaVAE(beta=4.0), "sprites", seeds=range(6), steps=12, batch=16, latents=4, precision=precision,
            device="cuda", out=out, checkpoint_seconds=0.0, quiet=True,
        )  # fmt: skip

    wanted = train_six(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        kill_at_call(patch, owner, name, call)
        with pytest.raises(Killed):
            train_six(tmp_path / "killed")
    for a, b in zip(wanted, train_six(tmp_path / "killed"), strict=True):
        assert_same_run(a, b)
