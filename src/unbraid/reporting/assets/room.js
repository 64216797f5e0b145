// A solid on the floor of a room, ray-cast and blended as in src/unbraid/data/rendered/raycast.py and blending.py.
// unbraid.room(spec) -> render; render([floor hue, wall hue, solid hue, scale, shape, orientation]) -> Float32Array.
// Intersections of rays are computed in float32 and rounded at each step, as in torch. In float64, some rays along an
// edge would fall on its other side. Light varies smoothly, so it is computed in float64.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const PIXELS = 64;
  const WALLS = 10; // half the side of the room
  const f = Math.fround;
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);

  const hit = new Float32Array(4); // distance along the ray to a solid, infinite if it is missed, and the normal there
  const roots = new Float32Array(2); // where a ray enters and leaves a round body

  const dot2 = (ax, ay, bx, by) => f(f(ax * bx) + f(ay * by));
  const dot3 = (ax, ay, az, bx, by, bz) => f(dot2(ax, ay, bx, by) + f(az * bz));
  const along = (o, t, d) => f(o + f(t * d));

  function met(t, x, y, z) {
    hit[0] = t;
    hit[1] = x;
    hit[2] = y;
    hit[3] = z;
  }

  // The solutions of a t^2 + 2 b t + c = 0; returns false if they are not real.
  function solve(a, b, c) {
    const inner = f(f(b * b) - f(a * c));
    const root = f(Math.sqrt(Math.max(inner, 0)));
    roots[0] = f(-b - root) / a;
    roots[1] = f(root - b) / a;
    return inner > 0;
  }

  // An infinite upright cylinder.
  const around = (radius, ox, oy, dx, dy) =>
    solve(dot2(dx, dy, dx, dy), dot2(ox, oy, dx, dy), f(dot2(ox, oy, ox, oy) - f(radius * radius)));

  function cube(half, height, ox, oy, oz, dx, dy, dz) {
    const ax = f(f(-half - ox) / dx);
    const bx = f(f(half - ox) / dx);
    const ay = f(f(-half - oy) / dy);
    const by = f(f(half - oy) / dy);
    const az = f(-oz / dz);
    const bz = f(f(height - oz) / dz);
    const enter = Math.max(Math.min(ax, bx), Math.min(ay, by), Math.min(az, bz));
    const leave = Math.min(Math.max(ax, bx), Math.max(ay, by), Math.max(az, bz));
    const x = Math.min(ax, bx) === enter ? -Math.sign(dx) : 0;
    const y = Math.min(ay, by) === enter ? -Math.sign(dy) : 0;
    const z = Math.min(az, bz) === enter ? -Math.sign(dz) : 0;
    met(enter < leave && enter > 0 ? enter : Infinity, x, y, z);
  }

  function cylinder(radius, height, ox, oy, oz, dx, dy, dz) {
    const real = around(radius, ox, oy, dx, dy);
    const a = f(-oz / dz);
    const b = f(f(height - oz) / dz);
    const flat = Math.min(a, b);
    const t = Math.max(roots[0], flat);
    const inside = real && t < Math.min(roots[1], Math.max(a, b)) && t > 0 ? t : Infinity;
    if (roots[0] > flat) met(inside, along(ox, t, dx) / radius, along(oy, t, dy) / radius, 0);
    else met(inside, 0, 0, -Math.sign(dz));
  }

  function ball(radius, centre, ox, oy, oz, dx, dy, dz) {
    const z = f(oz - centre);
    const c = f(dot3(ox, oy, z, ox, oy, z) - f(radius * radius));
    const real = solve(dot3(dx, dy, dz, dx, dy, dz), dot3(ox, oy, z, dx, dy, dz), c);
    const t = roots[0];
    const x = along(ox, t, dx) / radius;
    met(real && t > 0 ? t : Infinity, x, along(oy, t, dy) / radius, along(z, t, dz) / radius);
  }

  const sphere = (radius, height, ox, oy, oz, dx, dy, dz) => ball(radius, radius, ox, oy, oz, dx, dy, dz);

  function capsule(radius, height, ox, oy, oz, dx, dy, dz) {
    const top = f(height - radius);
    const real = around(radius, ox, oy, dx, dy);
    const t = roots[0];
    const z = along(oz, t, dz);
    const side = real && t > 0 && z > radius && z < top ? t : Infinity;
    ball(radius, radius, ox, oy, oz, dx, dy, dz);
    const low = hit[0];
    ball(radius, top, ox, oy, oz, dx, dy, dz);
    if (low < side && low <= hit[0]) ball(radius, radius, ox, oy, oz, dx, dy, dz);
    else if (side <= hit[0]) met(side, along(ox, t, dx) / radius, along(oy, t, dy) / radius, 0);
  }

  const SOLIDS = [
    [cube, "cube", "cube_height"],
    [cylinder, "cylinder", "cylinder_height"],
    [sphere, "sphere", "sphere"],
    [capsule, "capsule", "capsule_height"],
  ];

  // A function that computes the light at a point with a normal: lamp, other light and gloss in an array.
  function lighting(scene) {
    const spot = [scene.lamp_x - scene.spot_x, scene.lamp_y - scene.spot_y, scene.lamp_z];
    const [sx, sy, sz] = spot.map((v) => v / Math.hypot(...spot));
    const light = new Float64Array(3);
    return (x, y, z, nx, ny, nz, forward) => {
      const rx = scene.lamp_x - x;
      const ry = scene.lamp_y - y;
      const rz = scene.lamp_z - z;
      const length = Math.sqrt(rx * rx + ry * ry + rz * rz);
      const facing = (nx * rx + ny * ry + nz * rz) / length;
      const beam = Math.max((sx * rx + sy * ry + sz * rz) / length, 0) ** scene.spot_power;
      const head = -(nx * forward[0] + ny * forward[1] + nz * forward[2]);
      light[0] = scene.lamp * Math.max(facing, 0) * beam;
      light[1] = scene.ambient + scene.head * Math.max(head, 0);
      light[2] = scene.gloss * clamp(facing / scene.gloss_edge + 0.5, 0, 1);
      return light;
    };
  }

  // The factor of the light on floor and walls: faint hexagons, and one dark stroke in every square tile.
  function texture(scene, x, y, z, nx, floor, t) {
    const back = f(y + f(scene.shift));
    const u = f((floor ? -back : nx === 0 ? x : back * nx) / f(scene.wall));
    const v = f((floor ? x : f(z - f(scene.wall / 2))) / f(scene.wall));
    const waves = Math.cos(2 * Math.PI * (5 * u + 8 * v)) + Math.cos(2 * Math.PI * (5 * u - 8 * v));
    const cells = waves + Math.cos(20 * Math.PI * u);
    const strength = scene.hexagons * (floor ? Math.exp(-((t / scene.fade) ** 2)) : 1);
    const wide = f(scene.stroke_u);
    const high = f(scene.stroke_v);
    let p = f(u - f(scene.blot_u));
    let q = f(v - f(scene.blot_v));
    p = f(p - Math.round(p));
    q = f(q - Math.round(q));
    const nearest = clamp(f(dot2(p, q, wide, high) / dot2(wide, high, wide, high)), -0.5, 0.5);
    p = f(p - f(nearest * wide));
    q = f(q - f(nearest * high));
    const inked = f(Math.sqrt(dot2(p, q, p, q))) < f(scene.stroke_width);
    return (1 + strength * cells) * (inked ? 1 - scene.blot : 1);
  }

  const FLOOR = 0;
  const WALL = 1;
  const SKY = 2;

  // The rays of a camera and their intersections with the empty room: one array per quantity.
  function room(spec, orientation) {
    const side = PIXELS * spec.oversample;
    const view = { side, camera: spec.cameras[orientation], kind: new Uint8Array(side * side) };
    const quantities = ["dx", "dy", "dz", "t", "x", "y", "z", "lamp", "rest"];
    for (const name of quantities) view[name] = new Float32Array(side * side);
    const step = Float32Array.from({ length: side }, (_, i) => f(f(f((i + 0.5) * 2) / side) - 1) / f(spec.scene.zoom));
    const light = lighting(spec.scene);
    for (let i = 0; i < side * side; i++) {
      aim(view, i, step[i % side], step[(i / side) | 0]);
      look(spec.scene, light, view, i);
    }
    return view;
  }

  function aim(view, i, across, down) {
    const [, axis, right, up] = view.camera;
    view.dx[i] = f(axis[0] + f(across * right[0])) - f(down * up[0]);
    view.dy[i] = f(axis[1] + f(across * right[1])) - f(down * up[1]);
    view.dz[i] = f(axis[2] + f(across * right[2])) - f(down * up[2]);
  }

  function look(scene, light, view, i) {
    const [[ox, oy, oz], forward] = view.camera;
    const dx = view.dx[i];
    const dy = view.dy[i];
    const dz = view.dz[i];
    const side = f(f(WALLS * Math.sign(dx) - ox) / dx);
    const back = f(f(WALLS * Math.sign(dy) - oy) / dy);
    const far = Math.min(side, back);
    const top = along(oz, far, dz);
    const floor = top < 0;
    const t = floor ? f(-oz / dz) : far;
    const nx = side < back && !floor ? -Math.sign(dx) : 0;
    const ny = side < back || floor ? 0 : -Math.sign(dy);
    view.kind[i] = floor ? FLOOR : top > f(scene.wall) ? SKY : WALL;
    view.t[i] = t;
    const x = (view.x[i] = along(ox, t, dx));
    const y = (view.y[i] = along(oy, t, dy));
    const z = (view.z[i] = along(oz, t, dz));
    const pattern = texture(scene, x, y, z, nx, floor, t);
    const at = light(x, y, z, nx, ny, floor ? 1 : 0, forward);
    view.lamp[i] = at[0] * pattern;
    view.rest[i] = at[1] * pattern;
  }

  // Compute maps with one solid in the room: light and fraction of the pixel for floor, wall and solid, then gloss and sky.
  function maps(spec, view, shape, scale) {
    const { scene } = spec;
    const [solid, width, height] = SOLIDS[shape];
    const size = [f(scale * f(scene[width])), f(scale * f(scene[height]))];
    const [origin, forward] = view.camera;
    const light = lighting(scene);
    const parts = (view.parts ??= Array.from({ length: 8 }, () => new Float32Array(view.t.length)));
    parts.forEach((part) => part.fill(0));
    for (let i = 0; i < view.t.length; i++) {
      const dx = view.dx[i];
      const dy = view.dy[i];
      const dz = view.dz[i];
      solid(size[0], size[1], origin[0], origin[1], origin[2], dx, dy, dz);
      if (hit[0] < view.t[i]) {
        const t = hit[0];
        const [x, y, z] = [along(origin[0], t, dx), along(origin[1], t, dy), along(origin[2], t, dz)];
        const at = light(x, y, z, hit[1], hit[2], hit[3], forward);
        parts[4][i] = at[0] + at[1];
        parts[5][i] = 1;
        parts[6][i] = at[2];
      } else if (view.kind[i] === SKY) {
        parts[7][i] = 1;
      } else {
        const lit = view.kind[i] === WALL || !shaded(scene, solid, size, view, i);
        parts[2 * view.kind[i]][i] = view.rest[i] + (lit ? view.lamp[i] : 0);
        parts[2 * view.kind[i] + 1][i] = 1;
      }
    }
    return parts;
  }

  // Whether the solid is between a point of the room and the lamp.
  function shaded(scene, solid, size, view, i) {
    const x = view.x[i];
    const y = view.y[i];
    const z = view.z[i];
    solid(size[0], size[1], x, y, z, f(f(scene.lamp_x) - x), f(f(scene.lamp_y) - y), f(f(scene.lamp_z) - z));
    return hit[0] <= 1;
  }

  // For each pixel of a line, its first sample and the weights sinc(x) sinc(x / 3) of its samples.
  function filter(oversample) {
    const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
    return Array.from({ length: PIXELS }, (_, pixel) => {
      const places = Array.from({ length: PIXELS * oversample }, (_, i) => (i + 0.5) / oversample - pixel - 0.5);
      const first = places.findIndex((x) => x > -3);
      const weights = places.filter((x) => Math.abs(x) < 3).map((x) => sinc(x) * sinc(x / 3));
      const total = weights.reduce((a, b) => a + b);
      return { first, weights: Float32Array.from(weights, (w) => w / total) };
    });
  }

  // Reduce each line of a map and transpose the map; done twice, this reduces both directions.
  function shrink(map, rows, taps) {
    const columns = map.length / rows;
    const small = new Float32Array(PIXELS * rows);
    for (let row = 0; row < rows; row++) {
      if (empty(map, row * columns, (row + 1) * columns)) continue;
      for (let pixel = 0; pixel < PIXELS; pixel++) {
        const { first, weights } = taps[pixel];
        const start = row * columns + first;
        let sum = 0;
        for (let k = 0; k < weights.length; k++) sum += weights[k] * map[start + k];
        small[pixel * rows + row] = sum;
      }
    }
    return small;
  }

  function empty(map, from, to) {
    for (let i = from; i < to; i++) if (map[i] !== 0) return false;
    return true;
  }

  // Reduce the maps to the size of the image, as integers. Negative fractions become 0. Light is stored for a colour value
  // of one fifth, because colours are integers in units of one fifth.
  function layers(spec, view, shape, scale, taps) {
    return maps(spec, view, shape, scale).map((map, i) => {
      const small = shrink(shrink(map, view.side, taps), PIXELS, taps);
      if (i === 7) return small;
      const share = i === 1 || i === 3 || i === 5;
      const unit = (255 * spec.grain) / (i === 0 || i === 2 || i === 4 ? spec.fifths : 1);
      const whole = new Int16Array(small.length);
      for (let p = 0; p < whole.length; p++) whole[p] = Math.round((share ? Math.max(small[p], 0) : small[p]) * unit);
      return whole;
    });
  }

  // Compute the image for three colours. Each surface shows colour times light, up to the fraction of the pixel that it covers.
  function blend(spec, maps, floor, wall, solid) {
    const area = PIXELS * PIXELS;
    const image = new Float32Array(3 * area);
    for (let c = 0; c < 3; c++) {
      const sky = spec.sky[c] * spec.grain;
      for (let p = 0; p < area; p++) {
        const below = Math.min(floor[c] * maps[0][p], maps[1][p]) + Math.min(wall[c] * maps[2][p], maps[3][p]);
        const object = Math.min(solid[c] * maps[4][p] + maps[6][p], maps[5][p]);
        const total = below + object + Math.round(maps[7][p] * sky);
        const even = total + ((total >> 5) & 1) + 15; // rounds halves to even
        image[c * area + p] = clamp(even >> 5, 0, 255) / 255;
      }
    }
    return image;
  }

  unbraid.room = (spec) => {
    const taps = filter(spec.oversample);
    let turned = -1;
    let cached = "";
    let view;
    let maps;
    return ([floor, wall, solid, scale, shape, orientation]) => {
      if (turned !== orientation) view = room(spec, (turned = orientation));
      const name = `${scale} ${shape} ${orientation}`;
      if (cached !== name) maps = layers(spec, view, shape, spec.scales[scale], taps);
      cached = name;
      return blend(spec, maps, spec.colours[floor], spec.colours[wall], spec.colours[solid]);
    };
  };
})();
