"""A description of the commit and the machine, which every benchmark writes beside its results."""

from __future__ import annotations

from typing import Any

import torch

from unbraid.runtime import provenance


def describe() -> dict[str, Any]:
    """Return the commit, the machine with its devices, and the versions of libraries."""
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    machine = {**provenance.machine_info(), "devices": devices, "versions": provenance.library_versions()}
    return {"commit": provenance.git_commit(), "machine": machine}
