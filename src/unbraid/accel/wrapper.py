"""The base class of modules that contain whole networks, for example one encoder per group of latents."""

from __future__ import annotations

from torch import nn


class NetworkWrapper(nn.Module):
    """A module that uses the networks inside it only by calling them.

    While runs train on a GPU, each network inside an encoder or a decoder of this class may be replaced by Triton
    kernels that compute the same function (see `unbraid.training.fused`). The networks are its children, which may
    also be in a `ModuleList` or in another `NetworkWrapper`. A class derives from this one as a promise: neither the
    class nor a method that uses it reads the layers or the weights of these networks. Modules without this promise stay
    as they are.
    """
