"""Digests of the source code of the user's own methods and networks.

The id of a run is a hash of its spec, which names the user's code but does not contain it. The digest shows whether the
code has changed since the run was started. It covers the function or class and all of the user's code that the function
or class refers to: base classes, functions, classes and constants, also in other modules of the user.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

from unbraid.methods import METHODS
from unbraid.nets.registry import NETS, QUALIFIED
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec

INSTALLED = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_own(spec: RunSpec) -> bool:
    """Return whether the method or the network of a spec is not part of unbraid."""
    return _method_is_own(spec) or _net_is_own(spec)


def _method_is_own(spec: RunSpec) -> bool:
    return type(spec.method) not in METHODS.values()


def _net_is_own(spec: RunSpec) -> bool:
    return spec.net not in NETS and spec.net not in QUALIFIED


def own_sources(spec: RunSpec, builder: PairBuilder) -> dict[str, str]:
    """Return the digests of the source code of the method and the network of a spec, each by its name in the spec.

    Names in the registries are left out, because the version of unbraid identifies them.
    """
    sources = {}
    if _method_is_own(spec):
        sources[spec.to_dict()["method"]["name"]] = source_digest(type(spec.method))
    if _net_is_own(spec):
        sources[spec.net] = source_digest(builder)
    return sources


def changed_sources(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return the names whose source code has a different digest than the recorded one.

    A name without a recorded digest counts as unchanged. Runs of release 0.1 have no recorded digests.
    """
    return [name for name, digest in present.items() if recorded.get(name, digest) != digest]


def source_digest(root: Any) -> str:
    """Return a SHA-256 digest of the source code of a function, a class or a pair of networks, in hexadecimal."""
    try:
        return _cached_digest(root)
    except TypeError:  # the object cannot be a key of the cache
        return _cached_digest.__wrapped__(root)


@functools.lru_cache(maxsize=16)  # few entries, because each of them keeps a builder and its networks in memory
def _cached_digest(root: Any) -> str:
    walk = _Walk(_package(root.func if isinstance(root, functools.partial) else root))
    walk.visit(root)
    return hashlib.sha256("\n".join(sorted(walk.texts)).encode()).hexdigest()


def _package(part: Any) -> str:
    """Return the top-level package of a function or class."""
    return str(getattr(part, "__module__", None) or "").partition(".")[0]


@dataclass
class _Walk:
    """A walk over the user's own code.

    Attributes:
        package: The top-level package of the first function or class. All its code counts as the user's own, even if
            the package is installed.
        texts: The source code and the constants that were found.
        seen: The objects that have been visited, by their identity. They are kept alive, so identities stay unique.
    """

    package: str
    texts: set[str] = field(default_factory=set)
    seen: dict[int, Any] = field(default_factory=dict)

    def visit(self, part: Any) -> None:
        """Add an object and all of the user's code that it refers to."""
        if id(part) in self.seen:
            return
        self.seen[id(part)] = part
        if isinstance(part, functools.partial):
            self.texts.add(repr([value for value in (part.args, part.keywords) if _is_constant(value)]))
            self.visit([part.func, *part.args, *part.keywords.values()])
        elif isinstance(part, tuple | list | dict):
            for item in part.values() if isinstance(part, dict) else part:
                self.visit(item)
        elif isinstance(part, nn.Module):
            self.visit([type(module) for module in part.modules()])
        elif inspect.isfunction(part):
            self._visit_function(part)
        elif isinstance(part, type) or callable(part):
            self._visit_class(part if isinstance(part, type) else type(part))

    def is_own(self, part: Any) -> bool:
        """Return whether a function or class is the user's own: it is not part of unbraid, Python or a library."""
        module, package = sys.modules.get(str(getattr(part, "__module__", None))), _package(part)
        if module is None or package in ("unbraid", "builtins", "torch"):
            return False
        return package == self.package or not (getattr(module, "__file__", None) or "").startswith(INSTALLED)

    def _visit_class(self, cls: type) -> None:
        if not self.is_own(cls):
            return
        self.texts.add(_source(cls))
        for part in (*cls.__bases__, *vars(cls).values()):
            member = getattr(part, "__func__", getattr(part, "fget", part))  # unwraps class methods, properties
            if inspect.isfunction(member):
                self._follow(member)
            elif isinstance(member, type):
                self.visit(member)

    def _visit_function(self, function: FunctionType) -> None:
        if self.is_own(function):
            self.texts.add(_source(function))
        self._follow(function)

    def _follow(self, function: FunctionType) -> None:
        """Visit everything that a function refers to: its closure and, if it is the user's own, its globals."""
        for cell in function.__closure__ or ():
            self.visit(_cell_content(cell))
        names = set(_names(function.__code__)) if self.is_own(function) else set()
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            if isinstance(value, ModuleType):
                for attribute in names & vars(value).keys():
                    self._visit_named(attribute, getattr(value, attribute))
            else:
                self._visit_named(name, value)

    def _visit_named(self, name: str, value: Any) -> None:
        """Visit the value of a global name. A constant is added with its name."""
        if _is_constant(value):
            self.texts.add(f"{name} = {value!r}")
        else:
            self.visit(value)


def _is_constant(value: Any) -> bool:
    """Return whether a value consists of numbers and text, so that its representation is always the same."""
    if isinstance(value, tuple | list):
        return all(map(_is_constant, value))
    if isinstance(value, dict):
        return all(map(_is_constant, (*value, *value.values())))
    return isinstance(value, int | float | str | None)


def _cell_content(cell: Any) -> Any:
    """Return the content of a cell of a closure, or None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: CodeType) -> Iterator[str]:
    """Yield all names that code and the functions inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(part: Any) -> str:
    """Return the source code of a function or class, or its bytecode if there is no source, as in a shell."""
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        functions = [part] if inspect.isfunction(part) else [f for f in vars(part).values() if inspect.isfunction(f)]
        return f"{sys.version_info[:2]}" + "".join(_bytecode(function.__code__) for function in functions)


def _bytecode(code: CodeType) -> str:
    """Return the bytecode of a function with its names and constants, as text."""
    constants = [_bytecode(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {' '.join(constants)}\n"
