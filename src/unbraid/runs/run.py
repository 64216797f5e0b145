"""A trained run in memory: a spec and a network that encodes and decodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.runs.network import build_net
from unbraid.nets.registry import name_net
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec
from unbraid.runs.folder import Log, RunDir, find_runs

CHUNK = 512  # examples through a network at once


@dataclass
class Run:
    """What training gives back: `encode`, `decode` and the log; `path` is its folder, if it has one."""

    spec: RunSpec
    net: VAENet
    log: Log = field(default_factory=list, repr=False)
    path: Path | None = None
    divergence: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.net.parameters()).device

    @property
    def label(self) -> str:
        """A short name for tables: the method with its hyperparameters, and the seed."""
        values = self.spec.to_dict()["method"]
        name = values.pop("name")
        if self.spec.steps == 0:
            return f"untrained seed={self.spec.seed}"
        settings = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()]
        return " ".join([name, *settings, f"seed={self.spec.seed}"])

    @torch.no_grad()
    def posterior(self, x: Any) -> Gaussian:
        """q(z|x) of examples: uint8 images are scaled to [0, 1], anything else is taken as it is."""
        examples = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x, device=self.device)
        scaled = examples.float() / 255 if examples.dtype == torch.uint8 else examples.float()
        parts = [self.net.encode(part) for part in scaled.split(CHUNK)]
        return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))

    @torch.no_grad()
    def encode(self, x: Any, kind: str | None = None) -> Tensor:
        """The codes of examples, (n, d): posterior means, or whatever the method's metrics take by default.

        `kind` is another of the method's `code_kinds`.
        """
        method = self.spec.method
        zero = torch.tensor(0, device=self.device)
        return method.code(self.net, self.posterior(x), kind or method.code_kinds[0], Noise.of(zero, zero))

    @torch.no_grad()
    def decode(self, z: Any) -> Tensor:
        """Examples from codes (n, d): means of p(x|z)."""
        codes = torch.as_tensor(z, dtype=torch.float32, device=self.device)
        return torch.cat([self.net.decode(part) for part in codes.split(CHUNK)])


def default_code(run: Run, q: Gaussian) -> Tensor:
    """What metrics see of a run by default."""
    method, zero = run.spec.method, torch.tensor(0, device=q.mean.device)
    with torch.no_grad():
        return method.code(run.net, q, method.code_kinds[0], Noise.of(zero, zero))


def load_weights(net: VAENet, weights: dict[str, Tensor], where: object) -> VAENet:
    """The network with the given weights, in evaluation mode; weights of another shape are refused."""
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"The weights in {where} do not fit the network of their spec: {reason} Train the run anew."
        ) from error
    return net.eval().requires_grad_(False)


def open_run(folder: RunDir, data: FactorData, net: str | PairBuilder | Pair | None = None, device: str = "cpu") -> Run:
    """A run from its folder, if it has been trained."""
    if folder.status in ("new", "partial"):
        raise UserError(f"{folder.path} is not trained to the end. Give the same train command again to go on with it.")
    builder = name_net(net if net is not None else folder.spec.net)[1]
    built = load_weights(build_net(folder.spec, data.shape, builder), folder.weights(), folder.path)
    return Run(folder.spec, built.to(device), folder.read_log(), folder.path, folder.divergence())


def load_runs(
    folder: str | Path,
    data: FactorData | None = None,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
) -> list[Run]:
    """All trained runs in a folder; `data` and `net` are needed only where the spec's names are not enough."""
    from unbraid.data import load

    found = find_runs(Path(folder))
    if not found:
        raise UserError(f"No runs in {folder}. Train some with: unbraid train beta_vae --out {folder}")
    loaded: dict[str, FactorData] = {}
    runs = []
    for run in found:
        if run.status in ("done", "diverged"):
            if data is None and run.spec.data not in loaded:
                loaded[run.spec.data] = load(run.spec.data)
            runs.append(open_run(run, loaded[run.spec.data] if data is None else data, net, device))
    return runs
