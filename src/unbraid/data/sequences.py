"""Datasets that know which examples follow each other in time: frames of several sequences, and a grid of factors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.errors import UserError
from unbraid.noise import Noise


class Sequences(Labelled):
    """Labelled examples that are the frames of several sequences. The sequences are stored one after another.

    A consecutive pair consists of a frame and a later frame of the same sequence. The first frame is uniform over all
    frames except the last frame of each sequence. The distance of the two frames is uniform from 1 to `max_distance`,
    but the second frame is never later than the last frame of the sequence.

    Args:
        name: Name of the dataset.
        names: Names of the k factors.
        sizes: Number of values of each factor.
        table: Images, uint8 of shape (n, c, h, w).
        labels: Integers of shape (n, k), as in `Labelled`.
        label_values: What `factor_values` returns for all examples, float64 of shape (n, k).
        continuous: Names of the continuous factors.
        lengths: Number of frames of each sequence. The sum is n.
        max_distance: Largest number of frames from the first to the second frame of a pair.

    Raises:
        UserError: If the lengths do not add up to n, if no sequence has two frames, or if `max_distance` is below 1.
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        table: UInt8[Tensor, "n c h w"],
        labels: Int[Tensor, "n k"],
        label_values: Float[Tensor, "n k"],
        continuous: tuple[str, ...],
        *,
        lengths: Sequence[int] | Int[Tensor, " s"],
        max_distance: int = 1,
    ) -> None:
        super().__init__(name, names, sizes, table, labels, label_values, continuous)
        if max_distance < 1:
            raise UserError(f"The 'max_distance' of {name} must be at least 1. Got {max_distance} instead.")
        self.max_distance = max_distance
        self.following = frames_that_follow(torch.as_tensor(lengths)).to(table.device)
        if len(self.following) != len(table) or not self.following.any():
            raise UserError(
                f"The sequences of {name} must have {len(table)} frames in total, and at least two frames in one of "
                f"them. Got {len(self.following)} frames in total instead."
            )
        self.firsts = self.following.nonzero()[:, 0]

    def draw_consecutive(self, noise: Noise, n: int) -> Int[Tensor, "n 2"]:
        """Draw pairs of a frame and a later frame of the same sequence."""
        first = self.firsts[noise.integers(len(self.firsts), n)]
        distance = noise.integers(self.max_distance, n) + 1
        return torch.stack([first, first + torch.minimum(distance, self.following[first])], 1)

    def to(self, device: str | torch.device) -> Sequences:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, Sequences)
        moved.following, moved.firsts = self.following.to(device), self.firsts.to(device)
        return moved

    def select_rows(self, part: slice) -> Labelled:
        """Return some frames as examples that are not sequences, because frames between them may be missing."""
        rows = Labelled(
            self.name, self.names, self.sizes, self.table[part], self.labels[part],
            None if self.label_values is None else self.label_values[part], self.continuous,
        )  # fmt: skip
        rows.successive = False
        return rows


class GridWithTransitions(ByteImages):
    """Images on a full grid of factors, with measured transitions of the first factors.

    In a consecutive pair, the first factors make one of these transitions. All transitions are equally likely. The
    other factors are drawn uniformly and are the same in both examples.

    Args:
        name: Name of the dataset.
        names: Names of the k factors.
        sizes: Number of values of each factor.
        table: Images, uint8 of shape (n, c, h, w), in C order.
        transitions: Values of the first j factors before and after each measured transition, int64 of shape (m, 2, j).
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        table: UInt8[Tensor, "n c h w"],
        transitions: Int[Tensor, "m 2 j"],
    ) -> None:
        super().__init__(name, tuple(names), tuple(sizes), tuple(table.shape[1:]), table)
        moving = transitions.shape[2]
        self.others = math.prod(self.sizes[moving:])  # number of combinations of the other factors
        self.transitions = (transitions * torch.tensor(self.strides[:moving])).sum(2).to(table.device)

    def draw_consecutive(self, noise: Noise, n: int) -> Int[Tensor, "n 2"]:
        """Draw pairs with a measured transition of the first factors. The other factors do not change."""
        chosen = self.transitions[noise.integers(len(self.transitions), n)]
        return chosen + noise.integers(self.others, n, 1)

    def to(self, device: str | torch.device) -> GridWithTransitions:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, GridWithTransitions)
        moved.transitions = self.transitions.to(device)
        return moved


def frames_that_follow(lengths: Int[Tensor, " s"]) -> Int[Tensor, " n"]:
    """Return, for each frame, the number of frames that follow it in its sequence.

    >>> frames_that_follow(torch.tensor([3, 2])).tolist()
    [2, 1, 0, 1, 0]
    """
    ends = lengths.cumsum(0).repeat_interleave(lengths)
    return ends - 1 - torch.arange(len(ends))
