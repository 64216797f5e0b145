"""A trained run in memory: its spec and its network, which encodes and decodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike, load_data
from unbraid.data.own.examples import network_input
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Method
from unbraid.nets.checking import mark_as_trained
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.adopted_model import read_network
from unbraid.runs.adopted_spec import AdoptedSpec
from unbraid.runs.folder import Log, RunFolder, find_runs
from unbraid.runs.network import build_net, describe_misfit, remove_networks
from unbraid.runs.only import Only, choose
from unbraid.runs.own_code import check_consent, offer_files, warn_about_changed_sources
from unbraid.runs.pretrained_files import write_pretrained
from unbraid.runs.prior import prior_latents
from unbraid.runs.run_data import files_digest, folder_data, warn_about_changed_files
from unbraid.runs.run_list import RunList, last_values, run_state
from unbraid.runs.search import Folders, as_folders, search_runs
from unbraid.runs.spec import RunSpec, import_method
from unbraid.runs.stored_network import StoredNetwork
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.tables import html_table

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
        data: The data of the run, if the user has passed them or if they cannot be loaded by the name in the spec.
            Otherwise None.
    """

    spec: RunSpec
    net: VAENet = field(repr=False)
    log: Log = field(default_factory=list, repr=False)
    path: Path | None = None
    divergence: dict[str, Any] | None = None
    data: FactorData | None = field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The id of the spec: 12 hexadecimal digits."""
        return self.spec.id

    @property
    def device(self) -> torch.device:
        """The device on which the network is stored."""
        tensors = itertools.chain(self.net.parameters(), self.net.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def label(self) -> str:
        """A short name for tables: the method with its hyperparameters, and the seed."""
        if self.spec.steps == 0:
            return f"untrained seed={self.spec.seed}"
        values = self.spec.to_dict()["method"]
        name = values.pop("name")
        settings = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()]
        seed = [] if self.spec.seed is None else [f"seed={self.spec.seed}"]
        return " ".join([name, *settings, *seed])

    def _repr_html_(self) -> str:
        settings = [[name, value] for name, value in self.spec.flat().items()]
        facts: list[list[Any]] = [
            ["state", run_state(self)],
            ["last logged values", last_values(self)],
            ["folder", self.path or "none"],
        ]
        return html_table(["run", self.id], [*settings, *facts])

    @torch.no_grad()
    def posterior(self, x: Any) -> Gaussian:
        """Compute the posteriors q(z|x) of examples.

        Args:
            x: Examples as an array, a tensor or nested lists. Images have the size of the training examples and the
                shape (n, c, h, w), (n, h, w, c), or (n, h, w) if they are grey. Pixels are floats in [0, 1] or
                integers from 0 to 255, which are divided by 255. If all pixels are the integers 0 or 1, they stand for
                black and white. Vectors are floats of shape (n, d).

        Returns:
            A Gaussian with `mean` and `logvar`, (n, d).

        Raises:
            UserError: If the examples have the wrong shape, type or range.
        """
        examples = network_input(x, self.net.shape).to(self.device)
        parts = [self.net.encode(part) for part in examples.split(CHUNK)]
        return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))

    @torch.no_grad()
    def encode(self, x: Any, kind: str | None = None) -> Tensor:
        """Compute the codes of examples.

        Args:
            x: Examples, as in `posterior`.
            kind: One of the method's `code_kinds`. The default is the first of them, which is the posterior mean for
                most methods.

        Returns:
            The codes, (n, d).

        Raises:
            UserError: If the examples have the wrong shape, type or range.
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

        Raises:
            UserError: If the codes have the wrong shape.
        """
        codes = torch.as_tensor(z, dtype=torch.float32, device=self.device)
        message = f"Codes must have the shape (n, {self.spec.latents}). Got {tuple(codes.shape)} instead."
        if codes.ndim != 2:
            raise UserError(message)
        try:
            return torch.cat([self.net.decode(part) for part in codes.split(CHUNK)])
        except RuntimeError as error:
            if codes.shape[1] == self.spec.latents:
                raise
            raise UserError(message) from error

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """Decode samples from the prior of the latents.

        The prior is a standard normal, unless the method overrides `Method.prior_sample`, for example with the uniform
        distribution on a curved latent space.

        Args:
            n: The number of samples.
            seed: The random seed. The same seed gives the same samples.

        Returns:
            The means of p(x|z) for n samples z of the prior, (n, ...).

        Raises:
            UserError: If the method has no prior, a prior that depends on labels, or no decoder, or if `n` is below 1.

        >>> import unbraid as ub
        >>> (run,) = ub.train("vae", data="sprites", steps=5, quiet=True)
        >>> run.sample(3).shape
        torch.Size([3, 1, 32, 32])
        """
        return self.decode(prior_latents(self, n, seed))

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save the run in the layout of the Hugging Face Hub, with a model card. `unbraid.from_pretrained` loads it.

        The folder is also an ordinary folder of a run, which commands such as `unbraid traverse` take.

        Args:
            folder: The folder to write. It must be empty or not exist.

        Returns:
            The folder.

        Raises:
            UserError: If the folder is not empty or cannot be written.
        """
        return write_pretrained(self, Path(folder))


class StoredRun(Run):
    """A trained run in a folder. The network is read from the folder when it is first used (see `StoredNetwork`)."""

    def __init__(
        self, folder: RunFolder, spec: RunSpec, read: Callable[[], VAENet], device: torch.device | str = "cpu"
    ) -> None:
        self.spec, self.path = spec, folder.path
        folder.check_weights()
        self.log, self.divergence = folder.read_log(), folder.divergence()
        self._device = torch.device(device)
        self._network = StoredNetwork(lambda: read().to(device))

    @classmethod
    def trained(
        cls,
        folder: RunFolder,
        spec: RunSpec,
        shape: tuple[int, ...],
        builder: PairBuilder,
        device: torch.device | str = "cpu",
    ) -> StoredRun:
        """Return a run that unbraid trained. Its network is built, and its weights are read from the folder."""

        def read() -> VAENet:
            net = remove_networks(build_net(spec, shape, builder), spec, folder.check_weights().left_out, folder.path)
            return load_weights(net, folder.weights(), folder.path)

        return cls(folder, spec, read, device)

    @property
    def net(self) -> VAENet:  # type: ignore[override]
        """The network, in evaluation mode."""
        return self._network.get()

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self._device


def posterior_codes(method: Method, net: VAENet, q: Gaussian, kind: str | None = None) -> Tensor:
    """Return the codes of examples with posteriors q. By default, `kind` is the first of the method's `code_kinds`.

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
        raise UserError(
            f"The weights in {where} do not fit the network of their spec. {describe_misfit(net, weights)} Pass data "
            "whose examples have the same shape as in training, or train the run again."
        ) from error
    mark_as_trained(net)
    return net.eval()


def open_run(
    folder: RunFolder,
    data: FactorData,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
    trust: bool = False,
    methods: Iterable[type[Method]] = (),
) -> Run:
    """Load a trained run from its folder.

    Raise a UserError if the training is not finished, or if the run needs the user's own code and `trust` is False.
    """
    if folder.status in ("new", "partial"):
        raise UserError(f"The training of {folder.path} is not finished. Run the same command again to resume it.")
    return open_trained_run(folder, data.shape, net, device, trust, methods)


def open_trained_run(
    folder: RunFolder,
    shape: tuple[int, ...],
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
    trust: bool = False,
    methods: Iterable[type[Method]] = (),
) -> Run:
    """Load a run whose training is finished. `shape` is the shape of one example.

    Raise a UserError if the run needs the user's own code and `trust` is False.
    """
    check_consent([folder], net is not None, trust, methods)
    offer_files(folder)
    if isinstance(folder.spec, AdoptedSpec):
        return StoredRun(folder, folder.spec, lambda: read_network(folder, trust), device)
    spec = import_method(folder.spec, methods)
    builder = resolve_net(spec.net if net is None else net)[1]
    warn_about_changed_sources(folder, spec, builder)
    return StoredRun.trained(folder, spec, shape, builder, device)


@explain_unknown_arguments()
def load_runs(
    folder: Folders,
    data: DataLike | None = None,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
    *,
    trust: bool = False,
    methods: Iterable[type[Method]] = (),
    only: Only = None,
) -> list[Run]:
    """Load all trained runs in one or several folders, and in the folders below them.

    A run that was copied to several places is loaded once. Runs whose training is not finished are left out. Diverged
    runs are included, and their `divergence` is not None. The network of a run is read when it is first used, and the
    networks of many runs are not kept in memory together. Only the header of the file of weights is checked when a run
    is loaded. If the rest of the file is damaged, or the weights do not fit the network, an error is raised when the
    network is first used.

    Args:
        folder: A folder of runs, the folder of one run, a folder that contains folders of runs, or a list of these.
        data: The dataset of all runs, in one of the forms that `train` accepts. It is needed only if the runs were
            trained on data in memory that were not saved (see `save_data` of `train`).
        net: The network of all runs. It is needed only if the network cannot be built from the name in the spec.
        device: The device on which to load the networks, such as "cpu" or "cuda".
        trust: Whether to run code that the run folder refers to: a method or a network that is not part of unbraid, and
            that was not used in this process before. Its module is imported and runs with your permissions, so pass
            True only if you trust both the folder and the module.
        methods: Classes of your own methods. A run whose spec has the name of one of them uses this class, and nothing
            is imported for it. A class with the same name in another module is used too. You can therefore pass a class
            that was defined in a script or a notebook when the run was trained.
        only: Which runs to load, by their settings: a mapping such as ``{"method": "beta_vae", "beta": [4, 8]}``, or a
            text such as "method=beta_vae,beta=4,8". By default all runs.

    Returns:
        The runs, sorted by their specs. Notebooks show the list as a table.

    Raises:
        UserError: If a folder contains no runs, if no run is chosen, if the files of a run are damaged (for weights,
            see above), or if `trust` is needed.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as out:
    ...     for beta in (1.0, 8.0):
    ...         _ = ub.train(ub.methods.BetaVAE(beta=beta), data="toy", steps=5, out=f"{out}/{beta:g}", quiet=True)
    ...     len(ub.load_runs(out)), len(ub.load_runs([f"{out}/1", f"{out}/8"])), len(ub.load_runs(out, only="beta=8"))
    (2, 2, 1)
    """
    folders = search_runs(folder, only)
    finished = [run for run in folders if run.status in ("done", "diverged")]
    methods = list(methods)
    check_consent(finished, net is not None, trust, methods)
    given = None if data is None else load_data(data, quiet=True)
    loaded: dict[tuple[str, str | None], FactorData] = {}
    digests: dict[tuple[str, str | None], str | None] = {}
    runs = []
    for run in finished:
        key = run.spec.data, run.data
        if given is None and key not in loaded:
            loaded[key] = folder_data(run)
            digests[key] = files_digest(loaded[key])
        warn_about_changed_files(run, digests.get(key))
        runs.append(_open_with_data(run, given, loaded.get(key), net, device, trust, methods))
    return RunList(runs)


def _open_with_data(
    folder: RunFolder,
    given: FactorData | None,
    found: FactorData | None,
    net: str | PairBuilder | Pair | None,
    device: str,
    trust: bool,
    methods: list[type[Method]],
) -> Run:
    """Load a run. Set its `data` to the data that the user has given or that were saved with it, otherwise to None."""
    data = given if given is not None else found if found is not None else folder_data(folder)
    run = open_run(folder, data, net, device, trust, methods)
    run.data = data if given is not None or folder.data is not None else None
    return run


def as_runs(runs: Any, data: DataLike | None = None, trust: bool = False, only: Only = None) -> list[Run]:
    """Return runs as a list in which each run occurs once.

    `runs` is one run, a list of runs, or one or several folders of runs. The other arguments are those of `load_runs`.

    Raises:
        UserError: If the runs are something else, or cannot be loaded.
    """
    listed = list(runs) if _is_several(runs) else [runs]
    if are_folders(listed):
        return load_runs(listed, data, trust=trust, only=only)
    found: dict[Any, Run] = {}
    for one in listed:
        for run in load_runs(one, data, trust=trust) if isinstance(one, str | Path) else [one]:
            if not isinstance(run, Run):
                raise UserError(
                    f"Runs must be trained runs or folders of runs. Got {type(run).__name__} instead. To score codes "
                    "without a run, call ub.score(codes=z, factors=v)."
                )
            found.setdefault(id(run) if run.path is None else run.id, run)
    return choose(list(found.values()), lambda run: run.spec.flat(complete=True), only)


def _is_several(runs: Any) -> bool:
    return isinstance(runs, Iterable) and not isinstance(runs, str | Path | Run) and not hasattr(runs, "shape")


def are_folders(runs: Any) -> bool:
    """Return whether runs are given by the path of a folder, or by a list of such paths."""
    listed = runs if isinstance(runs, list | tuple) else [runs]
    return bool(listed) and all(isinstance(one, str | Path) for one in listed)


def as_run(run: Any) -> Any:
    """Return the single run of a list or a folder. Anything else is returned unchanged.

    Raises:
        UserError: If there are several runs, or none.
    """
    if isinstance(run, str | Path):
        return load_run(run)
    if isinstance(run, list) and all(isinstance(one, Run) for one in run):
        if len(run) != 1:
            raise UserError(f"There must be exactly one run. Got a list of {len(run)} runs. Pass one, such as runs[0].")
        return run[0]
    return run


@explain_unknown_arguments()
def load_run(
    folder: str | Path,
    data: DataLike | None = None,
    net: str | PairBuilder | Pair | None = None,
    device: str = "cpu",
    *,
    trust: bool = False,
    methods: Iterable[type[Method]] = (),
) -> Run:
    """Load one trained run.

    Args:
        folder: The folder of the run, or a folder that contains only this run.
        data: The dataset of the run, as in `load_runs`.
        net: The network of the run. It is needed only if the network cannot be built from the name in the spec.
        device: The device on which to load the network, such as "cpu" or "cuda".
        trust: Whether to run code that the run folder refers to: a method or a network that is not part of unbraid, and
            that was not used in this process before. Its module is imported and runs with your permissions, so pass
            True only if you trust both the folder and the module.
        methods: Classes of your own methods. A run whose spec has the name of one of them uses this class, and nothing
            is imported for it. A class with the same name in another module is used too. You can therefore pass a class
            that was defined in a script or a notebook when the run was trained.

    Returns:
        The run.

    Raises:
        UserError: If the folder contains no run or several runs, if the training of the run is not finished, or if
            `trust` is needed.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as out:
    ...     (run,) = ub.train(ub.methods.VAE(), data="toy", steps=5, out=out, quiet=True)
    ...     ub.load_run(run.path).id == ub.load_run(out).id == run.id
    True
    """
    folders = [run for path in as_folders(folder) for run in find_runs(path)]
    if len(folders) != 1:
        count = f"{len(folders)} runs" if folders else "no run"
        example = f", such as {folders[0].path}" if folders else ""
        raise UserError(
            f"{folder} must contain exactly one run. Got {count} instead. Pass the folder of one run{example}. In "
            "Python, load_runs loads several."
        )
    (found,) = folders
    methods = list(methods)
    check_consent(folders, net is not None, trust, methods)
    given = None if data is None else load_data(data, quiet=True)
    stored = folder_data(found) if given is None else None
    if stored is not None:
        warn_about_changed_files(found, files_digest(stored))
    run = _open_with_data(found, given, stored, net, device, trust, methods)
    _ = run.net  # raises an error now if the weights are damaged
    return run
