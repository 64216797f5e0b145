// Controls convert the values of sliders to latents. methods/controls.py describes the kinds of controls.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const SHORT = 1e-12; // squared length below which the direction of a vector is undefined, as in spaces/manifold.py
  const SHORTEST = 1e-6; // minimum length of the other coordinates on a sphere, because at length 0 their direction would be lost

  const length = (values) => Math.hypot(...values);

  const latents = (arrays, controls, example, out) => {
    for (let i = 0; i < controls.length; i++) out[i] = controls[i];
  };

  /** The element of a list that is nearest to x, and the first of several. */
  const nearest = (list, x) => list.reduce((best, value) => (Math.abs(value - x) < Math.abs(best - x) ? value : best));

  const directions = (arrays, controls, example, out) => {
    for (let j = 0; j < out.length; j++) {
      let sum = arrays.rest[example][j];
      for (let i = 0; i < controls.length; i++) sum += controls[i] * arrays.directions[i][j];
      out[j] = arrays.values ? nearest(arrays.values[j], sum) : sum;
    }
  };

  const sphere = (arrays, controls, example, out) => {
    const size = length(controls);
    const short = size * size < SHORT;
    for (let i = 0; i < controls.length; i++) out[i] = short ? Number(i === 0) : controls[i] / size;
  };

  const circles = (arrays, controls, example, out) => {
    for (let i = 0; i < controls.length; i++) {
      out[2 * i] = Math.cos(controls[i]);
      out[2 * i + 1] = Math.sin(controls[i]);
    }
  };

  /** Circles have a cosine and a sine for each angle. Controls that are not angles are latents. */
  const cylinder = (arrays, controls, example, out) => {
    let j = 0;
    for (let i = 0; i < controls.length; i++) {
      out[j++] = arrays.is_angle[i] ? Math.cos(controls[i]) : controls[i];
      if (arrays.is_angle[i]) out[j++] = Math.sin(controls[i]);
    }
  };

  const torus = (arrays, [ring, tube], example, out) => {
    const [c, a] = arrays.radii;
    const reach = c + a * Math.cos(tube);
    out[0] = reach * Math.cos(ring);
    out[1] = reach * Math.sin(ring);
    out[2] = a * Math.sin(tube);
  };

  /** The example's rotation R, a 3 x 3 matrix row by row, times rotations about x, y and z: R X Y Z. */
  const rotations = (arrays, controls, example, out) => {
    for (let i = 0; i < 9; i++) out[i] = arrays.own[example][i];
    for (let axis = 0; axis < 3; axis++) {
      const [cosine, sine, one, two] = [Math.cos(controls[axis]), Math.sin(controls[axis]), (axis + 1) % 3, (axis + 2) % 3];
      for (let row = 0; row < 9; row += 3) {
        const [first, second] = [out[row + one], out[row + two]];
        out[row + one] = cosine * first + sine * second;
        out[row + two] = cosine * second - sine * first;
      }
    }
  };

  /** A control of size 0 is a latent. A control of size k > 0 selects one of k categories, with weights in between. */
  const categories = (arrays, controls, example, out) => {
    let j = 0;
    for (let i = 0; i < controls.length; i++) {
      if (arrays.sizes[i] === 0) out[j++] = controls[i];
      for (let k = 0; k < arrays.sizes[i]; k++) out[j++] = Math.max(0, 1 - Math.abs(controls[i] - k));
    }
  };

  const KINDS = { latents, directions, sphere, circles, cylinder, torus, rotations, categories };

  /** Keep the coordinate that was moved, and scale the others to make the length of the vector 1. */
  const balance = (controls, moved) => {
    const own = Math.min(1, Math.max(-1, controls[moved]));
    const others = Array.from(controls, (value, i) => (i === moved ? 0 : value));
    const size = length(others);
    if (size === 0) others[(moved + 1) % controls.length] = 1;
    const scale = Math.max(SHORTEST, Math.sqrt(1 - own * own)) / (size || 1);
    for (let i = 0; i < controls.length; i++) controls[i] = i === moved ? own : others[i] * scale;
  };

  const count = {
    circles: (m) => 2 * m,
    cylinder: (m, arrays) => m + arrays.is_angle.reduce((sum, value) => sum + value, 0),
    torus: () => 3,
    rotations: () => 9,
    categories: (m, arrays) => arrays.sizes.reduce((sum, size) => sum + Math.max(1, size), 0),
  };

  /** `toLatents(controls, example, out)` computes latents. `adjust(controls, i)` adjusts the other controls after control i was moved. */
  unbraid.controls = (spec) => {
    if (!Object.hasOwn(KINDS, spec.kind)) throw new RangeError(`There are no controls of the kind ${spec.kind}.`);
    const number = spec.names.length;
    const size = spec.kind === "directions" ? spec.arrays.directions[0].length : (count[spec.kind]?.(number, spec.arrays) ?? number);
    return {
      toLatents(values, example, out = new Float32Array(size)) {
        KINDS[spec.kind](spec.arrays, values, example, out);
        return out;
      },
      adjust(values, i) {
        if (spec.kind === "sphere") balance(values, i);
      },
    };
  };
})();
