"""Ray casting of a solid on the floor of a square room.

Ray casting computes layers, which are blended with three colours into an image. The origin of the coordinates is the
point of the floor below the solid. Seen from the camera at angle 0, x points to the right, y away from the camera, and
z up. Half the side of the room is 10 units of length. The first axis of a tensor of vectors contains the coordinates,
because this is several times faster than using the last axis. A ray consists of the points origin + t * direction with
t > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor

ROOM_HALF_SIDE = 10.0
PIXELS = 64
SKY = (153, 226, 249)  # RGB colour of the sky
# Indices of the layers. There is one layer for the light on each surface, one for the fraction of each pixel that the
# surface covers, one for the gloss of the solid, and three for the colour of the sky.
FLOOR, FLOOR_COVERAGE, WALL, WALL_COVERAGE, SOLID, SOLID_COVERAGE, GLOSS, SKY_RED = range(8)
LAYERS = SKY_RED + 3


@dataclass(frozen=True)
class Scene:
    """The parameters that are the same in every image.

    They are listed in the order camera, walls, solids at scale 1, light, texture. The camera is at `distance` from the
    z axis and at `height`, and looks at the point at height `aim` above the origin. An object of size s at depth d
    appears with a size of `zoom` * s / d, in units of half the image width. `wall` is the height of the walls. The
    parameters of a solid are its radius, or half its side for the cube, and its height. `shade` explains the parameters
    from `ambient` to `gloss_edge`, and `texture` explains the others.
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
    """Where rays hit a solid.

    Attributes:
        t: Position along each ray at which it hits the solid, or infinity if it misses the solid.
        normal: Unit normal of the solid at this point.
    """

    t: Float[Tensor, "b h w"]
    normal: Float[Tensor, "3 b h w"]


class Room(NamedTuple):
    """The rays of a camera, and where they hit the empty room.

    Attributes:
        origin: Origin of the rays.
        direction: Directions of the rays.
        forward: Direction of the camera axis.
        t: Position along each ray at which it hits the floor or a wall.
        floor: Whether the ray hits the floor.
        sky: Whether the ray passes above the wall.
        to_lamp: Vector from the hit point to the lamp.
        lamp: Light of the lamp at the hit point, including the texture.
        rest: All other light at the hit point, including the texture.
    """

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
    """Render the layers of a room with one solid in it, downsampled to `pixels` x `pixels`. White is 1.

    The layers contain the light and the coverage of every surface. The downsampling filter produces negative values
    beside an edge. Negative light is kept. Coverage is clipped at 0, because it is used as an upper limit.
    """
    hit = intersect_solid(scene, shape, scale, room.origin, room.direction)
    visible = hit.t < room.t
    point = room.origin + hit.t.clamp_max(4 * ROOM_HALF_SIDE) * room.direction
    lamp, rest, gloss = shade(scene, point, hit.normal, room.forward)
    start = room.origin + room.t * room.direction
    lit = (intersect_solid(scene, shape, scale, start, room.to_lamp).t > 1) | ~room.floor
    background = room.rest + room.lamp * lit
    floor, sky = room.floor & ~visible, room.sky & ~visible
    wall = ~(floor | sky | visible)
    parts = (background * floor, floor, background * wall, wall, (lamp + rest) * visible, visible, gloss * visible, sky)
    down = lanczos(pixels, room.t.shape[-1] // pixels).to(room.t)
    small = down @ torch.stack([part.to(room.t) for part in parts], 1) @ down.T
    small[:, [FLOOR_COVERAGE, WALL_COVERAGE, SOLID_COVERAGE]] = small[
        :, [FLOOR_COVERAGE, WALL_COVERAGE, SOLID_COVERAGE]
    ].clamp_min(0)
    colour = room.t.new_tensor(SKY) / 255
    return torch.cat([small[:, :SKY_RED], small[:, SKY_RED, None] * colour[:, None, None]], 1)


def blend_layers(
    layers: Real[Tensor, "*b l h w"], floor: Real[Tensor, "*b c"], wall: Tensor, solid: Tensor
) -> Real[Tensor, "*b c h w"]:
    """Blend layers into images with the given colours of floor, wall and solid.

    Each surface adds colour * light, but at most the fraction of the pixel that it covers. The sum is not clipped to
    the range of a pixel.
    """
    maps = layers.unsqueeze(-3).unbind(-4)
    floor, wall, solid = (colour[..., None, None] for colour in (floor, wall, solid))
    image = torch.minimum(floor * maps[FLOOR], maps[FLOOR_COVERAGE])
    image.add_(torch.minimum(wall * maps[WALL], maps[WALL_COVERAGE]))
    image.add_(torch.minimum((solid * maps[SOLID]).add_(maps[GLOSS]), maps[SOLID_COVERAGE]))
    return image.add_(layers[..., SKY_RED:, :, :])


def trace_room(scene: Scene, angle: Float[Tensor, " b"], oversample: int) -> Room:
    """Trace the rays of a camera at each angle (in radians) through the empty room.

    There are `oversample`^2 rays per pixel.
    """
    origin, direction, forward = camera_rays(scene, angle, PIXELS * oversample)
    x, y, z = direction
    side, back = (ROOM_HALF_SIDE * direction[:2].sign() - origin[:2]) / direction[:2]
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
    """Return the rays of a camera at each angle through the centres of its pixels.

    Returns:
        The origin of the rays (3, b, 1, 1), their directions (3, b, h, w), and the axis of the camera (3, b, 1, 1).
    """
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
    """Return the light of the lamp, all other light, and the gloss at each point.

    The lamp is a spotlight with brightness (n.l) (s.l)^spot_power. Here n is the normal, l is the direction to the
    lamp, and s is the axis of the lamp: the direction from the point (spot_x, spot_y) of the floor to the lamp. The
    other light is ambient light and a headlight, which shines along the axis of the camera. Gloss is constant where the
    lamp shines, with a smooth edge.
    """
    position = _lamp_position(scene, point)
    axis = position - position.new_tensor([scene.spot_x, scene.spot_y, 0]).view(3, 1, 1, 1)
    ray = position - point
    ray = ray / dot(ray, ray).sqrt()
    facing = dot(normal, ray)
    spot = dot(ray, axis / axis.norm()).clamp_min(0) ** scene.spot_power
    head = -dot(normal, forward)
    gloss = scene.gloss * (facing / scene.gloss_edge + 0.5).clamp(0, 1)
    return scene.lamp * facing.clamp_min(0) * spot, scene.ambient + scene.head * head.clamp_min(0), gloss


def texture(scene: Scene, point: Tensor, normal: Tensor, t: Tensor) -> Tensor:
    """Return the texture of floor and walls, by which their light is multiplied.

    The texture consists of faint hexagons and one dark stroke in every square tile. The sides of a tile, along its axes
    u and v, are as long as the walls are high. A tile is upright on the walls and rotated by a quarter turn on the
    floor. `shift` moves the texture along y. `hexagons` is the contrast of the hexagons. On the floor, this contrast is
    multiplied by exp(-(t / `fade`)^2), where t is the position along the ray. `blot` is the fraction by which the
    stroke is darker, (`blot_u`, `blot_v`) is its centre, (`stroke_u`, `stroke_v`) is the vector from its start to its
    end, and `stroke_width` is half of its width. The unit of the last three is the side of a tile.
    """
    x, y, z = point
    floor, y = normal[2] > 0, y + scene.shift
    u = torch.where(floor, -y, torch.where(normal[0] == 0, x, y * normal[0])) / scene.wall
    v = torch.where(floor, x, z - scene.wall / 2) / scene.wall
    waves = [(2 * math.pi * (5 * u + k * v)).cos() for k in (8, -8)]
    cells = waves[0] + waves[1] + (20 * math.pi * u).cos()
    strength = scene.hexagons * torch.where(floor, (-((t / scene.fade) ** 2)).exp(), 1.0)
    along = point.new_tensor([scene.stroke_u, scene.stroke_v]).view(2, 1, 1, 1)
    offset = torch.stack([u - scene.blot_u, v - scene.blot_v])
    offset = offset - offset.round()
    nearest = (dot(offset, along) / dot(along, along)).clamp(-0.5, 0.5)
    in_stroke = (offset - nearest * along).norm(dim=0) < scene.stroke_width
    pattern: Tensor = (1 + strength * cells) * (1 - scene.blot * in_stroke)
    return pattern


def intersect_solid(scene: Scene, shape: int, scale: Float[Tensor, " b"], origin: Tensor, direction: Tensor) -> Hit:
    """Intersect rays with the solid on the floor. Shape 0 is a cube, 1 a cylinder, 2 a sphere and 3 a capsule."""
    s = scale[:, None, None]
    if shape == 0:
        return intersect_cube(s * scene.cube, s * scene.cube_height, origin, direction)
    if shape == 1:
        return intersect_cylinder(s * scene.cylinder, s * scene.cylinder_height, origin, direction)
    if shape == 2:
        return intersect_sphere(s * scene.sphere, s * scene.sphere, origin, direction)
    return intersect_capsule(s * scene.capsule, s * scene.capsule_height, origin, direction)


def intersect_cube(half: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """Intersect rays with a box around the z axis."""
    low, high = torch.stack([-half, -half, 0 * half]), torch.stack([half, half, height])
    a, b = (low - origin) / direction, (high - origin) / direction
    near = torch.minimum(a, b)
    enter, leave = near.amax(0), torch.maximum(a, b).amin(0)
    normal = (near == enter) * -direction.sign()
    return Hit(_replace_misses((enter < leave) & (enter > 0), enter), normal)


def intersect_cylinder(radius: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """Intersect rays with an upright cylinder with flat ends."""
    enter, leave, real = _intersect_infinite_cylinder(radius, origin, direction)
    a, b = ((level - origin[2]) / direction[2] for level in (0 * height, height))
    flat = torch.minimum(a, b)
    t = torch.maximum(enter, flat)
    side = enter > flat
    outward = (origin[:2] + t * direction[:2]) / radius * side
    normal = torch.cat([outward, (-direction[2].sign() * ~side)[None]])
    inside = real & (t < torch.minimum(leave, torch.maximum(a, b))) & (t > 0)
    return Hit(_replace_misses(inside, t), normal)


def intersect_sphere(radius: Tensor, centre: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """Intersect rays with a sphere whose centre is at height `centre` on the z axis."""
    start = origin - torch.stack([0 * centre, 0 * centre, centre])
    enter, _, real = _roots(dot(direction, direction), dot(start, direction), dot(start, start) - radius**2)
    return Hit(_replace_misses(real & (enter > 0), enter), (start + enter * direction) / radius)


def intersect_capsule(radius: Tensor, height: Tensor, origin: Tensor, direction: Tensor) -> Hit:
    """Intersect rays with an upright cylinder with hemispherical ends."""
    enter, _, real = _intersect_infinite_cylinder(radius, origin, direction)
    x, y, z = origin + enter * direction
    best = _replace_misses(real & (enter > 0) & (z > radius) & (z < height - radius), enter)
    normal = torch.stack([x / radius, y / radius, 0 * z])
    for centre in (radius, height - radius):
        ball = intersect_sphere(radius, centre, origin, direction)
        normal = torch.where(ball.t < best, ball.normal, normal)
        best = torch.minimum(best, ball.t)
    return Hit(best, normal)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product over the first axis."""
    return (a * b).sum(0)


def lanczos(pixels: int, oversample: int, lobes: int = 3) -> Float[Tensor, "p q"]:
    """Return the matrix that downsamples `pixels` * `oversample` samples to `pixels` samples.

    The filter is sinc(x) sinc(x / lobes).
    """
    centre = torch.arange(pixels, dtype=torch.float64) + 0.5
    position = (torch.arange(pixels * oversample, dtype=torch.float64) + 0.5) / oversample
    x = position - centre[:, None]
    weight = torch.sinc(x) * torch.sinc(x / lobes) * (x.abs() < lobes)
    return weight / weight.sum(1, keepdim=True)


def _intersect_infinite_cylinder(radius: Tensor, origin: Tensor, direction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return where rays enter and leave an infinite cylinder around the z axis, and whether they hit it."""
    o, d = origin[:2], direction[:2]
    return _roots(dot(d, d), dot(o, d), dot(o, o) - radius**2)


def _roots(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two solutions of a t^2 + 2 b t + c = 0, and whether they are real."""
    inner = b * b - a * c
    root = inner.clamp_min(0).sqrt()
    return (-b - root) / a, (-b + root) / a, inner > 0


def _lamp_position(scene: Scene, like: Tensor) -> Tensor:
    return like.new_tensor([scene.lamp_x, scene.lamp_y, scene.lamp_z]).view(3, 1, 1, 1)


def _replace_misses(hit: Tensor, t: Tensor) -> Tensor:
    """Return `t`, with infinity for rays that do not hit the solid."""
    return torch.where(hit, t, math.inf)
