"""Networks that are read from disk when they are used, so that many runs need little memory."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

from unbraid.nets.vae import VAENet

OPEN_NETWORKS = 64  # networks that stay in memory after use

_recent: deque[VAENet] = deque(maxlen=OPEN_NETWORKS)


class StoredNetwork:
    """A network that is read when it is first used.

    After `OPEN_NETWORKS` other networks have been read, it is released unless something else refers to it.
    """

    def __init__(self, read: Callable[[], VAENet]) -> None:
        self.read = read
        self.reference: weakref.ref[VAENet] | None = None

    def get(self) -> VAENet:
        """Return the network. Read it if it is not in memory."""
        net = None if self.reference is None else self.reference()
        if net is None:
            net = self.read()
            self.reference = weakref.ref(net)
            _recent.append(net)
        return net
