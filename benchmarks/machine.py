"""What every benchmark writes beside its figures."""

from __future__ import annotations

from typing import Any

import torch

from unbraid.runtime import provenance


def describe() -> dict[str, Any]:
    """The commit, the machine with its devices, and the versions that made the figures."""
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    machine = {**provenance.machine_info(), "devices": devices, "versions": provenance.library_versions()}
    return {"commit": provenance.git_commit(), "machine": machine}
