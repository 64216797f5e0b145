"""The search for launch settings on the GPU of this machine, which `unbraid tune` performs.

For each layer, all candidates are compiled in parallel processes and then timed for several numbers of runs. The
fastest candidates are timed a second time, together with the settings of the package, which are the tables in
`unbraid.accel.kernels.tuned`. A candidate replaces the settings of the package only if it is clearly faster. What was
found is stored after each layer and number of runs, so a search can be interrupted and continued.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context

import torch

from unbraid.accel.capture import supports_kernels
from unbraid.accel.launch_candidates import KEYS, RUNS, Key, Launch, TunedPrecision, candidates
from unbraid.accel.launch_file import (
    Environment,
    Found,
    LaunchFile,
    current_environment,
    is_interpreted,
    launch_folder,
    read_launch_file,
    write_launch_file,
)  # fmt: skip
from unbraid.accel.precision import matmul_precision
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import try_lock
from unbraid.runtime.progress import ProgressCallback, ignore_progress

CALLS, REPLAYS, IGNORED = 8, 7, 2  # calls in a CUDA graph, replays of the graph, and first replays that are not counted
FINALISTS = 3  # number of candidates that are timed a second time
MARGIN = 0.03  # minimum gain over the settings of the package, as a fraction of their time
MAX_PROCESSES = 15
PROCESS_BYTES = 2**30  # GPU memory that each compiling process may need
DTYPES: dict[TunedPrecision, torch.dtype] = {"bf16": torch.bfloat16, "tf32": torch.float32}
Timer = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class Search:
    """What to search for, and for how long.

    Attributes:
        keys: The layers.
        runs: The numbers of runs.
        precision: The precision, "bf16" or "tf32".
        minutes: The time limit, or None. The search ends after the first layer that exceeds it.
        batch: The number of examples per run.
        started: The time at which the search began, in seconds of `time.monotonic`.
    """

    keys: Sequence[Key] = KEYS
    runs: Sequence[int] = RUNS
    precision: TunedPrecision = "bf16"
    minutes: float | None = None
    batch: int = 64
    started: float = field(default_factory=time.monotonic)

    def missing(self, stored: LaunchFile) -> dict[Key, list[int]]:
        """Return the numbers of runs that have not been searched yet, for each layer."""
        done = {(entry.key, entry.runs) for entry in stored.found(self.precision)}
        left = {key: [runs for runs in self.runs if (key, runs) not in done] for key in self.keys}
        return {key: runs for key, runs in left.items() if runs}

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit is exceeded."""
        return self.minutes is not None and time.monotonic() - self.started > 60 * self.minutes


def tuning_device() -> torch.device:
    """Return the device whose settings are searched: the current GPU, or the CPU if Triton interprets kernels.

    Raises:
        UserError: If there is no GPU on which the kernels run.
    """
    if is_interpreted():
        return torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        if supports_kernels(device):
            return device
        found = f"{torch.cuda.get_device_name(device)}, or Triton is not installed"
    else:
        found = "no GPU that PyTorch can use"
    raise UserError(
        "Launch settings are searched on an NVIDIA GPU of compute capability 8.0 or more, with Triton. Got "
        f"{found}. Run the command on the machine whose GPU you train on. On a CPU there is nothing to tune."
    )


def gpu_environment() -> Environment:
    """Return the environment of the GPU whose settings are searched, or raise a UserError if there is none."""
    device = tuning_device()
    environment = current_environment(device.index)
    if environment is None:
        raise UserError("Launch settings need Triton, which is not installed. Install it with: pip install triton.")
    return environment


def tune(search: Search, report: ProgressCallback = ignore_progress) -> tuple[list[Found], int]:
    """Search for the fastest settings of all layers and numbers of runs without a stored result, and store them.

    Args:
        search: What to search for.
        report: Function that is called with the number of candidates that have been timed (see `work`).

    Returns:
        What was found, and how many combinations of a layer and a number of runs still have no result. The reasons are
        the time limit, or settings or runs that do not fit on the GPU.

    Raises:
        UserError: If there is no GPU on which the kernels run.
    """
    environment = gpu_environment()
    precision = matmul_precision(search.precision)
    with only_search(environment), precision, compiler(tuning_device()) as compile_all:
        stored = read_launch_file(environment) or LaunchFile(environment)
        missing, new, done = search.missing(stored), list[Found](), 0
        for key, sizes in missing.items():
            if search.out_of_time:
                break
            compile_all(key, search)
            for runs in sizes:
                found = best_settings(key, runs, search)
                done += len(candidates(key, search.precision))
                report(done, f"{key[0]} {key[1]}x{key[2]}, {runs} run{'s' * (runs > 1)}")
                if found is not None:
                    new.append(found)
                    stored.found(search.precision).append(found)
                    write_launch_file(stored)
    return new, sum(map(len, search.missing(stored).values()))


@contextmanager
def only_search(environment: Environment) -> Iterator[None]:
    """Raise a UserError if another process searches on this GPU. Two searches would disturb each other's times."""
    make_folder(launch_folder())
    with try_lock(launch_folder() / f"{environment.file_start}lock") as acquired:
        if not acquired:
            raise UserError("Another process searches launch settings on this GPU. Wait until it ends.")
        yield


def work(search: Search) -> int:
    """Return how many candidates have to be timed, summed over all layers and numbers of runs."""
    environment = gpu_environment()
    stored = read_launch_file(environment) or LaunchFile(environment)
    missing = search.missing(stored)
    return sum(len(candidates(key, search.precision)) * len(sizes) for key, sizes in missing.items())


def best_settings(key: Key, runs: int, search: Search) -> Found | None:
    """Return the fastest settings of a layer for a number of runs.

    Return None if no settings run on this GPU, or if the runs do not fit into the memory of the GPU.
    """
    from unbraid.accel.kernels.tuned import package_settings
    from unbraid.accel.tuning_jobs import Workload

    dtype, device = DTYPES[search.precision], tuning_device()
    timer = microseconds_on_gpu if device.type == "cuda" else microseconds_on_cpu
    try:
        job = Workload(runs, dtype, device, search.batch).job(key)
    except torch.cuda.OutOfMemoryError:
        return None
    package = package_settings(*key, dtype, runs)
    times = [(time_of(job, key[0], launch, timer), launch) for launch in candidates(key, search.precision)]
    finalists = sorted((pair for pair in times if pair[0] is not None), key=lambda pair: pair[0] or 0.0)[:FINALISTS]
    again = [(time_of(job, key[0], launch, timer), launch) for _, launch in finalists]
    now = time_of(job, key[0], package, timer)
    return choose(key, runs, now, [(t, launch) for t, launch in again if t is not None])


def choose(key: Key, runs: int, package: float | None, timed: list[tuple[float, Launch]]) -> Found | None:
    """Return the fastest of the timed settings if they are faster than those of the package by the margin.

    Otherwise return the settings of the package. Return None if the GPU can run neither.

    Args:
        key: The layer.
        runs: The number of runs.
        package: The time of the settings of the package, or None if the GPU cannot run them.
        timed: The times and settings of candidates.
    """
    best, settings = min(timed, key=lambda pair: pair[0], default=(None, None))
    if package is not None and (best is None or best > (1 - MARGIN) * package):
        return Found(*key, runs, None, package, package)
    return None if best is None else Found(*key, runs, settings, best, package)


def time_of(job: Callable[[], object], name: str, launch: Launch, timer: Timer) -> float | None:
    """Return the time of a call with given settings in microseconds, or None if they do not run on this GPU."""
    from unbraid.accel.kernels.tuned import forced_settings

    try:
        with forced_settings(name, launch):
            return timer(job)
    except Exception as error:
        if not is_launch_failure(error):
            raise
        return None


def is_launch_failure(error: Exception) -> bool:
    """Return whether an error says that settings cannot be compiled or need more resources than the GPU has."""
    from triton.errors import TritonError

    lowering_failed = isinstance(error, RuntimeError) and "PassManager" in str(error)
    return lowering_failed or isinstance(error, TritonError | torch.cuda.OutOfMemoryError)


def microseconds_on_gpu(job: Callable[[], object]) -> float:
    """Return the time of a call in microseconds: the median over replays of a CUDA graph that has several calls."""
    job()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            job()
    times: list[float] = []
    for _ in range(REPLAYS):
        first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        second.record()
        second.synchronize()
        times.append(first.elapsed_time(second) * 1e3 / CALLS)
    return statistics.median(times[IGNORED:])


def microseconds_on_cpu(job: Callable[[], object]) -> float:
    """Return the time of a call in the interpreter of Triton, in microseconds."""
    started = time.perf_counter()
    job()
    return (time.perf_counter() - started) * 1e6


CompileAll = Callable[[Key, Search], None]


@contextmanager
def compiler(device: torch.device) -> Iterator[CompileAll]:
    """Yield a function that compiles all candidates of a layer into the cache of Triton, in several processes."""
    if device.type != "cuda":
        yield lambda key, search: None
        return
    free = torch.cuda.mem_get_info(device)[0]
    processes = max(1, min(os.cpu_count() or 1, MAX_PROCESSES, int(free / 2 / PROCESS_BYTES)))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def compile_all(key: Key, search: Search) -> None:
            launches = candidates(key, search.precision)
            parts = [launches[i::processes] for i in range(processes)]
            one_layer = dataclasses.replace(search, keys=(key,))
            list(pool.map(compile_part, [one_layer] * processes, parts))

        yield compile_all


def compile_part(search: Search, launches: list[Launch]) -> None:
    """Launch the kernel of one layer, for a single run, once with each of the settings. This compiles the kernel."""
    from unbraid.accel.tuning_jobs import Workload

    (key,) = search.keys
    job = Workload(1, DTYPES[search.precision], tuning_device(), search.batch).job(key)
    with matmul_precision(search.precision):
        for launch in launches:
            time_of(job, key[0], launch, launch_once)


def launch_once(job: Callable[[], object]) -> float:
    """Launch a kernel, which compiles it, without timing it."""
    job()
    return 0.0
