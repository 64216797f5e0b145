"""When the main CUDA stream waits for the second one. Streams are replaced by records, so this needs no GPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from unbraid.training.fused import streams
from unbraid.training.fused.streams import (
    MAX_POSTPONED_RUNS,
    Product,
    SideStream,
    count_use,
    join_is_postponed,
    postponed_joins,
    postponed_products,
    postpones_products,
)

CUDA = torch.device("cuda")


class Stream:
    """A stream that records which streams it waits for."""

    def __init__(self) -> None:
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The main stream, while all CUDA streams are replaced."""
    main, side = Stream(), Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(streams, "_side_stream", lambda device: side)
    return main


def work(*arguments: Any) -> None:
    """Do nothing."""


def test_a_stream_without_work_is_not_waited_for(main: Stream) -> None:
    """A wait for a stream outside of a captured graph would end the capture."""
    with postponed_joins(CUDA):
        SideStream(CUDA).join(postponed=False)
        SideStream(CUDA).join(postponed=True)
    assert main.waited == []


@pytest.mark.parametrize(
    ("uses", "runs", "postponed"),
    [(1, 1, True), (1, MAX_POSTPONED_RUNS, True), (1, MAX_POSTPONED_RUNS + 1, False), (2, 1, False), (0, 1, False)],
)
def test_joins_of_small_stacks_are_postponed(main: Stream, uses: int, runs: int, postponed: bool) -> None:
    """A network that is used twice is joined at once, because autograd adds its gradients."""
    with postponed_joins(CUDA) as left:
        for _ in range(uses):
            count_use("net", trained=True)
        count_use("net", trained=False)
        side = SideStream(CUDA)
        side.run(work, "argument")
        side.join(join_is_postponed("net", runs))
        assert bool(main.waited) != postponed
        assert bool(left.arguments) == postponed
    assert len(main.waited) == 1


def test_joins_outside_of_the_context_are_immediate(main: Stream) -> None:
    side = SideStream(CUDA)
    side.run(work)
    side.join(join_is_postponed("net", runs=1))
    assert len(main.waited) == 1


def test_products_are_left_for_networks_that_are_used_once() -> None:
    """Products are left only inside the context, for the given networks and if there is one gradient."""
    assert not postpones_products("a")
    with postponed_joins(torch.device("cpu"), ["a", "b"]) as left:
        for network in ("a", "b", "b", "c"):
            count_use(network, trained=True)
        assert [network for network in "abc" if postpones_products(network)] == ["a"]
        product = Product("layer", torch.ones(1), torch.ones(1))
        postponed_products("a").append(product)
    assert left.products == {"a": [product]}
