"""A run whose batches are divided among several processes equals the run of a single process, up to rounding."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, distributed, nn

import unbraid as ub
from families import METHOD_FACTS
from support.command_line import FAST_TRAINING, Capture, error_line, unbraid
from support.training import assert_same_run, quick_train, weights
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AE, VAE, AdaGVAE, BetaTCVAE, BetaVAE, FactorVAE, Method, SemiVAE, TripletVAE
from unbraid.methods.method import Batch, Loss
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.folder import find_runs
from unbraid.runs.spec import RunSpec
from unbraid.training.divisible import check_divisible
from unbraid.training.parts import BatchPart, NoiseOfPart
from unbraid.training.stack import Stack

TWO = ["cpu", "cpu"]
# Methods whose objective has statistics of the whole batch, or whose networks store them.
INDIVISIBLE = {
    "beta_tcvae",
    "cl_ica",
    "control_vae",
    "dip_vae_i",
    "dip_vae_ii",
    "dynamic_vae",
    "factor_vae",
    "groupified_vae",
    "hfs",
    "info_vae",
    "pcl",
    "pmp",
    "tripod",
}


def spec_of(method: Method, **settings: Any) -> RunSpec:
    options = {"seed": 0, "steps": 100, "batch": 24, "learning_rate": 1e-3, "latents": 6, "net": "mlp", **settings}
    return RunSpec(method, "toy", likelihood="gaussian", **options)


@pytest.mark.parametrize("draw", ["normal", "uniform", "integers", "bytes"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_draws_of_the_parts_are_the_rows_of_the_whole_draw(draw: str, blocks: int) -> None:
    """The rows of each block are divided, so that part i of n has row i m .. (i + 1) m - 1 of each block."""
    key = torch.tensor(7)

    def draw_from(noise: Noise, rows: int) -> Tensor:
        noise.normal(3, 2)  # the same in all parts, because 3 rows do not fit the groups of a part
        function: Callable[..., Tensor] = getattr(noise, draw)
        return function(100, rows, 8) if draw == "integers" else function(rows, 8)

    whole, parts = Noise(key), [NoiseOfPart(key, 0, i, 3, groups=12, blocks=blocks) for i in range(3)]
    expected = draw_from(whole, 12 * blocks)
    found = [draw_from(part, 4 * blocks) for part in parts]
    for i, rows in enumerate(found):
        wanted = [block * 12 + i * 4 + row for block in range(blocks) for row in range(4)]
        assert torch.equal(rows, expected[wanted])
    assert {part.draws for part in parts} == {whole.draws}


def test_other_draws_are_the_same_in_all_parts() -> None:
    parts = [NoiseOfPart(torch.tensor(7), 0, i, 2, groups=8) for i in range(2)]
    for shape in ((), (5,), (8, 2), (3, 4)):
        first, second = (part.normal(*shape) for part in parts)
        assert torch.equal(first, second)
        assert first.shape == shape


@dataclass(frozen=True)
class DiagonalVariance(VAE):
    """A VAE with a statistic of the batch that is written into a view of a new tensor."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        loss, terms = super().objective(net, batch, noise, step)
        variance = net.encode(batch.x).mean.var(0)
        matrix = torch.zeros(len(variance), len(variance))
        matrix.diagonal().copy_(variance)
        return loss + matrix.sum(), terms


def test_statistics_that_are_written_into_views_are_found(toy: FactorData) -> None:
    with pytest.raises(UserError, match="only if the loss is a mean over its examples"):
        check_divisible([spec_of(DiagonalVariance())], toy, mlp, 2)


def test_part_of_a_batch_of_pairs_has_whole_pairs() -> None:
    x, changed = torch.arange(8), torch.arange(8).view(4, 2)
    batch, noise = BatchPart(1, 2).take(Batch(x, 100, changed), [Noise(torch.tensor(0))], 4)
    assert batch.x.tolist() == [2, 3, 6, 7]
    assert batch.changed is not None
    assert batch.changed.tolist() == [[4, 5], [6, 7]]
    assert [part.draws for part in noise] == [0]


@pytest.mark.parametrize("name", [name for name, facts in METHOD_FACTS.items() if not facts.images])
def test_batches_divide_unless_a_method_has_statistics_of_batches(name: str, smallest_data: FactorData) -> None:
    spec = spec_of(METHOD_FACTS[name].lightly_regularised)
    if name in INDIVISIBLE:
        with pytest.raises(UserError, match="only if the loss is a mean over its examples"):
            check_divisible([spec], smallest_data, mlp, 2)
    else:
        check_divisible([spec], smallest_data, mlp, 2)
        check_divisible([spec], smallest_data, mlp, 4)


@pytest.mark.parametrize("net", ["locatello", "burgess"])
def test_batches_of_images_divide(net: str, sprites: FactorData) -> None:
    """The initial codes hardly depend on the images, but statistics of the batch are found."""
    builder = ub.nets.NETS[net]
    settings = {"net": net, "batch": 16, "latents": 10}
    check_divisible([spec_of(VAE(), **settings), spec_of(AdaGVAE(), **settings)], sprites, builder, 2)
    with pytest.raises(UserError, match="beta_tcvae"):
        check_divisible([spec_of(BetaTCVAE(beta=1.0), **settings)], sprites, builder, 2)


def normalised(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """A network with batch normalisation."""
    encoder, decoder = mlp(shape, latents)
    return nn.Sequential(nn.BatchNorm1d(shape[0]), encoder), decoder


@dataclass(frozen=True)
class LateVariance(VAE):
    """A VAE with a term for the variance of a batch that has no weight in the first half of the training."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        loss, terms = super().objective(net, batch, noise, step)
        weight = (step >= batch.steps / 2).float()
        return loss + weight * net.encode(batch.x).mean.var(0).sum(), terms


@dataclass(frozen=True)
class RunningMean(VAE):
    """A VAE that stores the mean of each batch in a buffer, which its loss does not use."""

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.register_buffer("running", torch.zeros(()))
        return net

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        net.get_buffer("running").copy_(batch.x.mean())
        return super().objective(net, batch, noise, step)


@pytest.mark.parametrize(
    ("method", "builder", "found"),
    [
        (VAE(), normalised, "at step 0, the"),
        (LateVariance(), mlp, "at step 50, the term loss"),
        (RunningMean(), mlp, "the buffer running"),
        (BetaTCVAE(beta=1.0), mlp, "at step 0, the term"),
    ],
)
def test_hidden_statistics_of_batches_are_found(method: Method, builder: Any, found: str, toy: FactorData) -> None:
    with pytest.raises(UserError, match=found):
        check_divisible([spec_of(method)], toy, builder, 2)


def test_every_setting_is_checked(toy: FactorData) -> None:
    """The support term has no weight in the first run, but in the second."""
    specs = [spec_of(VAE()), spec_of(VAE(), factorised_support=0.1)]
    check_divisible(specs[:1], toy, mlp, 2)
    with pytest.raises(UserError, match="at step 0, the term loss"):
        check_divisible(specs, toy, mlp, 2)


@pytest.mark.parametrize(("method", "batch", "what"), [(VAE(), 9, "9 examples"), (AdaGVAE(), 6, "3 pairs")])
def test_batch_must_be_divisible(method: Method, batch: int, what: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"divisible by the number of devices. Got batch={batch}, which is {what}"):
        quick_train(tmp_path / "runs", method, batch=batch, devices=TWO)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("method", [BetaTCVAE(), FactorVAE()])
def test_refused_methods_leave_no_folder(method: Method, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unbraid study --devices"):
        quick_train(tmp_path / "runs", method, devices=TWO)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": ["cpu", "cuda:99"]}, "'cuda:99'"),
        ({"devices": ["cpu", "tpu"]}, "Got 'tpu' instead"),
        ({"devices": []}, "all be cpu. Got '' instead"),
        ({"devices": TWO, "device": "cuda"}, "either a device or devices"),
    ],
)
def test_devices_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        quick_train(**settings)


class Threads(BatchPart):
    """The part of one of several threads, each of which has its own stack. The gradients are added up in memory."""

    barrier: ClassVar[threading.Barrier]
    numbers: ClassVar[dict[int, Tensor]]

    def add_up(self, numbers: Tensor) -> None:
        self.numbers[self.index] = numbers.clone()
        self.barrier.wait(60)
        numbers.copy_(torch.stack([self.numbers[i] for i in range(self.count)]).sum(0))
        self.barrier.wait(60)


@pytest.mark.parametrize("method", [VAE(), AdaGVAE(), TripletVAE(), SemiVAE(labels=50)])
@pytest.mark.parametrize("vmapped", [False, True])
def test_stacks_of_several_runs_divide_their_batches(method: Method, vmapped: bool, toy: FactorData) -> None:
    """Steps with `vmap`, as on a GPU, and without, of stacks whose parts are computed by two threads."""
    Threads.barrier, Threads.numbers = threading.Barrier(2), {}
    specs = [spec_of(method, seed=seed) for seed in (0, 5)]
    parts = [Threads(0, 2), Threads(1, 2), None]
    whole, *divided = (Stack(specs, toy, mlp, vmapped=vmapped, part=part) for part in reversed(parts))
    initial = whole.rows.clone()
    for _ in range(5):
        whole.advance()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Stack.advance, divided))
    assert torch.equal(divided[0].rows, divided[1].rows)
    assert float((divided[0].rows - whole.rows).norm()) < 1e-3 * float((whole.rows - initial).norm())
    torch.testing.assert_close(divided[0].total, whole.total, rtol=1e-5, atol=1e-4)


def assert_close_runs(a: ub.Run, b: ub.Run) -> None:
    """Assert that two runs have equal specs, and that their logs and weights differ by rounding only."""
    assert a.spec == b.spec
    assert [list(line) for line in a.log] == [list(line) for line in b.log]
    for one, other in zip(a.log, b.log, strict=True):
        assert list(one.values()) == pytest.approx(list(other.values()), rel=1e-4, abs=1e-4)
    assert distance(a, b) < 1e-5


def distance(a: ub.Run, b: ub.Run) -> float:
    """The norm of the difference of the weights of two runs, relative to the norm of the weights."""
    one, other = (torch.cat([value.flatten().cpu() for value in weights(run).values()]) for run in (a, b))
    return float((one - other).norm() / one.norm())


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Adam divides by the size of the gradient, so rounding of small gradients grows. Other noise would change more."""
    settings = {"steps": 30, "batch": 16, "seeds": [0, 3], "weight_decay": 0.1, "clip_norm": 5.0}
    methods = [VAE(), BetaVAE(beta=4.0), AE(), AdaGVAE()]
    one = quick_train(tmp_path / "one", methods, **settings)
    two = quick_train(tmp_path / "two", methods, devices=TWO, **settings)
    other = quick_train(None, methods, **{**settings, "seeds": [1, 4]})
    for a, b, c in zip(one, two, other, strict=True):
        assert_close_runs(a, b)
        assert distance(a, c) > 0.1
    folders = tmp_path / "one", tmp_path / "two"
    files = [sorted(file.relative_to(folder) for file in folder.rglob("*.*")) for folder in folders]
    assert files[0] == files[1]


def test_three_processes_divide_own_data_with_own_network() -> None:
    """A network and data that exist in this process only are sent to the others. Held-out losses are logged."""
    data = torch.rand(60, 5, generator=torch.Generator().manual_seed(0)).numpy()
    width = 7

    def pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
        encoder = nn.Sequential(nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, 2 * latents))
        return encoder, nn.Linear(latents, shape[0])

    settings = {"data": data, "net": pair, "batch": 12, "validation": 0.2}
    (one,), (three,) = quick_train(**settings), quick_train(**settings, devices=["cpu"] * 3)
    assert_close_runs(one, three)
    assert "validation.loss" in three.log[-1]


def test_a_diverged_run_ends_and_the_next_one_trains() -> None:
    (bad, good) = quick_train(None, VAE(), learning_rate=[1e30, 1e-3], devices=TWO)
    (alone,) = quick_train(None, VAE(), learning_rate=1e30)
    assert bad.divergence == alone.divergence
    assert bad.divergence is not None
    assert good.divergence is None


@pytest.fixture
def started() -> Callable[[], list[Any]]:
    """Return a function that lists the child processes that the test has started. Other tests may leave theirs."""
    before = {child.pid for child in multiprocessing.active_children()}
    return lambda: [child for child in multiprocessing.active_children() if child.pid not in before]


def test_an_interrupted_run_resumes_with_the_same_bits(tmp_path: Path, started: Callable[[], list[Any]]) -> None:
    """Ctrl-C during a step: the step is completed, one checkpoint is written, and nothing is left behind."""

    def interrupt(spec: RunSpec, record: dict[str, float]) -> None:
        if record["step"] == 5:
            signal.raise_signal(signal.SIGINT)

    (whole,) = quick_train(tmp_path / "whole", devices=TWO)
    with pytest.raises(KeyboardInterrupt):
        quick_train(tmp_path / "cut", devices=TWO, on_log=interrupt)
    (cut,) = find_runs(tmp_path / "cut")
    assert (cut.status, cut.checkpoint_step()) == ("partial", 6)
    assert not started()
    (resumed,) = quick_train(tmp_path / "cut", devices=TWO)
    assert_same_run(whole, resumed)


def test_a_killed_worker_is_one_error(tmp_path: Path, started: Callable[[], list[Any]]) -> None:
    def kill(spec: RunSpec, record: dict[str, float]) -> None:
        if record["step"] == 5:
            (worker,) = started()
            os.kill(worker.pid, signal.SIGKILL)

    begun = time.monotonic()
    with pytest.raises(UserError, match="on cpu must run until the training ends, but it was killed"):
        quick_train(tmp_path, devices=TWO, on_log=kill, checkpoint_seconds=0.0)
    assert time.monotonic() - begun < 60
    assert not started()
    (run,) = find_runs(tmp_path)
    assert run.status in ("new", "partial")
    quick_train(tmp_path, devices=TWO)
    assert run.status == "done"


@dataclass(frozen=True)
class FailsElsewhere(VAE):
    """A VAE that fails in every process but one."""

    pid: int = 0

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        if os.getpid() != self.pid and step > 2:
            raise RuntimeError("no more coffee")
        return super().objective(net, batch, noise, step)


def test_an_error_in_a_worker_is_shown(started: Callable[[], list[Any]]) -> None:
    with pytest.raises(UserError, match=r"but it raised RuntimeError: no more coffee\. Runs resume"):
        quick_train(None, FailsElsewhere(pid=os.getpid()), devices=TWO)
    assert not started()


def test_processes_that_are_already_connected_are_refused(tmp_path: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(UserError, match="which this process already uses"):
            quick_train(devices=TWO)
        assert distributed.is_initialized()
    finally:
        distributed.destroy_process_group()


def listening_addresses(pid: int) -> set[str]:
    """The addresses at which a process accepts connections, in hexadecimal."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(link.readlink()))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_other_machines_cannot_connect(started: Callable[[], list[Any]]) -> None:
    """All sockets that listen during the training have the address 127.0.0.1."""
    addresses: set[str] = set()

    def report(spec: RunSpec, record: dict[str, float]) -> None:
        for pid in (os.getpid(), *(worker.pid for worker in started())):
            addresses.update(listening_addresses(pid))

    quick_train(devices=TWO, on_log=report)
    assert addresses == {"0100007F"}  # the bytes of 127.0.0.1, last byte first


def test_the_command_names_runs_as_on_one_device(tmp_path: Path, capsys: Capture) -> None:
    train = ["train", "vae", *FAST_TRAINING]
    assert unbraid(*train, "--out", tmp_path / "one") == 0
    assert unbraid(*train, "--out", tmp_path / "two", "--devices", "cpu,cpu") == 0
    one, two = ((find_runs(tmp_path / name)) for name in ("one", "two"))
    assert [run.spec for run in one] == [run.spec for run in two]
    assert [run.path.name for run in one] == [run.path.name for run in two]
    assert "divisible" in error_line(capsys, *train, "--devices", "cpu,cpu,cpu", "--out", tmp_path / "three")


COMMAND = [sys.executable, "-m", "unbraid", "train", "vae", "--data", "toy", "--steps", "600", "--batch", "8"]
COMMAND += ["--quiet", "--learning-rate", "1e-3", "--checkpoint-seconds", "0.05", "--devices", "cpu,cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_resumes_with_the_same_bits(number: signal.Signals, tmp_path: Path) -> None:
    subprocess.run([*COMMAND, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    cut = [*COMMAND, "--out", str(tmp_path / "cut")]
    process = subprocess.Popen(cut, stdout=subprocess.DEVNULL, start_new_session=True)
    begun = time.monotonic()
    while not list(tmp_path.glob("cut/*/checkpoint.safetensors")):
        assert time.monotonic() - begun < 60
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, number) if number == signal.SIGTERM else process.send_signal(number)
    assert process.wait(60) == -number
    (run,) = find_runs(tmp_path / "cut")
    assert run.status == "partial"
    subprocess.run(cut, check=True, capture_output=True)
    files = sorted((tmp_path / "whole").glob("*/*.*"))
    assert len(files) == 3
    for file in files:
        if file.name != "run.json":
            assert file.read_bytes() == (tmp_path / "cut" / file.parent.name / file.name).read_bytes()


@pytest.mark.gpu
def test_two_processes_on_one_gpu_equal_one() -> None:
    """The processes of one GPU use gloo, because NCCL needs a different GPU for each process."""
    settings = {"steps": 30, "batch": 16, "precision": "fp32"}
    (one,) = quick_train(None, VAE(), device="cuda", **settings)
    (two,) = quick_train(None, VAE(), devices=["cuda:0", "cuda:0"], **settings)
    assert_close_runs(one, two)
