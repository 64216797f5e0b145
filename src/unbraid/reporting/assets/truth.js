// The true image of any factor values, rendered as in src/unbraid/data/rendered.
// unbraid.truth(spec) -> render; render(factors) -> Float32Array of c * h * w pixels in [0, 1].
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});

  // Sprites: data/rendered/raster.py. Vertices are integer multiples of 1/256 px, so every machine fills the same pixels.

  const polygon = (count, point) => Float64Array.from({ length: 2 * count }, (_, i) => point(i >> 1)[i & 1]);

  const SQUARE = [[-9.6, -9.6], [9.6, -9.6], [9.6, 9.6], [-9.6, 9.6]];

  const OUTLINES = [
    polygon(4, (i) => SQUARE[i]),
    polygon(100, (i) => {
      const t = ((2 * Math.PI) / 100) * i;
      return [9.6 * 1.33 * Math.cos(t), (9.6 / 1.33) * Math.sin(t)];
    }),
    polygon(150, (i) => {
      const t = ((2 * Math.PI) / 150) * i;
      const y = 13 * Math.cos(t) - 5 * Math.cos(2 * t) - 2 * Math.cos(3 * t) - Math.cos(4 * t);
      return [9.6 * Math.sin(t) ** 3, (-19.2 / 29) * y - 1.44];
    }),
  ];

  const fixed = (v) => Math.floor(256 * v + 0.5);

  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);

  // The vertices of a sprite in units of 1/256 px, as x, y, x, y, ...
  function spriteVertices(spec, [shape, scale, angle, x, y]) {
    const outline = OUTLINES[shape];
    const cos = Math.cos(spec.angles[angle]);
    const sin = Math.sin(spec.angles[angle]);
    const size = spec.scales[scale];
    const vertices = new Float64Array(outline.length);
    for (let i = 0; i < outline.length; i += 2) {
      const a = size * outline[i];
      const b = size * outline[i + 1];
      vertices[i] = fixed(a * cos + b * sin + spec.x[x]);
      vertices[i + 1] = fixed(b * cos - a * sin + spec.y[y]);
    }
    return vertices;
  }

  // Mark, in each row of pixels that an edge crosses, the first pixel whose centre is at or beyond the edge.
  function cross(marks, pixels, x0, y0, x1, y1) {
    const first = clamp(Math.floor((y0 - 128) / 256) + 1, 0, pixels);
    const following = clamp(Math.floor((y1 - 128) / 256) + 1, 0, pixels);
    const height = y1 - y0;
    for (let row = Math.min(first, following); row < Math.max(first, following); row++) {
      const along = 256 * row + 128 - y0;
      const column = Math.ceil(((x0 - 128) * height + along * (x1 - x0)) / (256 * height));
      marks[row * (pixels + 1) + clamp(column, 0, pixels)] ^= 1;
    }
  }

  // The pixels inside a sprite by the even-odd rule, as a Uint8Array of 0 and 1.
  function silhouette(spec, factors) {
    const { pixels } = spec;
    const vertices = spriteVertices(spec, factors);
    const marks = new Uint8Array(pixels * (pixels + 1));
    for (let i = 0; i < vertices.length; i += 2) {
      const next = (i + 2) % vertices.length;
      cross(marks, pixels, vertices[i], vertices[i + 1], vertices[next], vertices[next + 1]);
    }
    const image = new Uint8Array(pixels * pixels);
    for (let row = 0; row < pixels; row++) {
      for (let column = 0, inside = 0; column < pixels; column++) {
        inside ^= marks[row * (pixels + 1) + column];
        image[row * pixels + column] = inside;
      }
    }
    return image;
  }

  // Random numbers of an example: splitmix64 as in noise.py, with the keys of data/rendered/painted.py.

  const GAMMA = 0x9e3779b97f4a7c15n;
  const word = (n) => BigInt.asUintN(64, n);

  function mix(n) {
    n = word((n ^ (n >> 30n)) * 0xbf58476d1ce4e5b9n);
    n = word((n ^ (n >> 27n)) * 0x94d049bb133111ebn);
    return n ^ (n >> 31n);
  }

  // The first random bytes of an example; `count` must be a multiple of 8.
  function randomBytes(index, count) {
    const key = mix(mix(word(BigInt(index + 1) * GAMMA)) ^ 1n);
    const bytes = new DataView(new ArrayBuffer(count));
    for (let i = 0, step = key; i < count; i += 8, step = word(step + GAMMA)) bytes.setBigUint64(i, mix(step), true);
    return new Uint8Array(bytes.buffer);
  }

  const PAINTS = {
    white: (sprite) => Float32Array.from(sprite),
    colour(sprite, index) {
      const colour = randomBytes(index, 8);
      const area = sprite.length;
      const image = new Float32Array(3 * area);
      for (let i = 0; i < image.length; i++) image[i] = (sprite[i % area] * (colour[(i / area) | 0] | 128)) / 255;
      return image;
    },
    noise(sprite, index) {
      const behind = randomBytes(index, 3 * sprite.length);
      return Float32Array.from(behind, (level, i) => (sprite[i % sprite.length] ? 1 : level / 255));
    },
  };

  function sprites(spec) {
    const paint = PAINTS[spec.paint];
    return (factors) => paint(silhouette(spec, factors), gridIndex(factors, spec.sizes));
  }

  // The index of an example in the grid; the last factor changes fastest.
  const gridIndex = (factors, sizes) => sizes.reduce((index, size, i) => index * size + factors[i], 0);

  // A solid in a room: unbraid.room in room.js.

  const KINDS = { sprites, room: (spec) => unbraid.room(spec) };

  unbraid.truth = (spec) => {
    const draw = KINDS[spec.kind](spec);
    return (factors) => {
      spec.sizes.forEach((size, i) => {
        if (!(Number.isInteger(factors[i]) && factors[i] >= 0 && factors[i] < size)) {
          throw new RangeError(`Factor ${i} must be a whole number from 0 to ${size - 1}. Got ${factors[i]} instead.`);
        }
      });
      return draw(factors);
    };
  };
})();
