"""Checks that run before a user's own method or network is imported. Run folders store the names of such code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from unbraid.errors import UserError, warn_user
from unbraid.methods import Method
from unbraid.nets.registry import check_stored_net
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import RunFolder
from unbraid.runs.sources import changed_sources, own_sources
from unbraid.runs.spec import RunSpec, find_method
from unbraid.runs.stored_method import StoredMethod
from unbraid.runtime.importing import check_trust, offer_file


def check_consent(
    folders: Iterable[RunFolder], own_net: bool, trust: bool, methods: Iterable[type[Method]] = ()
) -> None:
    """Raise an error if loading runs would run code that the user has not consented to.

    Args:
        folders: The folders of the runs.
        own_net: Whether the user has passed the network of the runs, so that none is imported by name.
        trust: Whether the user has consented to run code that the run folders refer to.
        methods: Classes of methods that the user has passed.

    Raises:
        UserError: If a method or a network needs consent. The message names its module.
    """
    for folder in folders:
        stored = folder.spec.method
        if isinstance(stored, StoredMethod) and find_method(stored.name, methods) is None:
            _check_script(stored.name, folder)
            check_trust("method", stored.name, folder.path, trust, folder.own.files.get(stored.name))
        if not own_net:
            check_stored_net(folder.spec.net, folder.path, trust, folder.own.files.get(folder.spec.net))


def _check_script(name: str, folder: RunFolder) -> None:
    """Raise an error if a method was defined in a script or notebook other than the one that is running."""
    module, _, cls = name.rpartition(":")
    if module == "__main__" and not hasattr(sys.modules["__main__"], cls):
        raise UserError(
            f"The method of the run {folder.path} was defined in a script or a notebook, as {cls}. Pass the class: "
            f"load_runs(..., methods=[{cls}]). To use such runs on the command line, train with a class in a file: "
            f"unbraid train ./file.py:{cls}"
        )


def offer_files(folder: RunFolder) -> None:
    """Let the method and the network of a run be imported from their recorded files. The user must have consented."""
    used = (folder.spec.to_dict()["method"]["name"], folder.spec.net)
    for name, file in folder.own.files.items():
        if name in used:
            offer_file(name, Path(file))


def warn_about_changed_sources(folder: RunFolder, spec: RunSpec, builder: PairBuilder) -> None:
    """Warn if the user's own method or network has changed since the run was started."""
    changed = changed_sources(folder.own.sources, own_sources(spec, builder)) if folder.own.sources else []
    if changed:
        warn_user(
            f"The source code of {changed[0]} has changed since the run {folder.path} was started. What the run now "
            "computes may differ from what was trained."
        )
