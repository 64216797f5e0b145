"""A trained run in memory: its spec and its network, which encodes and decodes."""

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
from unbraid.methods.method import Method
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.folder import Log, RunFolder, find_runs
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

CHUNK = 512  # examples per forward pass


@dataclass
class Run:
    """A trained model.

    Attributes:
        spec: The settings of the run.
        net: The network, in evaluation mode.
        log: One dictionary per logged step, with `step` and the value of each training term.
        path: The folder of the run, or None if it was trained without a folder.
        divergence: The `step` at which the run diverged and the training `term` that was not finite, or None if the run
            did not diverge.
    """

    spec: RunSpec
    net: VAENet
    log: Log = field(default_factory=list, repr=False)
    path: Path | None = None
    divergence: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        """The id of the spec: 12 hexadecimal digits."""
        return self.spec.id

    @property
    def device(self) -> torch.device:
        """The device on which the network is stored."""
        return next(self.net.parameters()).device

    @property
    def label(self) -> str:
        """A short name for tables: the method with its hyperparameters, and the seed."""
        if self.spec.steps == 0:
            return f"untrained seed={self.spec.seed}"
        values = self.spec.to_dict()["method"]
        name = values.pop("name")
        settings = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()]
        return " ".join([name, *settings, f"seed={self.spec.seed}"])

    @torch.no_grad()
    def posterior(self, x: Any) -> Gaussian:
        """Compute the posteriors q(z|x) of examples.

        Args:
            x: Examples, (n, ...), as an array or a tensor. Images of type uint8 are scaled to [0, 1]. Other types are
                not scaled.

        Returns:
            A Gaussian with `mean` and `logvar`, (n, d).
        """
        examples = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x, device=self.device)
        scaled = examples.float() / 255 if examples.dtype == torch.uint8 else examples.float()
        parts = [self.net.encode(part) for part in scaled.split(CHUNK)]
        return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))

    @torch.no_grad()
    def encode(self, x: Any, kind: str | None = None) -> Tensor:
        """Compute the codes of examples.

        Args:
            x: Examples, (n, ...), as in `posterior`.
            kind: One of the method's `code_kinds`. The default is the first of them, which is the posterior mean for
                most methods.

        Returns:
            The codes, (n, d).
        """
        return self.codes(self.posterior(x), kind)

    @torch.no_grad()
    def codes(self, q: Gaussian, kind: str | None = None) -> Tensor:
        """Compute the codes of examples from their posteriors.

        Args:
            q: The posteriors of n examples, as returned by `posterior`.
            kind: The kind of codes, as in `encode`.

        Returns:
            The codes, (n, d).
        """
        return posterior_codes(self.spec.method, self.net, q, kind)

    @torch.no_grad()
    def decode(self, z: Any) -> Tensor:
        """Decode codes.

        Args:
            z: Codes, (n, d).

        Returns:
            The means of p(x|z), (n, ...).
        """
        codes = torch.as_tensor(z, dtype=torch.float32, device=self.device)
        return torch.cat([self.net.decode(part) for part in codes.split(CHUNK)])


def posterior_codes(method: Method, net: VAENet, q: Gaussian, kind: str | None = None) -> Tensor:
    """Return the codes of examples with posteriors q. By default they are codes of the method's first kind.

    The noise of sampled codes always has seed 0 and step 0, so the same posteriors always give the same codes.
    """
    zero = torch.zeros((), dtype=torch.int64, device=q.mean.device)
    return method.code(net, q, kind or method.code_kinds[0], Noise.from_seed(zero, zero))


def load_weights(net: VAENet, weights: dict[str, Tensor], where: object) -> VAENet:
    """Load weights into a network and put it into evaluation mode.

    Raise a UserError if the weights do not fit. The error message names `where` as the origin of the weights.
    """
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"The weights in {where} do not fit the network of their spec: {reason} Train the run again."
        ) from error
    return net.eval().requires_grad_(False)


def open_run(
    folder: RunFolder, data: FactorData, net: str | PairBuilder | Pair | None = None, device: str = "cpu"
) -> Run:
    """Load a trained run from its folder. Raise a UserError if its training is not finished."""
    if folder.status in ("new", "partial"):
        raise UserError(f"The training of {folder.path} is not finished. Run the same command again to resume it.")
    builder = resolve_net(net if net is not None else folder.spec.net)[1]
    built = load_weights(build_net(folder.spec, data.shape, builder), folder.weights(), folder.path)
    return Run(folder.spec, built.to(device), folder.read_log(), folder.path, folder.divergence())


def load_runs(
    folder: str | Path,
    data: FactorData | None = None,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
) -> list[Run]:
    """Load all trained runs in a folder.

    Runs whose training is not finished are left out. Diverged runs are included. Their `divergence` is not None.

    Args:
        folder: A folder of runs, or the folder of one run.
        data: The dataset of all runs. It is needed only if the dataset cannot be loaded by the name in the spec.
        net: The network of all runs. It is needed only if the network cannot be built from the name in the spec.
        device: The device on which to load the networks, such as "cpu" or "cuda".

    Returns:
        The runs, sorted by their specs.

    Raises:
        UserError: If the folder contains no runs, or if the files of a run are damaged.
    """
    from unbraid.data import load

    folders = find_runs(Path(folder))
    if not folders:
        raise UserError(f"No runs in {folder}. Train some with: unbraid train beta_vae --out {folder}")
    loaded: dict[str, FactorData] = {}
    runs = []
    for run in folders:
        if run.status in ("done", "diverged"):
            if data is None and run.spec.data not in loaded:
                loaded[run.spec.data] = load(run.spec.data)
            runs.append(open_run(run, loaded[run.spec.data] if data is None else data, net, device))
    return runs


def load_run(
    folder: str | Path,
    data: FactorData | None = None,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
) -> Run:
    """Load one trained run.

    Args:
        folder: The folder of the run, or a folder that contains only this run.
        data: The dataset of the run. It is needed only if the dataset cannot be loaded by the name in the spec.
        net: The network of the run. It is needed only if the network cannot be built from the name in the spec.
        device: The device on which to load the network, such as "cpu" or "cuda".

    Returns:
        The run.

    Raises:
        UserError: If the folder contains no run or several runs, or if the training of the run is not finished.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as out:
    ...     (run,) = ub.train(ub.methods.VAE(), data="toy", steps=5, out=out, quiet=True)
    ...     ub.load_run(run.path).id == ub.load_run(out).id == run.id
    True
    """
    from unbraid.data import load

    folders = find_runs(Path(folder))
    if len(folders) != 1:
        count = f"{len(folders)} runs" if folders else "no run"
        raise UserError(
            f"{folder} must contain exactly one run. Got {count} instead. Pass the folder of one run, or use load_runs."
        )
    (run,) = folders
    return open_run(run, load(run.spec.data) if data is None else data, net, device)
