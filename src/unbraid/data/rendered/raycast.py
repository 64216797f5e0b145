"""One solid on the floor of a square room, ray-cast into per-pixel layers that three colours blend into an image.

The origin is the point of the floor below the solid; x goes right, y away from the camera at angle 0, z up. The room's
half side is 10 and sets the unit of length. Vectors are in the first axis, which is several times faster than in the
last; a ray is origin + t * direction, t > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

ROOM = 10.0
PIXELS = 64
SKY = (153, 226, 249)
# The places in `render_layers`: light on each surface and the share of the pixel it covers, the solid's gloss, the sky.
FLOOR, FLOOR_SHARE, WALL, WALL_SHARE, SOLID, SOLID_SHARE, GLOSS, SKY_RED = range(8)
LAYERS = SKY_RED + 3


@dataclass(frozen=True)
class Scene:
    """What is the same in every image; the fields in the order camera, walls, solids at scale 1, light, texture.

    The camera stands `distance` from the z axis at `height`, looks at the point `aim` above the origin, and an object
    of size s at depth d is `zoom` * s / d half images wide. The sizes of a solid are its half side or radius, and its
    height. `shade` says what the numbers from `ambient` to `gloss_edge` mean, `texture` the rest.
    """

    distance: float
    height: float
    aim: float
    zoom: float
    wall: float
    cube: float
    cube_height: float
    cylinder: float
    cylinder_height: float
    sphere: float
    capsule: float
    capsule_height: float
    ambient: float
    head: float
    lamp: float
    lamp_x: float
    lamp_y: float
    lamp_z: float
    spot_x: float
    spot_y: float
    spot_power: float
    gloss: float
    gloss_edge: float
    hexagons: float
    fade: float
    shift: float
    blot: float
    blot_u: float
    blot_v: float
    stroke_u: float
    stroke_v: float
    stroke_width: float


class Hit(NamedTuple):
    """How far along each ray a solid is met (infinite if never) and the surface's unit normal there."""

    t: Float[Tensor, "b h w"]
    normal: Float[Tensor, "3 b h w"]


class Room(NamedTuple):
    """What the rays of a camera meet in the empty room; `lamp` and `rest` are the light there, texture included."""

    origin: Tensor
    direction: Tensor
    forward: Tensor
    t: Tensor
    floor: Tensor
    sky: Tensor
    to_lamp: Tensor
    lamp: Tensor
    rest: Tensor


def render_layers(
    scene: Scene, room: Room, shape: int, scale: Float[Tensor, " b"], pixels: int = PIXELS
) -> Float[Tensor, "b l h w"]:
    """Light and shares of every surface with one solid in the room, filtered down to `pixels`; white is 1.

    The filter subtracts beside an edge. Light keeps its sign there; a share, being a limit, is cut at 0.
    """
    hit = intersect_solid(scene, shape, scale, room.origin, room.direction)
    seen = hit.t < room.t
    point = room.origin + hit.t.clamp_max(4 * ROOM) * room.direction
    lamp, rest, gloss = shade(scene, point, hit.normal, room.forward)
    start = room.origin + room.t * room.direction
    lit = (intersect_solid(scene, shape, scale, start, room.to_lamp).t > 1) | ~room.floor
    behind = room.rest + room.lamp * lit
    floor, sky = room.floor & ~seen, room.sky & ~seen
    wall = ~(floor | sky | seen)
    parts = (behind * floor, floor, behind * wall, wall, (lamp + rest) * seen, seen, gloss * seen, sky)
    down = lanczos(pixels, room.t.shape[-1] // pixels).to(room.t)
    small = down @ torch.stack([part.to(room.t) for part in parts], 1) @ down.T
    small[:, [FLOOR_SHARE, WALL_SHARE, SOLID_SHARE]] = small[:, [FLOOR_SHARE, WALL_SHARE, SOLID_SHARE]].clamp_min(0)
    colour = room.t.new_tensor(SKY) / 255
    return torch.cat([small[:, :SKY_RED], small[:, SKY_RED, None] * colour[:, None, None]], 1)


def blend_layers(
    layers: Real[Tensor, "*b l h w"], floor: Real[Tensor, "*b c"], wall: Tensor, solid: Tensor
) -> Real[Tensor, "*b c h w"]:
    """The images of three colours: each surface shows colour * light, up to the share of the pixel it covers.

    The sum is not cut to the range of a pixel.
    """
    maps = layers.unsqueeze(-3).unbind(-4)
    floor, wall, solid = (colour[..., None, None] for colour in (floor, wall, solid))
    image = torch.minimum(floor * maps[FLOOR], maps[FLOOR_SHARE])
    image.add_(torch.minimum(wall * maps[WALL], maps[WALL_SHARE]))
    image.add_(torch.minimum((solid * maps[SOLID]).add_(maps[GLOSS]), maps[SOLID_SHARE]))
    return image.add_(layers[..., SKY_RED:, :, :])


def trace_room(scene: Scene, angle: Float[Tensor, " b"], oversample: int) -> Room:
    """The empty room seen from each angle (radians), `oversample`^2 rays a pixel."""
    origin, direction, forward = camera_rays(scene, angle, PIXELS * oversample)
    x, y, z = direction
    side, back = (ROOM * direction[:2].sign() - origin[:2]) / direction[:2]
    far = torch.minimum(side, back)
    top = origin[2] + far * z
    floor, sky, flank = top < 0, top > scene.wall, side < back
    t = torch.where(floor, -origin[2] / z, far)
    zero = torch.zeros_like(x)
    normal = torch.stack(
        [torch.where(flank & ~floor, -x.sign(), zero), torch.where(flank | floor, zero, -y.sign()), floor.to(x)]
    )
    point = origin + t * direction
    lamp, rest, _ = shade(scene, point, normal, forward)
    pattern = texture(scene, point, normal, t)
    to_lamp = _lamp_position(scene, point) - point
    return Room(origin, direction, forward, t, floor, sky, to_lamp, lamp * pattern, rest * pattern)


def camera_rays(scene: Scene, angle: Float[Tensor, " b"], pixels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Origin (3, b, 1, 1), direction (3, b, h, w) and the axis (3, b, 1, 1) of the rays through the pixels' centres."""
    zero, sin, cos = torch.zeros_like(angle), angle.sin(), angle.cos()
    origin = torch.stack([scene.distance * sin, -scene.distance * cos, zero + scene.height])
    axis = torch.stack([zero, zero, zero + scene.aim]) - origin
    axis = axis / axis.norm(dim=0)
    right = torch.stack([cos, sin, zero])
    up = torch.linalg.cross(right, axis, dim=0)
    origin, axis, right, up = (v[..., None, None] for v in (origin, axis, right, up))
    step = ((torch.arange(pixels).to(angle) + 0.5) * 2 / pixels - 1) / scene.zoom
    return origin, axis + step * right - step[:, None] * up, axis


def shade(scene: Scene, point: Tensor, normal: Tensor, forward: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Light by the lamp, all other light, and gloss, each a number a point.

    The lamp is a spot: (n.l) (s.l)^power, l the direction to it and s its axis. A head light shines along the camera's
    axis. Gloss is as wide as can be, the same wherever the lamp shines, and smoothed where it begins.
    """
    at = _lamp_position(scene, point)
    axis = at - at.new_tensor([scene.spot_x, scene.spot_y, 0]).view(3, 1, 1, 1)
    ray = at - point
    ray = ray / dot(ray, ray).sqrt()
    facing = dot(normal, ray)
    spot = dot(ray, axis / axis.norm()).clamp_min(0) ** scene.spot_power
    head = -dot(normal, forward)
    gloss = scene.gloss * (facing / scene.gloss_edge + 0.5).clamp(0, 1)
    return scene.lamp * facing.clamp_min(0) * spot, scene.ambient + scene.head * head.clamp_min(0), gloss


def texture(scene: Scene, point: Tensor, normal: Tensor, t: Tensor) -> Tensor:
    """What multiplies the light on floor and walls: faint hexagons, and one dark stroke in every square tile.

    A tile (u, v) is as wide as the walls are high; walls carry it upright and the floor turned by a quarter. On the
    floor the hexagons fade with distance t. Lengths of the stroke are in tiles.
    """
    x, y, z = point
    floor, y = normal[2] > 0, y + scene.shift
    u = torch.where(floor, -y, torch.where(normal[0] == 0, x, y * normal[0])) / scene.wall
    v = torch.where(floor, x, z - scene.wall / 2) / scene.wall
    waves = [(2 * math.pi * (5 * u + k * v)).cos() for k in (8, -8)]
    cells = waves[0] + waves[1] + (20 * math.pi * u).cos()
    strength = scene.hexagons * torch.where(floor, (-((t / scene.fade) ** 2)).exp(), 1.0)
    along = point.new_tensor([scene.stroke_u, scene.stroke_v]).view(2, 1, 1, 1)
    place = torch.stack([u - scene.blot_u, v - scene.blot_v])
    place = place - place.round()
    nearest = (dot(place, along) / dot(along, along)).clamp(-0.5, 0.5)
    inked = (place - nearest * along).norm(dim=0) < scene.stroke_width
    pattern: Tensor = (1 + strength * cells) * (1 - scene.blot * inked)
    return pattern


def intersect_solid(scene: Scene, shape: int, scale: Float[Tensor, " b"], origin: Tensor, direction: Tensor) -> Hit:
    """Where the rays meet the solid: 0 a cube, 1 a cylinder, 2 a sphere, 3 a capsule, all standing on the floor."""
    s = scale[:, None, None]
    if shape == 0:
        return cube(s * scene.cube, s * scene.cube_height, origin, direction)
    if shape == 1:
        return cylinder(s * scene.cylinder, s * scene.cylinder_height, origin, direction)
    if shape == 2:
        return sphere(s * scene.sphere, s * scene.sphere, origin, direction)
    return capsule(s * scene.capsule, s * scene.capsule_height, origin, direction)


def cube(half: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """A box about the z axis."""
    low, high = torch.stack([-half, -half, 0 * half]), torch.stack([half, half, height])
    a, b = (low - origin) / direction, (high - origin) / direction
    near = torch.minimum(a, b)
    enter, leave = near.amax(0), torch.maximum(a, b).amin(0)
    normal = (near == enter) * -direction.sign()
    return Hit(_distance_if((enter < leave) & (enter > 0), enter), normal)


def cylinder(radius: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """An upright cylinder with flat ends."""
    enter, leave, real = _intersect_cylinder(radius, origin, direction)
    a, b = ((level - origin[2]) / direction[2] for level in (0 * height, height))
    flat = torch.minimum(a, b)
    t = torch.maximum(enter, flat)
    side = enter > flat
    outward = (origin[:2] + t * direction[:2]) / radius * side
    normal = torch.cat([outward, (-direction[2].sign() * ~side)[None]])
    inside = real & (t < torch.minimum(leave, torch.maximum(a, b))) & (t > 0)
    return Hit(_distance_if(inside, t), normal)


def sphere(radius: Tensor, centre: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """A ball whose centre is at height `centre`."""
    start = origin - torch.stack([0 * centre, 0 * centre, centre])
    enter, _, real = _roots(dot(direction, direction), dot(start, direction), dot(start, start) - radius**2)
    return Hit(_distance_if(real & (enter > 0), enter), (start + enter * direction) / radius)


def capsule(radius: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """An upright cylinder with half balls for ends."""
    enter, _, real = _intersect_cylinder(radius, origin, direction)
    x, y, z = origin + enter * direction
    best = _distance_if(real & (enter > 0) & (z > radius) & (z < height - radius), enter)
    normal = torch.stack([x / radius, y / radius, 0 * z])
    for centre in (radius, height - radius):
        ball = sphere(radius, centre, origin, direction)
        normal = torch.where(ball.t < best, ball.normal, normal)
        best = torch.minimum(best, ball.t)
    return Hit(best, normal)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product over the first axis."""
    return (a * b).sum(0)


def lanczos(pixels: int, oversample: int, lobes: int = 3) -> Float[Tensor, "p q"]:
    """The matrix that shrinks a line of `pixels` * `oversample` samples by the filter sinc(x) sinc(x / lobes)."""
    centre = torch.arange(pixels, dtype=torch.float64) + 0.5
    place = (torch.arange(pixels * oversample, dtype=torch.float64) + 0.5) / oversample
    x = place - centre[:, None]
    weight = torch.sinc(x) * torch.sinc(x / lobes) * (x.abs() < lobes)
    return weight / weight.sum(1, keepdim=True)


def _intersect_cylinder(radius: Tensor, origin: Tensor, direction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where rays enter and leave an endless cylinder about the z axis, and whether they do."""
    o, d = origin[:2], direction[:2]
    return _roots(dot(d, d), dot(o, d), dot(o, o) - radius**2)


def _roots(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two solutions of a t^2 + 2 b t + c = 0, and whether they are real."""
    inner = b * b - a * c
    root = inner.clamp_min(0).sqrt()
    return (-b - root) / a, (-b + root) / a, inner > 0


def _lamp_position(scene: Scene, like: Tensor) -> Tensor:
    return like.new_tensor([scene.lamp_x, scene.lamp_y, scene.lamp_z]).view(3, 1, 1, 1)


def _distance_if(met: Tensor, t: Tensor) -> Tensor:
    return torch.where(met, t, math.inf)
