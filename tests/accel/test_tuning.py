"""The search for launch settings, the file in which they are stored, and which settings a launch uses.

Without a GPU, kernels run and are timed in the interpreter of Triton.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed here")

from triton.runtime.errors import OutOfResources

from support.guarded import faster_interpreter
from unbraid.accel import launch_file, tuning
from unbraid.accel.kernels import tuned
from unbraid.accel.launch_candidates import KERNELS, KEYS, RUNS, Key, candidates, nearest_size
from unbraid.accel.launch_file import (
    Environment,
    Found,
    LaunchFile,
    current_environment,
    delete_launch_files,
    launch_provenance,
    read_launch_file,
    user_table,
    write_launch_file,
)  # fmt: skip
from unbraid.accel.precision import matmul_precision
from unbraid.accel.tuning import Search, choose, gpu_environment, tune, work
from unbraid.accel.tuning_jobs import Workload
from unbraid.cli.dispatch import main
from unbraid.errors import UserError

DENSE: Key = ("dense", 16, 256)
SMALL: Key = ("dense", 256, 24)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is timed, not the GPU")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    user_table.cache_clear()
    yield tmp_path
    user_table.cache_clear()


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    """Kernels multiply as with tf32, for which settings are searched."""
    with matmul_precision("tf32"):
        yield


@pytest.fixture
def environment() -> Environment:
    found = current_environment()
    assert found is not None
    return found


def entry(key: Key = DENSE, runs: int = 16, index: int | None = 0, precision: str = "tf32") -> Found:
    """A result of the search, with the candidate of this index."""
    settings = None if index is None else candidates(key, precision)[index]  # type: ignore[arg-type]
    return Found(*key, runs, settings, 1.5, 2.0)


# What is searched


def test_all_sizes_of_the_issue_are_searched() -> None:
    assert RUNS == (1, 4, 16, 40, 64, 128, 256)
    assert tuple(Search().runs) == RUNS
    assert {key[0] for key in Search().keys} == set(KERNELS)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_candidates_have_the_settings_of_the_kernel_and_cover_the_layer(key: Key, precision: Any) -> None:
    name, c, m = key
    for launch in candidates(key, precision):
        groups = {"BM", "GB", "ST", "num_warps"}  # the settings of the second kernel of 4x4 convolutions
        assert set(launch) == (groups if "GB" in launch else set(tuned.DEFAULT[name]))
        assert m % launch.get("BO", 1) == 0
        if name.startswith("conv_transpose4x4"):
            assert 4 * c % launch["BN"] == 0
        if "SPLIT" in launch:
            assert 4 * c % launch["TM"] == 0
            assert (4 * m if "4x4" in name else m) % launch["TN"] == 0


def test_every_layer_of_the_table_of_the_package_is_searched() -> None:
    rows = {key for key in tuned.BFLOAT16 if key not in {("conv4x4", 32, 64), ("conv4x4", 64, 64)}}
    assert rows == set(KEYS)


@pytest.mark.parametrize("runs", [1, 2, 3, 8, 9, 25, 26, 50, 90, 181, 182, 256, 1000])
def test_the_nearest_size_has_the_smallest_ratio(runs: int) -> None:
    size = nearest_size(runs, RUNS)
    assert all(max(size / runs, runs / size) <= max(other / runs, runs / other) + 1e-12 for other in RUNS)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_the_job_of_every_layer_looks_up_the_settings_of_that_layer(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lookup is that of the layer. The kernel itself is not run here, because the interpreter is slow."""

    class SettingsFoundError(Exception):
        pass

    def lookup(*arguments: Any) -> None:
        raise SettingsFoundError(arguments)

    job = Workload(2, torch.float32, torch.device("cpu"), 1).job(key)
    for module in ("conv2x2", "conv4x4", "conv_transpose4x4", "dense", "dense_adam", "last_layer", "weights"):
        monkeypatch.setattr(f"unbraid.accel.kernels.{module}.launch_settings", lookup)
    with faster_interpreter(), pytest.raises(SettingsFoundError) as raised:
        job()
    assert raised.value.args[0] == (*key, torch.float32, 2)


# The search


@without_gpu
def test_a_search_stores_settings_that_launches_use(environment: Environment) -> None:
    with faster_interpreter():
        found, left = tune(Search([SMALL], [1, 4], "tf32", batch=1))
    assert left == 0
    assert [(f.key, f.runs) for f in found] == [(SMALL, 1), (SMALL, 4)]
    stored = read_launch_file(environment)
    assert stored is not None
    assert stored.tf32 == found
    assert stored.bf16 == []
    for runs in (1, 4):
        expected = found[runs > 1].settings or tuned.package_settings(*SMALL, torch.float32, runs)
        assert tuned.launch_settings(*SMALL, torch.float32, runs) == expected


@without_gpu
def test_a_search_continues_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupted search keeps the layers that are complete, and the second one searches only the others."""
    search, searched = Search([SMALL], [1, 4, 16], "tf32", batch=1), []

    def best(key: Key, runs: int, search: Search) -> Found:
        searched.append(runs)
        if len(searched) == 2:
            raise KeyboardInterrupt
        return entry(key, runs)

    monkeypatch.setattr(tuning, "best_settings", best)
    total = work(search)
    with pytest.raises(KeyboardInterrupt):
        tune(search)
    assert work(search) == total * 2 // 3
    reports: list[float] = []
    found, left = tune(search, lambda done, note="": reports.append(done))
    assert searched == [1, 4, 4, 16]
    assert [f.runs for f in found] == [4, 16]
    assert left == 0
    assert reports == [total / 3, total * 2 / 3]


@without_gpu
def test_a_search_ends_at_its_time_limit() -> None:
    found, left = tune(Search([SMALL, DENSE], [1], "tf32", minutes=0.0, batch=1))
    assert (found, left) == ([], 2)


def test_only_clearly_faster_settings_replace_those_of_the_package() -> None:
    launch = candidates(DENSE, "bf16")[0]
    slower, faster = choose(DENSE, 4, 100.0, [(98.0, launch)]), choose(DENSE, 4, 100.0, [(90.0, launch)])
    assert slower == Found(*DENSE, 4, None, 100.0, 100.0)
    assert faster == Found(*DENSE, 4, launch, 90.0, 100.0)
    assert choose(DENSE, 4, None, [(90.0, launch)]) == Found(*DENSE, 4, launch, 90.0, None)
    assert choose(DENSE, 4, 100.0, []) == Found(*DENSE, 4, None, 100.0, 100.0)
    assert choose(DENSE, 4, None, []) is None


def test_settings_that_do_not_fit_on_the_gpu_are_skipped_and_other_errors_are_not() -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def job() -> None:
            raise error

        return job

    launch = candidates(DENSE, "bf16")[0]
    timer = tuning.microseconds_on_cpu
    assert tuning.time_of(fail(OutOfResources(200_000, 101_376, "shared memory")), "dense", launch, timer) is None
    assert tuning.time_of(fail(RuntimeError("PassManager::run failed")), "dense", launch, timer) is None
    with pytest.raises(RuntimeError, match="illegal memory access"):
        tuning.time_of(fail(RuntimeError("an illegal memory access was encountered")), "dense", launch, timer)
    assert not tuned._forced


# Which settings a launch uses


def test_settings_of_the_user_come_first_then_the_package_then_the_default(environment: Environment) -> None:
    mine = entry(("conv4x4", 32, 32), 16)
    write_launch_file(LaunchFile(environment, tf32=[mine, entry(("conv4x4", 32, 32), 64, None)]))
    package = tuned.FLOAT32["conv4x4", 32, 32][128]
    assert mine.settings != package
    lookups = {runs: tuned.launch_settings("conv4x4", 32, 32, torch.float32, runs) for runs in (1, 8, 9, 25, 26, 64)}
    assert {runs for runs, launch in lookups.items() if launch == mine.settings} == {9, 25}
    assert all(launch == package for runs, launch in lookups.items() if runs not in (9, 25))
    assert tuned.launch_settings("conv2x2", 64, 64, torch.float32, 16) == tuned.DEFAULT["conv2x2"]
    assert tuned.launch_settings("conv4x4", 32, 32, torch.bfloat16, 16) == tuned.BFLOAT16["conv4x4", 32, 32][72]


def test_a_size_of_the_user_that_is_not_one_of_the_seven_is_used_near_it(environment: Environment) -> None:
    mine = entry(runs=10)
    write_launch_file(LaunchFile(environment, tf32=[mine]))
    used = [tuned.launch_settings(*DENSE, torch.float32, runs) == mine.settings for runs in (6, 7, 12, 13)]
    assert used == [False, True, True, False]


def test_settings_that_need_too_much_shared_memory_become_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that fits only with one stage and tiles of 32 is launched with these, then without a retry."""
    monkeypatch.setattr(tuned, "_too_large", set())
    tried = []

    @tuned.fit_shared_memory
    def launch(runs: int) -> dict[str, Any]:
        settings = tuned.launch_settings("dense", 8, 8, torch.float32, runs)
        tried.append(settings)
        if settings["ST"] > 1 or settings["BM"] > 32:
            raise OutOfResources(200_000, 101_376, "shared memory")
        return settings

    fitting = {**tuned.DEFAULT["dense"], "ST": 1, "BM": 32}
    assert launch(3) == fitting
    assert [(t["ST"], t["BM"]) for t in tried] == [(3, 64), (2, 64), (1, 64), (1, 32)]
    tried.clear()
    assert launch(5) == fitting
    assert len(tried) == 1


def test_a_kernel_that_fits_with_no_settings_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "_too_large", set())

    @tuned.fit_shared_memory
    def launch() -> None:
        tuned.launch_settings("dense", 8, 8, torch.float32, 1)
        raise OutOfResources(200_000, 101_376, "shared memory")

    with pytest.raises(OutOfResources):
        launch()


@pytest.mark.parametrize("name", list(tuned.DEFAULT))
def test_smaller_settings_end_and_keep_powers_of_two(name: str) -> None:
    settings = tuned.DEFAULT[name]
    for _ in range(30):
        settings = tuned.smaller_settings(settings)
        assert all(settings[tile] >= 16 and settings[tile].bit_count() == 1 for tile in tuned.TILES if tile in settings)
    assert tuned.smaller_settings(settings) == settings


def test_the_provenance_names_the_table(environment: Environment) -> None:
    assert launch_provenance() == {"gpu": environment.gpu, "launch_settings": "unbraid"}
    write_launch_file(LaunchFile(environment, tf32=[entry()]))
    first = launch_provenance()["launch_settings"]
    assert environment.file.name in first
    write_launch_file(LaunchFile(environment, tf32=[entry(index=1)]))
    assert launch_provenance()["launch_settings"] != first


# The file


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 256), st.integers(0, 7) | st.none()), max_size=6))
def test_a_file_is_read_as_it_was_written(found: list[tuple[Key, int, int | None]]) -> None:
    current = gpu_environment() if torch.cuda.is_available() else current_environment()
    assert current is not None
    unique = {(key, runs): entry(key, runs, index) for key, runs, index in found}
    content = LaunchFile(current, tf32=list(unique.values()))
    write_launch_file(content)
    assert read_launch_file(current) == content


def test_a_file_of_other_versions_is_ignored_with_a_message(environment: Environment) -> None:
    for changed in ({"torch": "1.0"}, {"triton": "1.0"}, {"kernels": "0"}):
        other = dataclasses.replace(environment, **changed)
        write_launch_file(LaunchFile(other, tf32=[entry()]))
        with pytest.warns(RuntimeWarning, match=r"are not used\. Run `unbraid tune` to search again"):
            assert read_launch_file(environment) is None
        assert other.file.name != environment.file.name
        assert delete_launch_files(environment) == [other.file]


def test_a_file_of_another_gpu_is_ignored_without_a_message(environment: Environment) -> None:
    for changed in ({"gpu": "NVIDIA GTX 5"}, {"capability": "8.6"}):
        write_launch_file(LaunchFile(dataclasses.replace(environment, **changed), tf32=[entry()]))
    assert read_launch_file(environment) is None
    assert delete_launch_files(environment) == []


def change(path: tuple[Any, ...], value: Any) -> Callable[[Any], None]:
    """A function that sets a field of the content."""

    def apply(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = value

    return apply


DAMAGE: dict[str, Callable[[Any], None]] = {
    "unknown key": change(("more",), 1),
    "unknown key of the environment": change(("environment", "more"), "x"),
    "unknown key of an entry": change(("tf32", 0, "more"), 1),
    "other format": change(("format",), 2),
    "other environment": change(("environment", "torch"), "1.0"),
    "missing field": lambda content: content["tf32"][0].pop("kernel"),
    "unknown kernel": change(("tf32", 0, "kernel"), "fft"),
    "unknown layer": change(("tf32", 0, "c"), 17),
    "no runs": change(("tf32", 0, "runs"), 0),
    "too many runs": change(("tf32", 0, "runs"), 257),
    "runs as text": change(("tf32", 0, "runs"), "16"),
    "time of zero": change(("tf32", 0, "microseconds"), 0),
    "time that is not a number": change(("tf32", 0, "package_microseconds"), float("nan")),
    "tile of an odd size": change(("tf32", 0, "settings", "BM"), 48),
    "tile that is too large": change(("tf32", 0, "settings", "BM"), 4096),
    "negative tile": change(("tf32", 0, "settings", "BM"), -16),
    "true in place of one": change(("tf32", 0, "settings", "ST"), True),
    "unknown setting": change(("tf32", 0, "settings", "maxnreg"), 1),
    "missing setting": lambda content: content["tf32"][0]["settings"].pop("BM"),
    "settings as a list": change(("tf32", 0, "settings"), [1]),
    "twice the same": lambda content: content["tf32"].append(content["tf32"][0]),
    "settings of another precision": lambda content: content.update(bf16=content["tf32"], tf32=[]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_an_error_that_names_the_file_and_the_remedy(damage: str, environment: Environment) -> None:
    write_launch_file(LaunchFile(environment, tf32=[entry()]))
    content = json.loads(environment.file.read_text())
    DAMAGE[damage](content)
    environment.file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"is damaged.*unbraid tune --reset") as raised:
        tuned.launch_settings(*DENSE, torch.float32, 16)
    assert str(environment.file) in str(raised.value)


@given(st.binary(max_size=40) | st.text(max_size=10).map(lambda text: json.dumps({text: text}).encode()))
def test_other_content_is_an_error_that_names_the_remedy(content: bytes) -> None:
    environment = current_environment()
    assert environment is not None
    environment.file.parent.mkdir(exist_ok=True)
    environment.file.write_bytes(content)
    with pytest.raises(UserError, match="unbraid tune --reset"):
        read_launch_file(environment)


# The command


@without_gpu
def test_the_command_searches_shows_and_resets(capsys: Capture, environment: Environment) -> None:
    assert main(["tune", "--show"]) == 0
    assert "Nothing is stored" in capsys.readouterr().out
    command = ["tune", "--only", "dense adam", "--runs", "1", "--precision", "tf32", "--minutes", "0", "--quiet"]
    assert main(command) == 0
    assert "1 are left. The same command continues the search." in capsys.readouterr().out
    write_launch_file(LaunchFile(environment, tf32=[entry()]))
    assert main(["tune", "--show", "--precision", "tf32"]) == 0
    shown = capsys.readouterr().out
    assert "16x256" in shown
    assert "BM=16 BN=32 BK=64 ST=1 num_warps=4" in shown
    environment.file.write_text("{")
    assert main(["tune", "--show"]) == 2
    assert "unbraid tune --reset" in capsys.readouterr().err
    assert main(["tune", "--reset"]) == 0
    assert str(environment.file) in capsys.readouterr().out
    assert not environment.file.exists()
    assert main(["tune", "--reset"]) == 0
    assert "Nothing is stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "0"], "must be a whole number from 1 to 256"),
        (["--runs", "257"], "must be a whole number from 1 to 256"),
        (["--only", "fft"], "invalid choice: 'fft'"),
        (["--precision", "fp32"], "invalid choice: 'fp32'"),
        (["--minutes", "-1"], "must be a finite number of at least 0"),
        (["--show", "--reset"], "not allowed with argument"),
    ],
)
def test_wrong_arguments_are_errors(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["tune", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_help_says_what_changes_and_where_it_is_kept(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    text = capsys.readouterr().out
    for words in ("UNBRAID_CACHE", "differs in its last bits", "[1 4 16 40 64 128 256]", "--minutes", "unbraid tune"):
        assert words in text


@without_gpu
@pytest.mark.parametrize("arguments", [[], ["--show"], ["--reset"]])
def test_without_a_gpu_the_command_says_so(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    command = [sys.executable, "-m", "unbraid", "tune", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "NVIDIA GPU of compute capability 8.0 or more" in ended.stderr
    assert "no GPU that PyTorch can use" in ended.stderr
    assert launch_file.launch_folder().exists() is False
