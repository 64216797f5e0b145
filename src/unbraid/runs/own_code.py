"""Checks before code of the user's own, which a run folder names, is imported and used."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from unbraid.nets.registry import check_stored_net
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import RunFolder
from unbraid.runs.sources import changed_sources, own_sources
from unbraid.runs.spec import RunSpec
from unbraid.runs.stored_method import StoredMethod
from unbraid.runtime.importing import check_trust


def check_consent(folders: Iterable[RunFolder], own_net: bool, trust: bool) -> None:
    """Raise an error if loading runs would run code that the user has not consented to.

    Args:
        folders: The folders of the runs.
        own_net: Whether the user has passed the network of the runs.
        trust: Whether the user has consented to run code that the folders name.

    Raises:
        UserError: If a method or a network needs consent. The message names its module.
    """
    for folder in folders:
        if isinstance(folder.spec.method, StoredMethod):
            check_trust("method", folder.spec.method.name, folder.path, trust)
        if not own_net:
            check_stored_net(folder.spec.net, folder.path, trust)


def warn_about_changed_sources(folder: RunFolder, spec: RunSpec, builder: PairBuilder) -> None:
    """Warn if the user's own method or network has changed since the run was started."""
    changed = changed_sources(folder.own.sources, own_sources(spec, builder)) if folder.own.sources else []
    if changed:
        warnings.warn(
            f"The source code of {changed[0]} has changed since the run {folder.path} was started. What the run now "
            "computes may differ from what was trained.",
            RuntimeWarning,
            stacklevel=4,
        )
