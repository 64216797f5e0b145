"""The latents that a traversal decodes, and the labels of its rows."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RowLabel(NamedTuple):
    r"""The label of one row of a traversal, which describes what changes in the row.

    Attributes:
        name: The name of the latent, subspace or direction, such as "latent 3".
        column: The column of the method's codes that the row changes (see `Method.column_code_kind`), or None if the
            row changes several columns.
        nats: The mean KL divergence of the latent's posterior from the prior, in nats, or None if it is not defined.
        std: The standard deviation of the population in the direction of the row. None if rows are not sorted by it.

    >>> RowLabel("latent 3", 3, nats=0.519).text()
    'latent 3\n0.52 nats'
    """

    name: str
    column: int | None = None
    nats: float | None = None
    std: float | None = None

    @property
    def note(self) -> str:
        """The nats or the standard deviation as text, or an empty string if both are None."""
        if self.nats is not None:
            return f"{self.nats:.2f} nats"
        return "" if self.std is None else f"std {self.std:.2g}"

    @property
    def short_name(self) -> str:
        """The last word of the name, which is usually a number."""
        return self.name.rpartition(" ")[2]

    def text(self) -> str:
        """Return the text of the label, which is the name and, on a second line, the note."""
        return f"{self.name}\n{self.note}".strip()


class Traversal(NamedTuple):
    """The latents of a traversal.

    Attributes:
        z: Latents to decode, of shape (rows, positions, d).
        start: The latents of the example that the traversal starts from, of shape (1, d).
        labels: One label per row.
    """

    z: Tensor
    start: Tensor
    labels: list[RowLabel]
