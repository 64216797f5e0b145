"""Studies on a Ray cluster: what is sent, what is written, and that nothing is lost with workers, nodes and drivers."""

from __future__ import annotations

import dataclasses
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_study import order, small, table_of, weights

from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.methods import BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.studies import cluster as spreading
from unbraid.studies.cluster import check_address, join, place, run_cluster, train_stack
from unbraid.studies.group_scores import CLOSING
from unbraid.studies.planned import Planned
from unbraid.studies.runner import Order, claimed, left, pack, prepared, run_study, unpack
from unbraid.training.stack import Stack

# What is sent and written.


def test_folders_survive_the_way(tmp_path: Path) -> None:
    files = {"run.json": b"{}", "weights.safetensors": bytes(range(256))}
    unpack(tmp_path / "a", {**files, ".lock": b""})
    (tmp_path / "a" / "pictures").mkdir()
    assert pack(tmp_path / "a") == files


ONE, TWO = b'{"metric": "mig", "values": {}}\n', b'{"metric": "sap", "values": {}}\n'


def test_a_run_appears_whole_and_is_never_overwritten(tmp_path: Path) -> None:
    first = {"run.json": b"{}", "weights.safetensors": b"1", "scores.jsonl": ONE}
    place(tmp_path, "x", first)
    assert pack(tmp_path / "x") == first
    place(tmp_path, "x", {"run.json": b"no", "weights.safetensors": b"2", "scores.jsonl": ONE + TWO, "log.jsonl": b""})
    assert pack(tmp_path / "x") == {**first, "scores.jsonl": ONE + TWO}
    assert {path.name for path in tmp_path.iterdir()} == {"x", ".arriving.lock"}


def test_a_beginning_gives_way_and_a_killed_writer_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(tmp_path / "x", {"run.json": b"{}", "checkpoint.safetensors": b"0"})
    whole = {"run.json": b"{}", "weights.safetensors": b"1"}

    def dies(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", dies)
        place(tmp_path, "x", whole)
    assert [path.parent.name for path in tmp_path.glob("*/run.json")] == ["x"]
    assert "checkpoint.safetensors" in pack(tmp_path / "x")
    place(tmp_path, "x", whole)
    assert pack(tmp_path / "x") == whole
    assert not (tmp_path / ".arriving").exists()


def test_what_is_left(tmp_path: Path) -> None:
    """Runs without weights, and runs without a score of this protocol; diverged ones are over."""
    chosen = order(tmp_path)
    stack, *_ = prepared(small(), chosen)
    ids = [run.spec.id for run in stack.runs]
    assert [run.spec.id for run in left(stack, chosen)] == ids
    run_study(small(), chosen, quiet=True)
    assert left(stack, chosen) == []
    assert left(stack, dataclasses.replace(chosen, metrics=None)) == []
    assert len(left(stack, dataclasses.replace(chosen, metrics=["mig", "sap"]))) == 4
    assert len(left(stack, dataclasses.replace(chosen, protocol=dataclasses.replace(chosen.protocol, train=99)))) == 4
    (tmp_path / ids[1] / "scores.jsonl").unlink()
    (tmp_path / ids[2] / "weights.safetensors").unlink()
    (tmp_path / ids[3] / "scores.jsonl").unlink()
    (tmp_path / ids[3] / "diverged.json").write_text("{}")
    assert [run.spec.id for run in left(stack, chosen)] == ids[1:3]
    assert [run.spec.id for run in left(stack, dataclasses.replace(chosen, scored=False))] == ids[2:3]


def test_a_node_goes_on_from_what_it_is_given_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    chosen = order(tmp_path / "whole")
    run_study(small(), chosen, quiet=True)
    stack, *_ = prepared(small(), chosen)
    specs = [run.spec for run in stack.runs]
    trained = pack(chosen.out / specs[0].id)
    unscored = {name: content for name, content in trained.items() if name != "scores.jsonl"}
    calls = [spec.to_dict() for spec in specs]
    made = train_stack(spreading.__version__, calls, "toy", chosen, "name", {specs[0].id: unscored})
    for spec in specs:
        whole = pack(chosen.out / spec.id)
        assert {name: made[spec.id][name] for name in whole} == whole
    assert [path.name for path in (tmp_path / "node").glob("*/*")] == ["name.lock"]


def test_a_node_goes_on_from_a_checkpoint_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at the fourth of six steps, called again: the steps it had are not taken twice."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chosen = order(tmp_path / "whole", checkpoint_seconds=0.0)
    run_study(small(), chosen, quiet=True)
    monkeypatch.setattr("unbraid.training.loop.CHECKPOINT_SHARE", 1e9)
    stack, *_ = prepared(small(), chosen)
    taken: list[int] = []
    advance = Stack.advance

    def dying(self: Stack) -> None:
        taken.append(self.step)
        if taken == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        advance(self)

    monkeypatch.setattr(Stack, "advance", dying)
    call = [spreading.__version__, [run.spec.to_dict() for run in stack.runs], "toy", chosen, "name", {}]
    with pytest.raises(KeyboardInterrupt):
        train_stack(*call)  # type: ignore[arg-type]
    made = train_stack(*call)  # type: ignore[arg-type]
    assert taken == [0, 1, 2, 3, 3, 4, 5]
    for run in stack.runs:
        assert made[run.spec.id] == pack(chosen.out / run.spec.id)


def test_nodes_refuse_what_would_differ(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must have unbraid 9\.9"):
        train_stack("9.9", [], "toy", order(tmp_path), "name", {})
    with pytest.raises(UserError, match="Every node must see"):
        train_stack(spreading.__version__, [], "toy", order(tmp_path), None, {})


# The driver, with a cluster that is this process.


class Here:
    """The part of Ray that a study uses, carried out when it is waited for."""

    exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)

    def __init__(self) -> None:
        self.resources: dict[str, float] = {"CPU": 1}
        self.options: dict[str, Any] = {}
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.most = self.cancelled = 0

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.resources}, {"Alive": False, "Resources": {"CPU": 64}}]

    def remote(self, **options: Any) -> Callable[..., Any]:
        self.options = options

        def remote(function: Callable[..., Any]) -> Any:
            def call(*arguments: Any) -> int:
                self.calls.append((function, arguments))
                return len(self.calls) - 1

            return SimpleNamespace(remote=call)

        return remote

    def wait(self, references: list[int], timeout: float) -> tuple[list[int], list[int]]:
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference: int) -> Any:
        function, arguments = self.calls[reference]
        return function(*arguments)

    def cancel(self, reference: int, force: bool) -> None:
        self.cancelled += 1


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    found = Here()
    monkeypatch.setitem(sys.modules, "ray", found)
    return found


def equal(a: Path, b: Path) -> None:
    """The same runs, bit for bit, and the same table."""
    one, other = weights(a), weights(b)
    assert len(find_runs(b)) == len(one)
    assert one.keys() == other.keys()
    for name, parts in one.items():
        assert all(torch.equal(value, other[name][key]) for key, value in parts.items()), name
        for file in ("log.jsonl", "scores.jsonl"):
            assert (a / name / file).read_bytes() == (b / name / file).read_bytes()
    assert table_of(a).equals(table_of(b))


def test_only_what_is_left_is_sent(tmp_path: Path, here: Here) -> None:
    """A run gone, one begun, one without scores: those three travel, and the study is whole again."""
    run_study(small(), order(tmp_path / "whole", closing=CLOSING), quiet=True)
    out = tmp_path / "cut"
    assert run_cluster(small(), order(out, closing=CLOSING), quiet=True).parent == out
    equal(tmp_path / "whole", out)
    assert len(here.calls) == 2
    names = [run.path.name for run in find_runs(out) if isinstance(run.spec.method, BetaVAE)]
    shutil.rmtree(out / names[0])
    (out / names[1] / "weights.safetensors").unlink()
    (out / names[2] / "scores.jsonl").unlink()
    kept = (out / names[2] / "weights.safetensors").stat().st_mtime_ns
    run_cluster(small(), order(out, closing=CLOSING), quiet=True)
    equal(tmp_path / "whole", out)
    assert (out / names[2] / "weights.safetensors").stat().st_mtime_ns == kept
    assert len(here.calls) == 3
    _, (_, specs, _, _, _, begun) = here.calls[-1]
    assert len(specs) == 3
    assert begun.keys() == set(names[1:3])


def test_few_stacks_are_handed_out_at_a_time(tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.studies.runner.ON_CPU", 1)
    run_cluster(small(), order(tmp_path / "out"), shared=True, quiet=True)
    assert len(here.calls) == 8
    assert here.most == 2
    assert len(find_runs(tmp_path / "out")) == 8


def test_stacks_that_others_hold_are_waited_for(tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    stack, *_ = prepared(small(), order(out))
    other = ExitStack()  # another process, which gives up when it is first waited for
    assert other.enter_context(claimed(out, stack))
    monkeypatch.setattr("unbraid.studies.cluster.time", SimpleNamespace(sleep=lambda seconds: other.close()))
    run_cluster(small(), order(out), quiet=True)
    assert [len(arguments[1]) for _, arguments in here.calls] == [4, 4]
    assert len(find_runs(out)) == 8


def test_what_a_node_refuses_ends_the_study(tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "get", lambda reference: (_ for _ in ()).throw(Refused(ValueError("no such thing"))))
    monkeypatch.setattr(here, "exceptions", SimpleNamespace(RayError=RuntimeError, RayTaskError=Refused))
    with pytest.raises(ValueError, match="no such thing"):
        run_cluster(small(), order(tmp_path / "out"), quiet=True)
    assert here.cancelled == 1
    monkeypatch.setattr(here, "get", lambda reference: (_ for _ in ()).throw(RuntimeError("node died")))
    with pytest.raises(UserError, match=r"lost for good: node died\. Give the same command again"):
        run_cluster(small(), order(tmp_path / "out"), quiet=True)


class Refused(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def test_clusters_that_cannot_train_are_refused(tmp_path: Path, here: Here) -> None:
    with pytest.raises(UserError, match="No node with a GPU among the 1"):
        run_cluster(small(), order(tmp_path, device="cuda"), quiet=True)
    with pytest.raises(UserError, match="has the 3 cores of a stack"):
        run_cluster(small(), dataclasses.replace(order(tmp_path), jobs=3), quiet=True)


def test_a_node_with_a_gpu_is_asked_for_the_stacks(tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver has none; here the GPU is the processor by another name."""
    asked = []

    def survey(planned: list[Planned], given: Order) -> Any:
        asked.append((len(planned), given.device))
        return [stack.runs for stack in prepared(planned, dataclasses.replace(given, device="cpu"))]

    def train(version: str, specs: Any, data: str, given: Order, *more: Any) -> Any:
        return train_stack(version, specs, data, dataclasses.replace(given, device="cpu"), *more)

    here.resources["GPU"] = 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(spreading, "survey", survey)
    monkeypatch.setattr(spreading, "train_stack", train)
    run_cluster(small(), order(tmp_path / "out", device="cuda:1"), quiet=True)
    assert asked == [(8, "cuda")]
    assert here.options["num_gpus"] == 1
    assert len(find_runs(tmp_path / "out")) == 8


# Finding a cluster.


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    flags = ["study", "locatello2019", "--data", "toy", "--seeds", "0", "--steps", "5", "--out", str(tmp_path / "s")]
    assert main([*flags, "--cluster", "auto"]) == 2
    assert 'pip install "unbraid[cluster]"' in capsys.readouterr().err
    assert main([*flags, "--cluster-shared"]) == 2
    assert "add --cluster auto" in capsys.readouterr().err


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("somewhere", "host:", ":6379", "ray://host", "host:port"):
        with pytest.raises(UserError, match="must be auto, HOST:PORT"):
            check_address(bad)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(UserError, match=f"No Ray cluster at ray://127.0.0.1:{port}"):
            check_address(f"ray://127.0.0.1:{port}")
        listening.listen()
        check_address(f"127.0.0.1:{port}")


def test_auto_joins_or_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def init(address: str, **options: Any) -> None:
        asked.append(address)
        if address != "local":
            raise ConnectionError("none")

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    join(SimpleNamespace(init=init), "auto")
    assert asked == ["auto", "local"]
    monkeypatch.setattr("unbraid.studies.cluster.check_address", lambda address: None)
    with pytest.raises(UserError, match="could be joined at host:1: none"):
        join(SimpleNamespace(init=init), "host:1")
