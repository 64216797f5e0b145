// Knobs to explore a code with, as methods/controls.py describes them: from a few numbers to latents.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const SHORT = 1e-12; // squared length below which a vector has no direction, as in spaces/base.py
  const FAINT = 1e-6; // length that the other coordinates of a sphere keep, so that their direction is not forgotten

  const length = (values) => Math.hypot(...values);

  const latents = (arrays, knobs, example, out) => {
    for (let i = 0; i < knobs.length; i++) out[i] = knobs[i];
  };

  const directions = (arrays, knobs, example, out) => {
    for (let j = 0; j < out.length; j++) {
      let sum = arrays.rest[example][j];
      for (let i = 0; i < knobs.length; i++) sum += knobs[i] * arrays.directions[i][j];
      out[j] = sum;
    }
  };

  const sphere = (arrays, knobs, example, out) => {
    const size = length(knobs);
    const short = size * size < SHORT;
    for (let i = 0; i < knobs.length; i++) out[i] = short ? Number(i === 0) : knobs[i] / size;
  };

  const circles = (arrays, knobs, example, out) => {
    for (let i = 0; i < knobs.length; i++) {
      out[2 * i] = Math.cos(knobs[i]);
      out[2 * i + 1] = Math.sin(knobs[i]);
    }
  };

  const torus = (arrays, [ring, tube], example, out) => {
    const [c, a] = arrays.radii;
    const reach = c + a * Math.cos(tube);
    out[0] = reach * Math.cos(ring);
    out[1] = reach * Math.sin(ring);
    out[2] = a * Math.sin(tube);
  };

  /** The example's rotation, a 3 x 3 matrix row by row, after turns about x, y and z: R X Y Z. */
  const rotations = (arrays, knobs, example, out) => {
    for (let i = 0; i < 9; i++) out[i] = arrays.own[example][i];
    for (let axis = 0; axis < 3; axis++) {
      const [cosine, sine, one, two] = [Math.cos(knobs[axis]), Math.sin(knobs[axis]), (axis + 1) % 3, (axis + 2) % 3];
      for (let row = 0; row < 9; row += 3) {
        const [first, second] = [out[row + one], out[row + two]];
        out[row + one] = cosine * first + sine * second;
        out[row + two] = cosine * second - sine * first;
      }
    }
  };

  const KINDS = { latents, directions, sphere, circles, torus, rotations };

  /** Scale the other coordinates so that all together have length one, and keep the one that was moved. */
  const balance = (knobs, moved) => {
    const own = Math.min(1, Math.max(-1, knobs[moved]));
    const others = Array.from(knobs, (value, i) => (i === moved ? 0 : value));
    const size = length(others);
    if (size === 0) others[(moved + 1) % knobs.length] = 1;
    const scale = Math.max(FAINT, Math.sqrt(1 - own * own)) / (size || 1);
    for (let i = 0; i < knobs.length; i++) knobs[i] = i === moved ? own : others[i] * scale;
  };

  const count = { circles: (m) => 2 * m, torus: () => 3, rotations: () => 9 };

  /** `place(knobs, example, out)` fills latents; `moved(knobs, i)` adjusts the others after knob i was moved. */
  unbraid.controls = (spec) => {
    if (!Object.hasOwn(KINDS, spec.kind)) throw new RangeError(`There are no knobs of the kind ${spec.kind}.`);
    const knobs = spec.names.length;
    const size = spec.kind === "directions" ? spec.arrays.directions[0].length : (count[spec.kind]?.(knobs) ?? knobs);
    return {
      place(values, example, out = new Float32Array(size)) {
        KINDS[spec.kind](spec.arrays, values, example, out);
        return out;
      },
      moved(values, i) {
        if (spec.kind === "sphere") balance(values, i);
      },
    };
  };
})();
