// A trained decoder in plain JavaScript. It converts a program of reporting/program.py to a function from latents to images.
//
// Every op is compiled once to a function that reads one fixed buffer and fills another. A call therefore allocates no
// memory. Convolutions store channels last, and dense layers use the order of torch. Sums are in double precision.
// Programs that warp images need warp.js.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

  /** Little-endian float16 numbers as float32. */
  const half = (bytes) => {
    const values = new Float32Array(bytes.length >> 1);
    for (let i = 0; i < values.length; i++) {
      const bits = bytes[2 * i] | (bytes[2 * i + 1] << 8);
      const exponent = (bits >> 10) & 31;
      const fraction = bits & 1023;
      const size = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
      values[i] = bits & 0x8000 ? -size : size;
    }
    return values;
  };

  /** Read a tensor from the weights: the sum of `parts` tensors of the same size that follow each other, or zeros. */
  const reader = (values) => (offset, size, parts = 1) => {
    const tensor = new Float32Array(size);
    for (let part = 0; offset !== null && part < parts; part++) {
      for (let i = 0; i < size; i++) tensor[i] += values[offset + part * size + i];
    }
    return tensor;
  };

  // A value is the output of an op: data, its shape, and whether its channels are last (images only).
  const flat = (shape) => ({ data: new Float32Array(product(shape)), shape, last: false });

  /** The value in the order of torch, and the function that brings it there. */
  const ordered = (value) => {
    const { data, shape } = value;
    if (!value.last || shape[0] === 1) return { value: { ...value, last: false }, run: null };
    const [channels, size] = [shape[0], shape[1] * shape[2]];
    const out = flat(shape);
    const run = () => {
      for (let c = 0; c < channels; c++) {
        for (let i = 0; i < size; i++) out.data[c * size + i] = data[i * channels + c];
      }
    };
    return { value: out, run };
  };

  const pointwise = (apply) => (op, value) => {
    const { data } = value;
    const run = () => {
      for (let i = 0; i < data.length; i++) data[i] = apply(data[i], op);
    };
    return { value, run };
  };

  const rectified = (op, value) => {
    const { data } = value;
    const slope = op.slope ?? 0;
    const run = () => {
      for (let i = 0; i < data.length; i++) if (data[i] < 0) data[i] *= slope;
    };
    return { value, run };
  };

  /** y = W x + b, four outputs at a time. */
  const linear = (op, given, read) => {
    const { value, run: order } = ordered(given);
    const [weight, bias] = [read(op.weight, op.in * op.out, op.parts), read(op.bias, op.out, op.parts)];
    const [x, width, wide, out] = [value.data, op.in, op.out - (op.out % 4), flat([op.out])];
    const y = out.data;
    const run = () => {
      if (order) order();
      for (let i = 0; i < wide; i += 4) {
        let [a, b, c, d] = [bias[i], bias[i + 1], bias[i + 2], bias[i + 3]];
        for (let j = 0, p = i * width; j < width; j++, p++) {
          const value = x[j];
          a += weight[p] * value;
          b += weight[p + width] * value;
          c += weight[p + 2 * width] * value;
          d += weight[p + 3 * width] * value;
        }
        (y[i] = a), (y[i + 1] = b), (y[i + 2] = c), (y[i + 3] = d);
      }
      for (let i = wide; i < op.out; i++) {
        let sum = bias[i];
        for (let j = 0; j < width; j++) sum += weight[i * width + j] * x[j];
        y[i] = sum;
      }
    };
    return { value: out, run };
  };

  const reshape = (op, given) => {
    const { value, run } = ordered(given);
    return { value: { data: value.data, shape: op.shape, last: false }, run };
  };

  // Convolutions. Along one axis, the outputs of a class use the same taps of the kernel: output first + n * step reads
  // the inputs from + n * by and following, one for each tap. A convolution has one class, a transposed convolution of
  // stride s has s classes.
  const classes = (op, axis, size) => {
    const [kernel, stride, padding] = [op.kernel[axis], op.stride[axis], op.padding[axis]];
    if (op.op === "conv") {
      const count = Math.floor((size + 2 * padding - kernel) / stride) + 1;
      const taps = Array.from({ length: kernel }, (_, k) => k);
      return { total: count, list: [{ first: 0, step: 1, count, from: -padding, by: stride, taps }] };
    }
    const total = (size - 1) * stride - 2 * padding + kernel + op.output_padding[axis];
    const list = [];
    for (let first = 0; first < Math.min(stride, total); first++) {
      const least = (first + padding) % stride;
      const taps = [];
      for (let k = least; k < kernel; k += stride) taps.unshift(k);
      const from = (first + padding - least) / stride - taps.length + 1;
      list.push({ first, step: stride, count: Math.ceil((total - first) / stride), from, by: 1, taps });
    }
    return { total, list };
  };

  /** How many inputs beyond each end of an axis of `size` inputs the classes read. */
  const margin = (list, size) => {
    const ends = list.map((one) => one.from + (one.count - 1) * one.by + one.taps.length - size);
    return [Math.max(0, ...list.map((one) => -one.from)), Math.max(0, ...ends)];
  };

  /** The weights of two classes in the order in which they are read: outputs in groups of four, then the rest singly. */
  const packed = (op, weight, rows, columns) => {
    const [kh, kw] = op.kernel;
    const at = (out, row, column, channel) => {
      const pair = op.op === "conv" ? out * op.in + channel : channel * op.out + out;
      return weight[(pair * kh + row) * kw + column];
    };
    const list = new Float32Array(op.out * op.in * rows.length * columns.length);
    let n = 0;
    for (let out = 0; out < op.out; ) {
      const width = out + 4 <= op.out ? 4 : 1;
      for (const row of rows) {
        for (const column of columns) {
          for (let channel = 0; channel < op.in; channel++) {
            for (let i = 0; i < width; i++) list[n++] = at(out + i, row, column, channel);
          }
        }
      }
      out += width;
    }
    return list;
  };

  /** Compute four output channels of two pixels at a time. In a row of odd length the last pixel is computed twice. */
  const quads = (x, y, w, bias, g) => {
    const { span, rows, stride, out } = g;
    for (let c = 0; c + 4 <= out; c += 4) {
      const [z0, z1, z2, z3] = [bias[c], bias[c + 1], bias[c + 2], bias[c + 3]];
      for (let i = 0; i < g.down; i++) {
        for (let j = 0; j < g.across; j += 2) {
          const other = j + 1 < g.across ? 1 : 0;
          const right = other * g.right;
          let a0 = z0, a1 = z1, a2 = z2, a3 = z3, b0 = z0, b1 = z1, b2 = z2, b3 = z3;
          let p = c * rows * span;
          for (let r = 0; r < rows; r++) {
            let u = g.start + i * g.below + j * g.right + r * stride;
            for (const end = u + span; u < end; u++) {
              const s = x[u], t = x[u + right], w0 = w[p], w1 = w[p + 1], w2 = w[p + 2], w3 = w[p + 3];
              (a0 += s * w0), (a1 += s * w1), (a2 += s * w2), (a3 += s * w3);
              (b0 += t * w0), (b1 += t * w1), (b2 += t * w2), (b3 += t * w3);
              p += 4;
            }
          }
          const at = g.put + i * g.putBelow + j * g.putRight + c;
          (y[at] = a0), (y[at + 1] = a1), (y[at + 2] = a2), (y[at + 3] = a3);
          const to = at + other * g.putRight;
          (y[to] = b0), (y[to + 1] = b1), (y[to + 2] = b2), (y[to + 3] = b3);
        }
      }
    }
  };

  /** Compute the remaining output channels one at a time, for four pixels at a time. */
  const singles = (x, y, w, bias, g) => {
    const { span, rows, stride, out } = g;
    for (let c = out - (out % 4); c < out; c++) {
      for (let i = 0; i < g.down; i++) {
        for (let j = 0; j < g.across; j += 4) {
          const left = g.across - 1 - j;
          const k1 = Math.min(1, left), k2 = Math.min(2, left), k3 = Math.min(3, left);
          const r1 = k1 * g.right, r2 = k2 * g.right, r3 = k3 * g.right;
          let a = bias[c], b = a, d = a, e = a;
          let p = c * rows * span;
          for (let r = 0; r < rows; r++) {
            let u = g.start + i * g.below + j * g.right + r * stride;
            for (const end = u + span; u < end; u++) {
              const value = w[p++];
              (a += x[u] * value), (b += x[u + r1] * value), (d += x[u + r2] * value), (e += x[u + r3] * value);
            }
          }
          const at = g.put + i * g.putBelow + j * g.putRight + c;
          y[at] = a;
          (y[at + k1 * g.putRight] = b), (y[at + k2 * g.putRight] = d), (y[at + k3 * g.putRight] = e);
        }
      }
    }
  };

  /** A function that copies an image into the middle of a larger one of zeros, with channels last. */
  const framed = (value, top, left, frame, stride) => {
    const { data, shape, last } = value;
    const [channels, height, width] = shape;
    const [byChannel, byPixel] = last ? [1, channels] : [height * width, 1];
    return () => {
      for (let i = 0; i < height; i++) {
        let to = (i + top) * stride + left * channels;
        for (let j = 0; j < width; j++) {
          const pixel = (i * width + j) * byPixel;
          for (let c = 0; c < channels; c++) frame[to++] = data[pixel + c * byChannel];
        }
      }
    };
  };

  const convolution = (op, value, read) => {
    const [, height, width] = value.shape;
    const [down, across] = [classes(op, 0, height), classes(op, 1, width)];
    const [top, bottom] = margin(down.list, height);
    const [left, right] = margin(across.list, width);
    const stride = (width + left + right) * op.in;
    const frame = new Float32Array((height + top + bottom) * stride);
    const fill = framed(value, top, left, frame, stride);
    const weight = read(op.weight, op.in * op.out * product(op.kernel), op.parts);
    const bias = read(op.bias, op.out, op.parts);
    const out = { ...flat([op.out, down.total, across.total]), last: true };
    const steps = down.list.flatMap((row) => across.list.map((column) => ({
      weights: packed(op, weight, row.taps, column.taps),
      geometry: {
        out: op.out, stride, rows: row.taps.length, span: column.taps.length * op.in, down: row.count,
        across: column.count, start: (row.from + top) * stride + (column.from + left) * op.in,
        below: row.by * stride, right: column.by * op.in,
        put: (row.first * across.total + column.first) * op.out,
        putBelow: row.step * across.total * op.out, putRight: column.step * op.out,
      },
    })));
    const run = () => {
      fill();
      for (const { weights, geometry } of steps) {
        quads(frame, out.data, weights, bias, geometry);
        singles(frame, out.data, weights, bias, geometry);
      }
    };
    return { value: out, run };
  };

  /** The mean of the outputs of the inner ops for z and for -z. */
  const even = (op, value, read) => {
    const inner = program(op.ops, flat(value.shape), read);
    const out = flat(inner.out.shape);
    const run = () => {
      inner.input.set(value.data);
      inner.run();
      out.data.set(inner.out.data);
      for (let i = 0; i < value.data.length; i++) inner.input[i] = -value.data[i];
      inner.run();
      for (let i = 0; i < out.data.length; i++) out.data[i] = 0.5 * (out.data[i] + inner.out.data[i]);
    };
    return { value: out, run };
  };

  /** The image of the first latents, sampled where a map takes its pixels; the other latents give the map. */
  const warp = (op, value, read) => {
    const image = program(op.image, flat([op.split]), read);
    const map = program(op.map, flat([value.data.length - op.split]), read);
    const out = flat(image.out.shape);
    const move = unbraid.mover(op.transform, map.out.data, out.shape[1], out.shape[2]);
    const run = () => {
      for (let i = 0; i < value.data.length; i++) {
        if (i < op.split) image.input[i] = value.data[i];
        else map.input[i - op.split] = value.data[i];
      }
      image.run();
      map.run();
      unbraid.resample(image.out.data, move(), out.data, out.shape);
    };
    return { value: out, run };
  };

  const sigmoid = pointwise((x) => 1 / (1 + Math.exp(-x)));
  const OPS = {
    linear, reshape, even, warp, sigmoid,
    conv: convolution,
    conv_transpose: convolution,
    relu: rectified,
    leaky_relu: rectified,
    identity: (op, value) => ({ value, run: null }),
    tanh: pointwise(Math.tanh),
    silu: pointwise((x) => x / (1 + Math.exp(-x))),
    elu: pointwise((x, op) => (x > 0 ? x : op.alpha * Math.expm1(x))),
    softplus: pointwise((x, op) => (x * op.beta > op.threshold ? x : Math.log1p(Math.exp(x * op.beta)) / op.beta)),
  };

  /** Compile a list of ops that read one buffer and fill another. */
  const program = (ops, input, read) => {
    let value = input;
    const steps = [];
    const add = (compiled) => {
      value = compiled.value;
      if (compiled.run) steps.push(compiled.run);
    };
    for (const op of ops) {
      if (!Object.hasOwn(OPS, op.op)) throw new RangeError(`This page cannot run the op ${op.op}. Write the page again with this version of unbraid.`);
      add(OPS[op.op](op, value, read));
    }
    add(ordered(value));
    const run = () => {
      for (const step of steps) step();
    };
    return { input: input.data, out: value, run };
  };

  /** decode(z) returns the mean of an image, c * h * w numbers, in an array that the next call overwrites. */
  unbraid.decoder = (spec, bytes) => {
    const whole = program([...spec.ops, { op: spec.output }], flat([spec.latents]), reader(half(bytes)));
    return (z) => {
      if (z.length !== spec.latents) throw new RangeError(`A code has ${spec.latents} numbers. Got ${z.length}.`);
      whole.input.set(z);
      whole.run();
      return whole.out.data;
    };
  };

  /** Measure the number of calls of a decoder per second, for a number of seconds, with different latents in each call. */
  unbraid.pace = (decode, latents, seconds) => {
    const z = new Float32Array(latents);
    const start = performance.now();
    let calls = 0;
    for (let now = start; now - start < 1000 * seconds; now = performance.now(), calls++) {
      for (let i = 0; i < latents; i++) z[i] = Math.sin(calls + i);
      decode(z);
    }
    return (1000 * calls) / (performance.now() - start);
  };

  unbraid.half = half;
})();
