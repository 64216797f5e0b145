"""The presets of networks by the data that they accept."""

from __future__ import annotations

from unbraid.nets.registry import NETS

IMAGE_NETS = [name for name in NETS if name != "pointnet"]
"""The presets that accept images. The other preset, `pointnet`, accepts only meshes."""
