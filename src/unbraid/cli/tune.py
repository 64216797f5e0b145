"""Search for the launch settings of the kernels that are fastest on the GPU of this machine.

The settings that come with unbraid were found on an NVIDIA H200. On another GPU, a search can make training faster. It
takes minutes. What was found is kept in the cache folder (UNBRAID_CACHE) after each layer, and the same command
continues a search that was interrupted. Runs that are trained afterwards use the settings that were found. The settings
belong to one GPU model and to the versions of PyTorch, Triton and the kernels. After an update, search again.

Other settings add numbers in another order. A run that is trained after the search therefore differs in its last bits
from the same run trained before the search, and the difference grows during training. Search before you start a study,
not in the middle of it. The file `run.json` of a run names the settings with which it was started.

Examples:
  unbraid tune                                # all kernels, in bf16
  unbraid tune --runs 1 16 --minutes 5        # for stacks of about 1 and 16 runs, for at most five minutes
  unbraid tune --only "dense" "dense adam"    # two kernels
  unbraid tune --show                         # print what was found
  unbraid tune --reset                        # delete what was found, and use the settings of unbraid again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbraid.accel.launch_candidates import KERNELS, KEYS, MAX_RUNS, RUNS
from unbraid.cli.parser import Parser, add_quiet, parse_and_run
from unbraid.cli.values import finite_number, whole_number
from unbraid.runtime.tables import table

if TYPE_CHECKING:
    from unbraid.accel.launch_file import Found


def main(parser: Parser, arguments: Sequence[str]) -> int:
    add = parser.add_argument
    runs = f"numbers of runs in a stack [{' '.join(map(str, RUNS))}]"
    add("--runs", nargs="+", type=whole_number(1, MAX_RUNS), default=list(RUNS), metavar="RUNS", help=runs)
    kernels = f"kernels to tune, of: {', '.join(KERNELS)} [all]"
    add("--only", nargs="+", choices=KERNELS, default=list(KERNELS), metavar="KERNEL", help=kernels)
    minutes = "end after the first layer that exceeds this number of minutes [no limit]"
    add("--minutes", type=finite_number(low=0), metavar="LIMIT", help=minutes)
    precision = "precision of the products: bf16, or tf32 if you train with --precision tf32 [bf16]"
    add("--precision", choices=("bf16", "tf32"), default="bf16", help=precision)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--show", action="store_true", help="print what was found on this GPU, and search nothing")
    action.add_argument("--reset", action="store_true", help="delete what was found on this GPU, and search nothing")
    add_quiet(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Search, show or delete launch settings."""
    if options.reset:
        reset()
    elif options.show:
        show(options.precision)
    else:
        search(options)


def search(options: Any) -> None:
    """Search for the settings that are not stored yet, and print what was found."""
    from unbraid.accel.tuning import Search, gpu_environment, tune, work
    from unbraid.runtime.progress import progress

    environment = gpu_environment()
    keys = [key for key in KEYS if key[0] in options.only]
    wanted = Search(keys, sorted(set(options.runs)), options.precision, options.minutes)
    with progress("tuning", work(wanted), options.quiet) as report:
        found, left = tune(wanted, report)
    print_found(found)
    faster = sum(entry.settings is not None for entry in found)
    print(
        f"Searched {len(found)} layers and numbers of runs on {environment.gpu}. Faster settings for {faster} of them."
    )
    print(f"The results are in {environment.file}")
    if left:
        print(f"{left} are left. The same command continues the search.")


def show(precision: str) -> None:
    """Print what is stored for this GPU."""
    from unbraid.accel.launch_file import read_launch_file
    from unbraid.accel.tuning import gpu_environment

    environment = gpu_environment()
    stored = read_launch_file(environment)
    if stored is None:
        print(f"Nothing is stored for {environment.gpu}. The settings of unbraid are used. To search: unbraid tune")
        return
    print_found(stored.bf16 if precision == "bf16" else stored.tf32)
    print(f"{environment.gpu}, {precision}: {environment.file}")


def reset() -> None:
    """Delete all files of this GPU."""
    from unbraid.accel.launch_file import delete_launch_files
    from unbraid.accel.tuning import gpu_environment

    environment = gpu_environment()
    deleted = delete_launch_files(environment)
    for file in deleted:
        print(f"Deleted {file}")
    if not deleted:
        print(f"Nothing is stored for {environment.gpu}.")


def print_found(found: list[Found]) -> None:
    """Print a table of results, with the time of a call before and after the search."""
    if found:
        rows = [
            (
                entry.kernel,
                f"{entry.c}x{entry.m}",
                entry.runs,
                "does not run" if entry.package_microseconds is None else f"{entry.package_microseconds:.1f}",
                f"{entry.microseconds:.1f}",
                "as in unbraid" if entry.settings is None else setting_text(entry.settings),
            )
            for entry in found
        ]
        print(table(["kernel", "channels", "runs", "us, unbraid", "us, found", "settings"], rows))


def setting_text(settings: dict[str, int | bool]) -> str:
    """Return settings as one line.

    >>> setting_text({"BM": 64, "num_warps": 4})
    'BM=64 num_warps=4'
    """
    return " ".join(f"{name}={value}" for name, value in settings.items())
