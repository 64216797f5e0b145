"""The run-time type checker of the tests reports what it should report."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from typecheck import checked
from unbraid.metrics.mcc import absolute_correlations
from unbraid.runtime.progress import format_duration

if TYPE_CHECKING:
    from unbraid.runs.run import Run

Rows = Float[np.ndarray, "n d"]
OfSize = Float[np.ndarray, "{size}"]


@checked
def repeat(text: str, times: int = 2) -> list[str]:
    return [text] * times


@checked
def scale(value: float) -> str:
    return value  # type: ignore[return-value]


@checked
def add(a: Rows, b: Rows | None = None) -> Rows:
    return a if b is None else add(a[:1], b[:1])


@checked
def shorten(a: Rows) -> Rows:
    return a[1:]


@checked
def transposed(a: Rows) -> Float[np.ndarray, "d n"]:
    return shorten(a.T).T if len(a) == 1 else a.T


@checked
def pairs(a: Rows) -> Iterator[Rows]:
    yield a


@checked
def filled(size: int) -> OfSize:
    return np.zeros(3)


@checked
def later(value: Later, run: Run, count: int) -> int:
    return count


class Later:
    @checked
    def double(self, times: int) -> int:
        return 2 * times


@checked
@dataclasses.dataclass
class Free:
    size: int


def test_arguments_and_results_are_checked() -> None:
    assert repeat("a") == ["a", "a"]
    for wrong in ({"text": 1}, {"text": "a", "times": "2"}):
        with pytest.raises(TypeCheckError):
            repeat(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError, match="return"):
        scale(1)  # an int is a float, but a float is not the string that is promised
    with pytest.raises(TypeCheckError):
        Later().double("2")  # type: ignore[arg-type]


def test_sizes_of_axes_are_compared_within_one_call() -> None:
    assert add(np.zeros((3, 2))).shape == (3, 2)
    assert transposed(np.zeros((3, 2))).shape == (2, 3)
    with pytest.raises(TypeCheckError):
        add(np.zeros((3, 2)), np.zeros((3, 4)))
    with pytest.raises(TypeCheckError):
        shorten(np.zeros((3, 2)))
    with pytest.raises(TypeCheckError):
        transposed(np.zeros((1, 2)))  # the call inside is wrong
    assert transposed(np.zeros((5, 4))).shape == (4, 5)  # nothing is left of the failed calls


def test_other_functions_are_checked_by_jaxtyping_itself() -> None:
    assert len(list(pairs(np.zeros((3, 2))))) == 1
    with pytest.raises(TypeCheckError):
        pairs(np.zeros(3))
    assert filled(3).shape == (3,)
    with pytest.raises(TypeCheckError):
        filled(4)


def test_names_that_do_not_exist_yet_are_not_checked() -> None:
    given: Any = None
    assert later(given, given, 3) == 3
    with pytest.raises(TypeCheckError):
        later(given, given, "3")  # type: ignore[arg-type]


def test_constructors_are_free() -> None:
    assert Free("large").size == "large"  # type: ignore[arg-type]


def test_functions_stay_as_they_are_written() -> None:
    assert repeat.__annotations__ == {"text": "str", "times": "int", "return": "list[str]"}
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert inspect.unwrap(add).__code__.co_name == "add"


def test_the_functions_of_the_package_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        format_duration("a")  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        absolute_correlations(np.zeros((3, 2)), np.zeros((4, 2)))
