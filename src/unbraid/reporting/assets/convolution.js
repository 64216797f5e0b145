// Convolutions and transposed convolutions of images for decoder.js, with strides, padding, dilation and groups.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});

  // Along one axis, the outputs of a class use the same taps of the kernel. Output `first + n * step` reads one input
  // for each tap, starting with input `from + n * by`. A convolution has one class. A transposed convolution of stride s
  // has s classes. Taps that dilation skips are null.
  const classes = (node, axis, size) => {
    const [width, dilation, stride, padding] = [node.kernel[axis], node.dilation[axis], node.stride[axis], node.padding[axis]];
    const kernel = (width - 1) * dilation + 1;
    const tap = (k) => (k % dilation ? null : k / dilation);
    const total = node.shape[axis + 2];
    if (!node.transposed) {
      const taps = Array.from({ length: kernel }, (_, k) => tap(k));
      return [{ first: 0, step: 1, count: total, from: -padding, by: stride, taps }];
    }
    const list = [];
    for (let first = 0; first < Math.min(stride, total); first++) {
      const least = (first + padding) % stride;
      const taps = [];
      for (let k = least; k < kernel; k += stride) taps.unshift(tap(k));
      const from = (first + padding - least) / stride - taps.length + 1;
      list.push({ first, step: stride, count: Math.ceil((total - first) / stride), from, by: 1, taps });
    }
    return list;
  };

  /** How many inputs beyond each end of an axis of `size` inputs the classes read. */
  const margin = (list, size) => {
    const ends = list.map((one) => one.from + (one.count - 1) * one.by + one.taps.length - size);
    return [Math.max(0, ...list.map((one) => -one.from)), Math.max(0, ...ends)];
  };

  /** The weights of two classes in the order in which they are read: outputs in groups of four, then the rest singly. */
  const packed = (node, weight, rows, columns) => {
    const [kh, kw] = node.kernel;
    const at = (out, row, column, channel) => {
      if (row === null || column === null) return 0;
      const pair = node.transposed ? channel * node.wide + out : out * node.deep + channel;
      return weight[(pair * kh + row) * kw + column];
    };
    const list = new Float32Array(node.wide * node.deep * rows.length * columns.length);
    let n = 0;
    for (let out = 0; out < node.wide; ) {
      const width = out + 4 <= node.wide ? 4 : 1;
      for (const row of rows) {
        for (const column of columns) {
          for (let channel = 0; channel < node.deep; channel++) {
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
    const { span, rows, stride, out, plane } = g;
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
          const at = g.put + i * g.putBelow + j * g.putRight + c * plane;
          (y[at] = a0), (y[at + plane] = a1), (y[at + 2 * plane] = a2), (y[at + 3 * plane] = a3);
          const to = at + other * g.putRight;
          (y[to] = b0), (y[to + plane] = b1), (y[to + 2 * plane] = b2), (y[to + 3 * plane] = b3);
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
          const at = g.put + i * g.putBelow + j * g.putRight + c * g.plane;
          y[at] = a;
          (y[at + k1 * g.putRight] = b), (y[at + k2 * g.putRight] = d), (y[at + k3 * g.putRight] = e);
        }
      }
    }
  };

  /** Copy an image into the middle of a larger one of zeros, and store its channels last. */
  const enframe = (data, [channels, height, width], top, left, frame, stride) => {
    const size = height * width;
    for (let i = 0; i < height; i++) {
      let to = (i + top) * stride + left * channels;
      for (let pixel = i * width; pixel < (i + 1) * width; pixel++) {
        for (let c = 0; c < channels; c++) frame[to++] = data[pixel + c * size];
      }
    }
  };

  /** One step for each pair of classes: its weights, and where it reads from the frame and writes to the output. */
  const steps = (node, weight, rows, columns, top, left, stride) => {
    const [height, width] = node.shape.slice(2);
    return rows.flatMap((row) => columns.map((column) => ({
      weights: packed(node, weight, row.taps, column.taps),
      geometry: {
        out: node.wide, plane: height * width, stride, rows: row.taps.length, span: column.taps.length * node.deep,
        down: row.count, across: column.count, start: (row.from + top) * stride + (column.from + left) * node.deep,
        below: row.by * stride, right: column.by * node.deep,
        put: row.first * width + column.first, putBelow: row.step * width, putRight: column.step,
      },
    })));
  };

  /** The convolution of images (n, c, h, w). Each group is a separate convolution with `deep` input and `wide` output channels. */
  unbraid.convolution = (node, [x], out, read) => {
    const [count, , height, width] = x.shape, groups = node.groups;
    const rows = classes(node, 0, height), columns = classes(node, 1, width);
    const [top, bottom] = margin(rows, height), [left, right] = margin(columns, width);
    const stride = (width + left + right) * node.deep;
    const frame = new Float32Array((height + top + bottom) * stride);
    const taps = node.wide * node.deep * node.kernel[0] * node.kernel[1];
    const weight = read(node.weight, groups * taps, node.parts), bias = read(node.bias, groups * node.wide, node.parts);
    const parts = Array.from({ length: groups }, (_, g) => ({
      bias: bias.subarray(g * node.wide, (g + 1) * node.wide),
      list: steps(node, weight.subarray(g * taps, (g + 1) * taps), rows, columns, top, left, stride),
    }));
    const [given, made] = [node.deep * height * width, node.wide * node.shape[2] * node.shape[3]];
    return () => {
      for (let n = 0; n < count * groups; n++) {
        enframe(x.data.subarray(n * given, (n + 1) * given), [node.deep, height, width], top, left, frame, stride);
        const y = out.data.subarray(n * made, (n + 1) * made);
        for (const { weights, geometry } of parts[n % groups].list) {
          quads(frame, y, weights, parts[n % groups].bias, geometry);
          singles(frame, y, weights, parts[n % groups].bias, geometry);
        }
      }
    };
  };
})();
