"""Studies on a Ray cluster: what is sent and written, and that nothing is lost when workers, nodes or drivers die."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from support.studies import assert_same_studies, small_settings, small_study, sorted_results
from unbraid.cli.dispatch import main
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.methods import BetaVAE
from unbraid.runs.folder import find_runs
from unbraid.runs.scores import read_scores
from unbraid.studies import cluster, cluster_node
from unbraid.studies.cluster import run_cluster
from unbraid.studies.cluster_node import read_run_files, store_run, train_stack, write_run_files
from unbraid.studies.group_scores import GROUP_METRICS
from unbraid.studies.local import run_study
from unbraid.studies.planned import PlannedRun
from unbraid.studies.ray_cluster import check_address, connect
from unbraid.studies.run_scores import unfinished_runs
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import claim_stack, study_stacks, study_tasks
from unbraid.training.stack import Stack
from unbraid.version import __version__

# Sending and writing runs.


def test_run_folders_survive_the_transfer(tmp_path: Path) -> None:
    files = {"run.json": b"{}", "weights.safetensors": bytes(range(256))}
    write_run_files(tmp_path / "a", {**files, ".lock": b""})
    (tmp_path / "a" / "pictures").mkdir()
    assert read_run_files(tmp_path / "a") == files


ONE, TWO = (json.dumps({"metric": name, "codes": "mean", "values": {}}).encode() + b"\n" for name in ("mig", "sap"))


def test_a_run_is_stored_atomically_and_never_overwritten(tmp_path: Path) -> None:
    first = {"run.json": b"{}", "weights.safetensors": b"1", "scores.jsonl": ONE}
    store_run(tmp_path, "x", first)
    assert read_run_files(tmp_path / "x") == first
    store_run(
        tmp_path, "x", {"run.json": b"no", "weights.safetensors": b"2", "scores.jsonl": ONE + TWO, "log.jsonl": b""}
    )
    assert read_run_files(tmp_path / "x") == {**first, "scores.jsonl": ONE + TWO}
    assert {path.name for path in tmp_path.iterdir()} == {"x", ".arriving.lock"}


def killed_at(operation: int, monkeypatch: pytest.MonkeyPatch, out: Path, files: dict[str, bytes]) -> bool:
    """Store the run x, and interrupt the given rename or deletion of a file. Return whether it occurred."""
    count = itertools.count()

    def interrupted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(count) == operation:
                raise KeyboardInterrupt
            return original(*args, **options)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (os, "replace"), (os, "rename")):
            patch.setattr(owner, name, interrupted(getattr(owner, name)))
        try:
            store_run(out, "x", files)
        except KeyboardInterrupt:
            return True
    return False


def test_a_killed_writer_leaves_the_partial_run_or_the_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"run.json": b"{}", "checkpoint.safetensors": b"0", "diverged.json": b"{}", "log.jsonl": b"1"}
    whole = {"log.jsonl": b"2", "run.json": b"{}", "scores.jsonl": ONE, "weights.safetensors": b"1"}
    for operation in itertools.count():
        out = tmp_path / str(operation)
        write_run_files(out / "x", part)
        killed = killed_at(operation, monkeypatch, out, whole)
        found = read_run_files(out / "x")
        assert "run.json" in found
        assert found.get("checkpoint.safetensors") == b"0" or "weights.safetensors" in found
        if "weights.safetensors" in found:
            assert {**found, "checkpoint.safetensors": b""} == {**whole, "checkpoint.safetensors": b""}
        if not killed:
            break
        store_run(out, "x", whole)
        assert whole.items() <= read_run_files(out / "x").items()
        assert not (out / ".arriving").exists()
    assert operation > len(whole)
    assert found == whole


def test_a_killed_writer_leaves_no_part_of_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"run.json": b"{}", "weights.safetensors": b"1"}
    for operation in itertools.count():
        out = tmp_path / str(operation)
        out.mkdir()
        killed = killed_at(operation, monkeypatch, out, whole)
        assert not (out / "x").exists() or read_run_files(out / "x") == whole
        if not killed:
            break
        store_run(out, "x", whole)
        assert read_run_files(out / "x") == whole
        assert not (out / ".arriving").exists()
    assert operation > len(whole)


def test_unfinished_runs(tmp_path: Path) -> None:
    """Runs without weights, and runs without a score of this protocol. Diverged runs are finished."""
    settings = small_settings(tmp_path)
    stack, *_ = study_stacks(small_study(), settings)
    ids = [run.spec.id for run in stack.runs]
    assert [run.spec.id for run in unfinished_runs(stack, settings)] == ids
    run_study(small_study(), settings, quiet=True)
    assert unfinished_runs(stack, settings) == []
    assert unfinished_runs(stack, dataclasses.replace(settings, metrics=None)) == []
    assert len(unfinished_runs(stack, dataclasses.replace(settings, metrics=["mig", "sap"]))) == 4
    assert (
        len(
            unfinished_runs(
                stack, dataclasses.replace(settings, protocol=dataclasses.replace(settings.protocol, train=99))
            )
        )
        == 4
    )
    (tmp_path / ids[1] / "scores.jsonl").unlink()
    (tmp_path / ids[2] / "weights.safetensors").unlink()
    (tmp_path / ids[3] / "scores.jsonl").unlink()
    (tmp_path / ids[3] / "diverged.json").write_text("{}")
    assert [run.spec.id for run in unfinished_runs(stack, settings)] == ids[1:3]
    assert [run.spec.id for run in unfinished_runs(stack, dataclasses.replace(settings, scored=False))] == ids[2:3]


def test_a_node_resumes_the_runs_it_receives_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    settings = small_settings(tmp_path / "whole")
    run_study(small_study(), settings, quiet=True)
    stack, *_ = study_stacks(small_study(), settings)
    specs = [run.spec for run in stack.runs]
    trained = read_run_files(settings.out / specs[0].id)
    unscored = {name: content for name, content in trained.items() if name != "scores.jsonl"}
    calls = [spec.to_dict() for spec in specs]
    returned = train_stack(__version__, calls, "toy", settings, "name", {specs[0].id: unscored})
    for spec in specs:
        whole = read_run_files(settings.out / spec.id)
        assert {name: returned[spec.id][name] for name in whole} == whole
    assert [path.name for path in (tmp_path / "node").glob("*/*")] == ["name.lock"]


def test_a_node_resumes_from_its_own_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill in the fourth of six steps, the second call repeats no finished step."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = small_settings(tmp_path / "whole", checkpoint_seconds=0.0)
    run_study(small_study(), settings, quiet=True)
    monkeypatch.setattr("unbraid.training.loop.MAX_CHECKPOINT_FRACTION", 1e9)
    stack, *_ = study_stacks(small_study(), settings)
    taken: list[int] = []
    advance = Stack.advance

    def dying(self: Stack) -> None:
        taken.append(self.step)
        if taken == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        advance(self)

    monkeypatch.setattr(Stack, "advance", dying)
    call = [__version__, [run.spec.to_dict() for run in stack.runs], "toy", settings, "name", {}]
    with pytest.raises(KeyboardInterrupt):
        train_stack(*call)  # type: ignore[arg-type]
    returned = train_stack(*call)  # type: ignore[arg-type]
    assert taken == [0, 1, 2, 3, 3, 4, 5]
    for run in stack.runs:
        assert returned[run.spec.id] == read_run_files(settings.out / run.spec.id)


def test_nodes_check_the_version_and_the_shared_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must have unbraid 9\.9"):
        train_stack("9.9", [], "toy", small_settings(tmp_path), "name", {})
    with pytest.raises(UserError, match="Every node must have access"):
        train_stack(__version__, [], "toy", small_settings(tmp_path), None, {})


# The driver, with a fake cluster in this process.

Reference = tuple[int, int]


class FakeRay:
    """The part of Ray that a study uses. Remote functions run in this process when their result is requested.

    A reference is the number of a call and the number of the part of its result.
    """

    exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)

    def __init__(self) -> None:
        self.resources: dict[str, float] = {"CPU": 1}
        self.options: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.results: dict[int, Any] = {}
        self.parts: dict[int, int] = {}
        self.most = self.cancelled = 0

    def names(self) -> list[str]:
        """The names of the functions that were called."""
        return [function.__name__ for function, _ in self.calls]

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.resources}, {"Alive": False, "Resources": {"CPU": 64}}]

    def remote(self, **options: Any) -> Callable[..., Any]:
        def remote(function: Callable[..., Any], num_returns: int = 1) -> Any:
            self.options[function.__name__] = options

            def call(*arguments: Any) -> Any:
                number = len(self.calls)
                self.calls.append((function, arguments))
                self.parts[number] = num_returns
                references = [(number, part) for part in range(num_returns)]
                return references if num_returns > 1 else references[0]

            return SimpleNamespace(remote=call, options=partial(remote, function))

        return remote

    def wait(self, references: list[Reference], timeout: float = 0.0) -> tuple[list[Reference], list[Reference]]:
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference: Reference) -> Any:
        number, part = reference
        if number not in self.results:
            function, arguments = self.calls[number]
            self.results[number] = function(*arguments)
        result = self.results[number]
        if self.parts[number] == 1:
            return result
        assert len(result) == self.parts[number]
        return result[part]

    def cancel(self, reference: Reference, force: bool) -> None:
        self.cancelled += 1


@pytest.fixture
def fake_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    found = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", found)
    return found


def test_only_unfinished_runs_are_sent(tmp_path: Path, fake_ray: FakeRay) -> None:
    """One run is deleted, one partly trained, one without scores: these three are sent, and the study is complete."""
    run_study(small_study(), small_settings(tmp_path / "whole", group_metrics=GROUP_METRICS), quiet=True)
    out = tmp_path / "cluster"
    assert run_cluster(small_study(), small_settings(out, group_metrics=GROUP_METRICS), quiet=True).parent == out
    assert_same_studies(tmp_path / "whole", out)
    assert fake_ray.names() == ["train_stack_in_parts"] * 2 + ["score_group"] * 4
    names = [run.path.name for run in find_runs(out) if isinstance(run.spec.method, BetaVAE)]
    shutil.rmtree(out / names[0])
    (out / names[1] / "weights.safetensors").unlink()
    (out / names[2] / "scores.jsonl").unlink()
    kept = (out / names[2] / "weights.safetensors").stat().st_mtime_ns
    run_cluster(small_study(), small_settings(out, group_metrics=GROUP_METRICS), quiet=True)
    assert_same_studies(tmp_path / "whole", out)
    assert (out / names[2] / "weights.safetensors").stat().st_mtime_ns == kept
    assert fake_ray.names()[6:] == ["train_stack_in_parts"] + ["score_group"] * 2  # two of the four settings
    _, (_, specs, _, _, _, started) = fake_ray.calls[6]
    assert len(specs) == 3
    assert started.keys() == set(names[1:3])


def test_few_stacks_are_submitted_at_a_time(tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.training.schedule.MAX_RUNS_PER_STACK_ON_CPU", 1)
    run_cluster(small_study(), small_settings(tmp_path / "out"), shared=True, quiet=True)
    assert len(fake_ray.calls) == 8
    assert fake_ray.most == 2
    assert len(find_runs(tmp_path / "out")) == 8


def test_stacks_claimed_by_others_are_waited_for(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    stack, *_ = study_stacks(small_study(), small_settings(out))
    other = ExitStack()  # stands for another process, which releases its claim when it is first waited for
    assert other.enter_context(claim_stack(out, stack))
    monkeypatch.setattr("unbraid.studies.cluster.time", SimpleNamespace(sleep=lambda seconds: other.close()))
    run_cluster(small_study(), small_settings(out), quiet=True)
    assert [len(arguments[1]) for _, arguments in fake_ray.calls] == [4, 4]
    assert len(find_runs(out)) == 8


def test_an_error_of_a_node_ends_the_study(tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fake_ray, "get", lambda reference: (_ for _ in ()).throw(TaskError(ValueError("no such thing")))
    )
    monkeypatch.setattr(fake_ray, "exceptions", SimpleNamespace(RayError=RuntimeError, RayTaskError=TaskError))
    with pytest.raises(ValueError, match="no such thing"):
        run_cluster(small_study(), small_settings(tmp_path / "out"), quiet=True)
    assert fake_ray.cancelled == 2
    monkeypatch.setattr(fake_ray, "get", lambda reference: (_ for _ in ()).throw(RuntimeError("node died")))
    with pytest.raises(UserError, match=r"A task was lost: node died\. Run the same command again"):
        run_cluster(small_study(), small_settings(tmp_path / "out"), quiet=True)


class TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def test_clusters_without_the_resources_are_rejected(tmp_path: Path, fake_ray: FakeRay) -> None:
    with pytest.raises(UserError, match="None of the 1 nodes of the cluster has a GPU"):
        run_cluster(small_study(), small_settings(tmp_path, device="cuda"), quiet=True)
    with pytest.raises(UserError, match="has the 3 cores that a stack needs"):
        run_cluster(small_study(), dataclasses.replace(small_settings(tmp_path), jobs=3), quiet=True)


def test_a_node_with_a_gpu_determines_the_stacks(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has no GPU. In this test the GPU of the node is a CPU."""
    asked = []

    def node_stacks(planned: list[PlannedRun], given: StudySettings) -> Any:
        asked.append((len(planned), given.device))
        return [stack.runs for stack in study_stacks(planned, dataclasses.replace(given, device="cpu"))]

    def train(version: str, specs: Any, data: str, given: StudySettings, *more: Any) -> Any:
        return train_stack(version, specs, data, dataclasses.replace(given, device="cpu"), *more)

    fake_ray.resources["GPU"] = 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("unbraid.studies.ray_cluster.stacks_on_node", node_stacks)
    monkeypatch.setattr(cluster_node, "train_stack", train)
    run_cluster(small_study(), small_settings(tmp_path / "out", device="cuda:1"), quiet=True)
    assert asked == [(8, "cuda")]
    needs = {name: (options["num_cpus"], options["num_gpus"]) for name, options in fake_ray.options.items()}
    assert needs == {
        "train_stack_in_parts": (0, 1),
        "node_stacks": (0, 1),
        "score_stack": (1, 0),
        "score_group": (1, 0),
    }
    assert len(find_runs(tmp_path / "out")) == 8


def train_on_cpu(fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake cluster have a GPU, which is a CPU. The driver has none."""

    def train(version: str, specs: Any, data: str, given: StudySettings, *more: Any) -> Any:
        return train_stack(version, specs, data, dataclasses.replace(given, device="cpu"), *more)

    fake_ray.resources["GPU"] = 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("unbraid.studies.stacks.load_data", lambda name, device: load_data(name, "cpu"))
    monkeypatch.setattr(cluster_node, "train_stack", train)


@pytest.mark.parametrize("shared", [False, True])
def test_runs_that_were_trained_on_a_gpu_are_scored_in_tasks_of_their_own(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """The study equals that of one process. After the loss of a score, no run is trained again."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    run_study(small_study(), small_settings(whole, precision="fp32", group_metrics=GROUP_METRICS), quiet=True)
    train_on_cpu(fake_ray, monkeypatch)
    monkeypatch.setattr(cluster, "RUNS_PER_SCORING_TASK", 3)
    settings = small_settings(out, device="cuda", precision="fp32", group_metrics=GROUP_METRICS)
    run_cluster(small_study(), settings, shared=shared, quiet=True)
    assert_same_studies(whole, out)
    study = ["stacks_on_node", "train_stack_in_parts", *["score_stack"] * 3]
    assert fake_ray.names() == [*study, *["score_group"] * 4]
    scored = {function.__name__: arguments[3].scored for function, arguments in fake_ray.calls if len(arguments) > 3}
    assert scored == {"train_stack_in_parts": False, "score_stack": True, "score_group": True}
    (find_runs(out)[0].path / "scores.jsonl").unlink()
    run_cluster(small_study(), settings, shared=shared, quiet=True)
    assert_same_studies(whole, out)
    assert fake_ray.names()[9:] == ["stacks_on_node", "score_stack", "score_group"]


def test_the_next_stacks_are_trained_while_others_are_scored(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores come as late as possible here. Training goes on until four stacks per GPU lack scores."""
    train_on_cpu(fake_ray, monkeypatch)
    monkeypatch.setattr("unbraid.training.schedule.MAX_RUNS_PER_STACK_ON_CPU", 1)
    monkeypatch.setattr("unbraid.studies.stacks.group_small_stacks", lambda stacks, count: ([one] for one in stacks))
    results: list[str] = []

    def wait(references: list[Reference], timeout: float = 0.0) -> tuple[list[Reference], list[Reference]]:
        (number, part) = min(references, key=lambda reference: fake_ray.names()[reference[0]] == "score_stack")
        results.append(fake_ray.names()[number])
        return [(number, part)], []

    monkeypatch.setattr(fake_ray, "wait", wait)
    run_cluster(small_study(), small_settings(tmp_path / "out", device="cuda"), quiet=True)
    assert results[:5] == ["train_stack_in_parts"] * 4 + ["score_stack"]
    assert sorted(results) == ["score_stack"] * 8 + ["train_stack_in_parts"] * 8


def test_a_new_seed_replaces_the_scores_of_its_group(tmp_path: Path, fake_ray: FakeRay) -> None:
    """The UDR depends on all runs of a group, so its old value must not stay beside the new one."""
    settings = small_settings(tmp_path / "out", group_metrics=GROUP_METRICS)
    run_cluster(small_study(seeds=2), settings, quiet=True)
    run_cluster(small_study(seeds=3), settings, quiet=True)
    run_study(small_study(seeds=3), dataclasses.replace(settings, out=tmp_path / "whole"), quiet=True)
    for run in find_runs(tmp_path / "out"):
        metrics = [(record["metric"], record["codes"]) for record in read_scores(run.path)]
        assert sorted(metrics) == sorted(set(metrics))
    assert sorted_results(tmp_path / "out").equals(sorted_results(tmp_path / "whole"))


def test_nodes_train_small_stacks_at_the_same_time_as_a_single_machine_does(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stacks of four runs are one task on a GPU, on a node and on one machine. In this test the GPU is a CPU."""
    train_on_cpu(fake_ray, monkeypatch)
    (task,) = study_tasks(small_study(), small_settings(tmp_path, device="cuda"))
    run_cluster(small_study(), small_settings(tmp_path / "out", device="cuda"), quiet=True)
    (_, arguments) = fake_ray.calls[-1]
    assert fake_ray.names() == ["stacks_on_node", "train_stack_in_parts", "score_stack"]
    assert arguments[1] == [run.spec.to_dict() for run in task.runs]
    assert len(find_runs(tmp_path / "out")) == 8


def test_the_driver_receives_one_run_at_a_time(tmp_path: Path, fake_ray: FakeRay) -> None:
    """Each run of a task is an object of its own. A stack of FactorVAEs would otherwise need several GB."""
    run_cluster(small_study(), small_settings(tmp_path / "out"), quiet=True)
    assert list(fake_ray.parts.values()) == [4, 4]
    run_cluster(small_study(), small_settings(tmp_path / "shared"), shared=True, quiet=True)
    assert list(fake_ray.parts.values()) == [4, 4, 1, 1]


def test_the_study_file_is_written_once_per_dataset(
    tmp_path: Path, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing it for each stack would take time that grows with the square of the number of runs."""
    written: list[int] = []
    monkeypatch.setattr("unbraid.training.schedule.MAX_RUNS_PER_STACK_ON_CPU", 1)
    monkeypatch.setattr(cluster, "write_study_file", lambda settings, runs: written.append(len(runs)))
    run_cluster(small_study(), small_settings(tmp_path / "out"), quiet=True)
    assert written == [8]


# Connecting to a cluster.


def test_a_missing_ray_is_reported_with_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    flags = ["study", "locatello2019", "--data", "toy", "--seeds", "0", "--steps", "5", "--out", str(tmp_path / "s")]
    assert main([*flags, "--cluster", "auto"]) == 2
    assert 'pip install "unbraid[cluster]"' in capsys.readouterr().err
    assert main([*flags, "--cluster-shared"]) == 2
    assert "Add --cluster auto" in capsys.readouterr().err


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


def test_auto_connects_or_starts_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []

    def init(address: str, **options: Any) -> None:
        addresses.append(address)
        if address != "local":
            raise ConnectionError("none")

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    connect(SimpleNamespace(init=init), "auto")
    assert addresses == ["auto", "local"]
    monkeypatch.setattr("unbraid.studies.ray_cluster.check_address", lambda address: None)
    with pytest.raises(UserError, match="Could not connect to a Ray cluster at host:1: none"):
        connect(SimpleNamespace(init=init), "host:1")
