// Maps of the unit square, and images warped by them: spaces/transformers.py and spaces/warp.py for one image.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const DEGREE = 12; // degree of the Taylor polynomial, as in spaces/expm.py

  // Affine maps and their generators are [a, b, c, d, e, f]: x' = a x + b y + c, y' = d x + e y + f.
  const IDENTITY = [1, 0, 0, 0, 1, 0];

  /** The product of two 3 x 3 matrices whose last rows are zero. */
  const compose = (p, q) => [
    p[0] * q[0] + p[1] * q[3], p[0] * q[1] + p[1] * q[4], p[0] * q[2] + p[1] * q[5],
    p[3] * q[0] + p[4] * q[3], p[3] * q[1] + p[4] * q[4], p[3] * q[2] + p[4] * q[5],
  ];

  /** The exponential of a generator minus the identity: a Taylor polynomial of a fraction of it, squared repeatedly. */
  const expm1 = (generator, squarings) => {
    const small = generator.map((x) => x / 2 ** squarings);
    let total = small.map((x) => x / DEGREE);
    for (let i = DEGREE - 1; i > 0; i--) {
      const next = compose(small, total);
      total = small.map((x, k) => (x + next[k]) / i);
    }
    for (let i = 0; i < squarings; i++) {
      const square = compose(total, total);
      total = total.map((x, k) => 2 * x + square[k]);
    }
    return total;
  };

  const added = (g) => IDENTITY.map((x, i) => x + g[i]);

  const decomposed = ([angle, shear, logX, logY, right, below]) => {
    const [cosine, sine, sx, sy] = [Math.cos(angle), Math.sin(angle), Math.exp(logX), Math.exp(logY)];
    return [sx * cosine, sy * (shear * cosine - sine), right, sx * sine, sy * (shear * sine + cosine), below];
  };

  /** The function c tanh(x / c), or the identity if c is null. */
  const boundedBy = (c) => (x) => (c === null ? x : c * Math.tanh(x / c));

  /** The flow of a linear field. Its stretches and shifts have one bound, and its rotation has another. */
  const diffeomorphic = ([across, upper, right, lower, down, below], { stretch, turn, squarings }) => {
    const bounded = boundedBy(stretch);
    const [shear, skew] = [bounded(0.5 * (upper + lower)), boundedBy(turn)(0.5 * (lower - upper))];
    const field = [bounded(across), shear - skew, bounded(right), shear + skew, bounded(down), bounded(below)];
    return added(expm1(field, squarings));
  };

  const AFFINE = { affine: added, affine_decomposed: decomposed, affine_diffeomorphic: diffeomorphic };

  /** The centres of the pixels of an image, row by row, as x, y, x, y, ... */
  const centres = (height, width) => {
    const points = new Float64Array(2 * height * width);
    for (let i = 0, n = 0; i < height; i++) {
      for (let j = 0; j < width; j++, n += 2) {
        points[n] = (j + 0.5) / width;
        points[n + 1] = (i + 0.5) / height;
      }
    }
    return points;
  };

  /** The images of the pixel centres under an affine map of the square from -1 to 1. */
  const affine = (transform, gamma, start) => {
    const points = new Float64Array(start.length);
    return () => {
      const [a, b, c, d, e, f] = AFFINE[transform.name](gamma, transform);
      const [right, below] = [0.5 * (c + 1 - a - b), 0.5 * (f + 1 - d - e)];
      for (let n = 0; n < start.length; n += 2) {
        points[n] = a * start[n] + b * start[n + 1] + right;
        points[n + 1] = d * start[n] + e * start[n + 1] + below;
      }
      return points;
    };
  };

  /** The affine map of one component of the velocity in each triangle of a rectangle (top, right, bottom, left). */
  const slopes = (corners, middle, nx, ny) => {
    const [tl, tr, br, bl] = corners;
    return [
      [nx * (tr - tl), ny * (2 * middle - tl - tr)],
      [nx * (tr + br - 2 * middle), ny * (br - tr)],
      [nx * (br - bl), ny * (br + bl - 2 * middle)],
      [nx * (2 * middle - tl - bl), ny * (bl - tl)],
    ];
  };

  /** What one integration step adds to a point in each triangle, six numbers per triangle, from velocities at vertices. */
  const table = ({ nx, ny, steps, squarings }, velocity, out) => {
    const first = (nx + 1) * (ny + 1);
    for (let row = 0, n = 0; row < ny; row++) {
      for (let column = 0; column < nx; column++) {
        const corner = row * (nx + 1) + column;
        const around = [corner, corner + 1, corner + nx + 2, corner + nx + 1];
        const centre = first + row * nx + column;
        const [x, y] = [(column + 0.5) / nx, (row + 0.5) / ny];
        const [ofX, ofY] = [0, 1].map((axis) =>
          slopes(around.map((vertex) => velocity[2 * vertex + axis]), velocity[2 * centre + axis], nx, ny));
        for (let k = 0; k < 4; k++, n += 6) {
          const [[a, b], [d, e]] = [ofX[k], ofY[k]];
          const [c, f] = [velocity[2 * centre] - a * x - b * y, velocity[2 * centre + 1] - d * x - e * y];
          out.set(expm1([a, b, c, d, e, f].map((value) => value / steps), squarings), n);
        }
      }
    }
  };

  /** The images of the pixel centres under the flow of a piecewise-affine field, step by step: cpab.integrate. */
  const cpab = (transform, velocity, start) => {
    const { nx, ny, steps } = transform;
    const points = new Float64Array(start.length);
    const moves = new Float64Array(24 * nx * ny);
    const within = (value, most) => (value > 0 ? (value < most ? Math.floor(value) : most) : 0);
    return () => {
      table(transform, velocity, moves);
      for (let n = 0; n < start.length; n += 2) {
        let x = start[n];
        let y = start[n + 1];
        for (let i = 0; i < steps; i++) {
          const column = within(x * nx, nx - 1);
          const row = within(y * ny, ny - 1);
          const across = x * nx - column;
          const down = y * ny - row;
          const low = across < down;
          const cell = 4 * (column + row * nx) + (low ? 2 : 0) + (low !== 1 - across < down ? 1 : 0);
          const k = 6 * cell;
          const right = moves[k] * x + moves[k + 1] * y + moves[k + 2];
          y += moves[k + 3] * x + moves[k + 4] * y + moves[k + 5];
          x += right;
        }
        points[n] = x;
        points[n + 1] = y;
      }
      return points;
    };
  };

  /** A function that reads the parameters of a map from `gamma` and returns where it takes the pixels of an image. */
  unbraid.mover = (transform, gamma, height, width) =>
    (transform.name === "cpab" ? cpab : affine)(transform, gamma, centres(height, width));

  /** Sample an image at points, with linear interpolation between pixels and zero beyond the outermost pixels. */
  unbraid.resample = (image, points, out, [channels, height, width]) => {
    const size = height * width;
    out.fill(0);
    for (let n = 0; n < size; n++) {
      const x = points[2 * n] * width - 0.5;
      const y = points[2 * n + 1] * height - 0.5;
      if (!(x > -1 && x < width && y > -1 && y < height)) continue;
      const left = Math.floor(x);
      const top = Math.floor(y);
      for (let i = Math.max(top, 0); i <= top + 1 && i < height; i++) {
        for (let j = Math.max(left, 0); j <= left + 1 && j < width; j++) {
          const weight = (1 - Math.abs(x - j)) * (1 - Math.abs(y - i));
          for (let c = 0; c < channels; c++) out[c * size + n] += weight * image[c * size + i * width + j];
        }
      }
    }
  };
})();
