"""Freed memory stays in the process during training, and is returned at the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from unbraid.accel.allocator import keep_freed_memory

COUNT_PAGE_FAULTS = """
import resource
import torch
from unbraid.accel.allocator import freed_memory_kept

torch.set_num_threads(1)

def use_memory():
    blocks = [torch.ones(2**20) for _ in range(8)]  # 4 MiB each
    return sum(float(block[-1]) for block in blocks)

def count_page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        use_memory()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_pages():
    return int(open("/proc/self/statm").read().split()[1])

with freed_memory_kept(torch.device("cpu")):
    count_page_faults()  # the first rounds allocate
    print(count_page_faults(), resident_pages())
print(resident_pages())
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_memory_is_kept_between_steps_and_returned_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT_PAGE_FAULTS], capture_output=True, text=True, check=True)
    faults, inside, after = map(int, done.stdout.split())
    pages = 8 * 2**22 // 4096
    assert faults < pages / 4  # without the context, each of the 4 rounds has one page fault per page
    assert inside - after > pages / 2
