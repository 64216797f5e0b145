"""The public interface of the package: every name loads, and importing the package stays fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

import unbraid as ub


@pytest.mark.parametrize("name", ub.__all__)
def test_every_public_name_loads(name: str) -> None:
    value = getattr(ub, name)
    assert value.__doc__
    assert name in dir(ub)


def test_functions_are_named_as_they_are_exported() -> None:
    functions = [name for name in ub.__all__ if callable(getattr(ub, name))]
    assert len(functions) == 26
    assert all(getattr(ub, name).__name__ == name for name in functions)


@pytest.mark.parametrize("name", [name for name in ub.__all__ if name.islower() and callable(getattr(ub, name))])
def test_every_function_explains_arguments_that_it_does_not_have(name: str) -> None:
    with pytest.raises(ub.UserError, match=rf"^{name} has no argument 'bananas'\..* Its arguments are: "):
        getattr(ub, name)(bananas=3)


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'trian'\. It has: "):
        _ = ub.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize("statement", ["import unbraid", "from unbraid import metrics, UserError"])
def test_import_does_not_load_torch(statement: str) -> None:
    code = f"{statement}; import sys; assert not {{'torch', 'sklearn', 'matplotlib', 'numba'}} & {{*sys.modules}}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
