"""Training in several threads of a process, in forked processes and while a program ends."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch

import unbraid as ub
from support.training import assert_same_run
from unbraid.accel.devices import one_thread
from unbraid.training import threads
from unbraid.training.threads import map_in_threads

T = TypeVar("T")


def in_new_thread(function: Callable[[], T]) -> T:
    """Return what a function returns in a new thread."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results[0]


def output_of(script: str) -> str:
    """Return what a Python script prints. It must end within two minutes."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_one_thread_is_a_limit_of_its_own_thread_only() -> None:
    torch.set_num_threads(3)
    with one_thread():
        assert torch.get_num_threads() == 1
        assert in_new_thread(torch.get_num_threads) == 3
    assert torch.get_num_threads() == in_new_thread(torch.get_num_threads) == 3


def test_threads_share_the_cores_of_the_thread_that_starts_them() -> None:
    for cores, expected in ((6, 3), (4, 2), (1, 1)):
        torch.set_num_threads(cores)
        found = map_in_threads(2, lambda _: (torch.ones(9).sum(), torch.get_num_threads())[1], range(4))
        assert found == [expected] * 4
        assert torch.get_num_threads() == in_new_thread(torch.get_num_threads) == cores


def test_an_error_in_one_thread_is_raised_when_the_others_have_ended() -> None:
    first_has_failed, ended = threading.Event(), []

    def work(i: int) -> None:
        if i == 0:
            first_has_failed.set()
            raise ValueError("first")
        first_has_failed.wait(60)
        ended.append(i)

    with pytest.raises(ValueError, match="first"):
        map_in_threads(2, work, range(3))
    assert ended == [1, 2]


def test_pools_that_accept_no_more_work_are_replaced_by_the_current_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors of a pool are raised, because it may still do the work."""

    class Closing:
        def __init__(self, reason: str) -> None:
            self.reason = reason

        def submit(self, *_: object) -> None:
            raise RuntimeError(self.reason)

    torch.set_num_threads(4)
    monkeypatch.setattr(threads, "_thread_pool", lambda *_: Closing(threads.NO_MORE_WORK))
    assert map_in_threads(2, lambda i: (i, torch.get_num_threads()), range(3)) == [(0, 2), (1, 2), (2, 2)]
    assert torch.get_num_threads() == 4
    monkeypatch.setattr(threads, "_thread_pool", lambda *_: Closing("can't start new thread"))
    with pytest.raises(RuntimeError, match="new thread"):
        map_in_threads(2, abs, range(3))


def test_a_training_continues_after_the_main_thread_has_ended() -> None:
    script = """
import threading, torch, unbraid as ub
from unbraid.training import loop
torch.set_num_threads(2)
ended = threading.Event()
def end(*_): ended.set(); threading.main_thread().join()
def work(): print(len(ub.train("vae", data="toy", seeds=range(3), steps=2, batch=4, quiet=True, on_log=end)))
threading.Thread(target=work).start()
ended.wait()
"""
    assert output_of(script) == "3\n"


@pytest.mark.skipif(sys.platform != "linux", reason="OpenMP hangs in forked processes on Linux only")
def test_a_forked_process_can_train() -> None:
    """The parent has computed with several threads and has a pool of threads, none of which its child has."""
    script = """
import os, torch, unbraid as ub
def train(): return ub.train("vae", data="sprites", seeds=range(2), steps=2, batch=4, quiet=True)
torch.set_num_threads(2)
a = torch.ones(600, 600)
a @ a
train()
child = os.fork()
if child == 0:
    a @ a
    train()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert output_of(script) == "7\n"


def test_a_network_can_be_built_from_a_stored_run(tmp_path: Path) -> None:
    """The network of the stored run is built while that of the new run is built."""
    (stored,) = ub.train("vae", data="toy", steps=1, quiet=True, out=tmp_path)

    def build(shape: tuple[int, ...], latents: int) -> tuple[torch.nn.Module, torch.nn.Module]:
        net = ub.load_run(tmp_path / stored.id).net
        assert net.decoder is not None
        parts = copy.deepcopy([net.encoder, net.decoder])
        return parts[0].requires_grad_(), parts[1].requires_grad_()

    result = in_new_thread(lambda: ub.train("vae", data="toy", net=build, steps=1, quiet=True))
    assert result[0].log[-1]["loss"] < stored.log[-1]["loss"]


def test_trainings_in_several_threads_equal_single_ones() -> None:
    start, found = threading.Barrier(3), {}

    def train(seed: int) -> ub.Run:
        return ub.train("beta_vae", data="sprites", seeds=[seed], steps=3, batch=8, quiet=True)[0]

    def work(seed: int) -> None:
        start.wait(60)
        found[seed] = train(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    for seed in range(3):
        assert_same_run(found[seed], train(seed))
