// The operators of decoder.js except convolutions. Tensors are stored row by row, as in torch. Sums are in double precision.
//
// An operator takes a node of the graph, its inputs { data, shape }, its output, and a function that reads weights. It
// returns a function that computes the output. An input of "map" may also be a number.
"use strict";
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

  /** The strides of a tensor that is stored row by row. */
  const strides = (shape) => shape.map((_, i) => product(shape.slice(i + 1)));

  /** For each element of a tensor of this shape, in order, the sum of `offset` and its indices times the strides. */
  const offsets = (shape, steps, offset = 0) => {
    const list = new Int32Array(product(shape));
    list[0] = offset;
    for (let axis = shape.length - 1, done = 1; axis >= 0; done *= shape[axis], axis--) {
      for (let i = done; i < done * shape[axis]; i++) list[i] = list[i - done] + steps[axis];
    }
    return list;
  };

  /** Where a tensor is read for each element of a larger shape. Axes of size 1 are repeated. */
  const repeated = (from, to) => {
    const steps = strides(from).map((step, i) => (from[i] === 1 ? 0 : step));
    return offsets(to, [...Array(to.length - from.length).fill(0), ...steps]);
  };

  /** erf(x) with an error of at most 1.5e-7: formula 7.1.26 of Abramowitz and Stegun. */
  const erf = (x) => {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return Math.sign(x) * (1 - tail * Math.exp(-x * x));
  };
  const even = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

  const FUNCTIONS = {
    abs: Math.abs, acos: Math.acos, acosh: Math.acosh, asin: Math.asin, asinh: Math.asinh, atan: Math.atan, atanh: Math.atanh,
    ceil: Math.ceil, cos: Math.cos, cosh: Math.cosh, exp: Math.exp, expm1: Math.expm1, floor: Math.floor, log: Math.log,
    log10: Math.log10, log1p: Math.log1p, log2: Math.log2, round: even, sign: Math.sign, sin: Math.sin, sinh: Math.sinh,
    sqrt: Math.sqrt, tan: Math.tan, tanh: Math.tanh, trunc: Math.trunc, erf,
    neg: (x) => -x,
    reciprocal: (x) => 1 / x,
    rsqrt: (x) => 1 / Math.sqrt(x),
    sigmoid: (x) => 1 / (1 + Math.exp(-x)),
    relu: (x) => (x > 0 ? x : 0),
    leaky_relu: (x, slope) => (x > 0 ? x : slope * x),
    elu: (x, alpha, scale, inner) => (x > 0 ? scale * x : scale * alpha * Math.expm1(inner * x)),
    gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
    gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
    clamp: (x, low, high) => Math.min(Math.max(x, low), high),
    logical_not: (x) => (x === 0 ? 1 : 0),
    add: (x, y) => x + y,
    sub: (x, y) => x - y,
    mul: (x, y) => x * y,
    div: (x, y) => x / y,
    pow: (x, y) => x ** y,
    atan2: (y, x) => Math.atan2(y, x),
    maximum: (x, y) => Math.max(x, y),
    minimum: (x, y) => Math.min(x, y),
    fmod: (x, y) => x % y,
    remainder: (x, y) => x - y * Math.floor(x / y),
    eq: (x, y) => +(x === y),
    ne: (x, y) => +(x !== y),
    lt: (x, y) => +(x < y),
    le: (x, y) => +(x <= y),
    gt: (x, y) => +(x > y),
    ge: (x, y) => +(x >= y),
    logical_and: (x, y) => +(x !== 0 && y !== 0),
    logical_or: (x, y) => +(x !== 0 || y !== 0),
    where: (condition, x, y) => (condition !== 0 ? x : y),
    affine: (x, scale, shift) => x * scale + shift,
  };

  /** A function of each element. Tensors of smaller shapes are repeated. */
  const map = (node, inputs, out) => {
    const apply = FUNCTIONS[node.function], y = out.data;
    if (!apply) throw new RangeError(`This page cannot compute ${node.function}. Write the page again with this version of unbraid.`);
    const [first, ...others] = inputs;
    if (node.function === "relu") {
      return () => { for (let i = 0; i < y.length; i++) y[i] = first.data[i] > 0 ? first.data[i] : 0; };
    }
    if (first.data?.length === y.length && others.every((one) => typeof one === "number")) {
      const [s, t, u] = others, x = first.data;
      return () => { for (let i = 0; i < y.length; i++) y[i] = apply(x[i], s, t, u); };
    }
    const [a, b, c] = [0, 1, 2].map((k) => (inputs[k]?.data ? inputs[k].data : Float64Array.of(inputs[k] ?? 0)));
    const [at, bt, ct] = [0, 1, 2].map((k) => (inputs[k]?.data && inputs[k].data.length !== y.length ? repeated(inputs[k].shape, out.shape) : null));
    const [am, bm, cm] = [0, 1, 2].map((k) => (inputs[k]?.data ? -1 : 0)); // i & -1 is i, and i & 0 is 0
    return () => {
      for (let i = 0; i < y.length; i++) y[i] = apply(a[at ? at[i] : i & am], b[bt ? bt[i] : i & bm], c[ct ? ct[i] : i & cm]);
    };
  };

  /** The elements of a tensor in another order: element i of the output is at `offset` + its indices times `stride`. */
  const strided = (node, [x], out) => {
    const at = offsets(node.shape, node.stride, node.offset), y = out.data;
    return () => { for (let i = 0; i < y.length; i++) y[i] = x.data[at[i]]; };
  };

  const REDUCTIONS = {
    sum: [0, (total, x) => total + x],
    mean: [0, (total, x) => total + x],
    prod: [1, (total, x) => total * x],
    amax: [-Infinity, Math.max],
    amin: [Infinity, Math.min],
    squares: [0, (total, x) => total + x * x],
  };

  /** A reduction over the axes for which node.kept has size 1. node.kept is the shape of the output with these axes. */
  const reduce = (node, [x], out) => {
    const at = repeated(node.kept, x.shape), count = x.data.length / out.data.length;
    const total = (kind, value) => {
      const [start, join] = REDUCTIONS[kind], totals = new Float64Array(out.data.length).fill(start);
      for (let i = 0; i < at.length; i++) totals[at[i]] = join(totals[at[i]], value(i));
      return totals;
    };
    if (node.kind === "var") {
      return () => {
        const mean = total("sum", (i) => x.data[i]).map((sum) => sum / count);
        out.data.set(total("squares", (i) => x.data[i] - mean[at[i]]).map((sum) => sum / Math.max(0, count - node.correction)));
      };
    }
    return () => {
      const totals = total(node.kind, (i) => x.data[i]);
      out.data.set(node.kind === "mean" ? totals.map((sum) => sum / count) : totals);
    };
  };

  /** (x - mean) / sqrt(variance + eps) over consecutive groups of `size` elements. */
  const standardise = (node, [x], out) => () => {
    for (let start = 0; start < x.data.length; start += node.size) {
      const end = start + node.size;
      let sum = 0, squares = 0;
      for (let i = start; i < end; i++) sum += x.data[i];
      const mean = sum / node.size;
      for (let i = start; i < end; i++) squares += (x.data[i] - mean) ** 2;
      const scale = 1 / Math.sqrt(squares / node.size + node.eps);
      for (let i = start; i < end; i++) out.data[i] = (x.data[i] - mean) * scale;
    }
  };

  /** A linear map along one axis. Output k is the sum of the inputs of node.rows[k] = [index, weight, index, weight, ...]. */
  const mix = (node, [x], out) => {
    const [from, to] = [x.shape[node.axis], node.rows.length], inner = product(x.shape.slice(node.axis + 1));
    return () => {
      for (let block = 0; block * to * inner < out.data.length; block++) {
        for (let k = 0; k < to; k++) {
          const row = node.rows[k], put = (block * to + k) * inner;
          for (let i = 0; i < inner; i++) {
            let sum = 0;
            for (let n = 0; n < row.length; n += 2) sum += row[n + 1] * x.data[(block * from + row[n]) * inner + i];
            out.data[put + i] = sum;
          }
        }
      }
    };
  };

  const cat = (node, inputs, out) => () => {
    const widths = inputs.map((one) => product(one.shape.slice(node.axis)));
    const blocks = inputs[0].data.length / widths[0];
    for (let block = 0, put = 0; block < blocks; block++) {
      inputs.forEach(({ data }, k) => {
        out.data.set(data.subarray(block * widths[k], (block + 1) * widths[k]), put);
        put += widths[k];
      });
    }
  };

  /** The largest input in each window of images (n, c, h, w). */
  const maxPool = (node, [x], out) => () => {
    const [height, width] = x.shape.slice(2), [tall, wide] = node.shape.slice(2);
    for (let n = 0; n < out.data.length; n++) {
      const plane = Math.floor(n / (tall * wide)) * height * width;
      const top = Math.floor((n % (tall * wide)) / wide) * node.stride[0] - node.padding[0];
      const left = (n % wide) * node.stride[1] - node.padding[1];
      let largest = -Infinity;
      for (let r = 0, i = top; r < node.kernel[0]; r++, i += node.dilation[0]) {
        for (let k = 0, j = left; k < node.kernel[1]; k++, j += node.dilation[1]) {
          if (i >= 0 && i < height && j >= 0 && j < width) largest = Math.max(largest, x.data[plane + i * width + j]);
        }
      }
      out.data[n] = largest;
    }
  };

  /** Products of matrices (b, n, k) and (b, k, m). */
  const matmul = (node, [a, b], out) => () => {
    const [count, n, k] = a.shape, m = b.shape[2];
    for (let one = 0; one < count; one++) {
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < m; j++) {
          let sum = 0;
          for (let l = 0; l < k; l++) sum += a.data[(one * n + i) * k + l] * b.data[(one * k + l) * m + j];
          out.data[(one * n + i) * m + j] = sum;
        }
      }
    }
  };

  /** y = W x + b for each row x, four outputs at a time. */
  const linear = (node, [given], out, read) => {
    const { deep, wide } = node, quads = wide - (wide % 4);
    const weight = read(node.weight, deep * wide, node.parts), bias = read(node.bias, wide, node.parts);
    const row = (x, y) => {
      for (let i = 0; i < quads; i += 4) {
        let a = bias[i], b = bias[i + 1], c = bias[i + 2], d = bias[i + 3];
        for (let j = 0, p = i * deep; j < deep; j++, p++) {
          const value = x[j];
          a += weight[p] * value;
          b += weight[p + deep] * value;
          c += weight[p + 2 * deep] * value;
          d += weight[p + 3 * deep] * value;
        }
        (y[i] = a), (y[i + 1] = b), (y[i + 2] = c), (y[i + 3] = d);
      }
      for (let i = quads; i < wide; i++) {
        let sum = bias[i];
        for (let j = 0; j < deep; j++) sum += weight[i * deep + j] * x[j];
        y[i] = sum;
      }
    };
    return () => {
      for (let n = 0; n * wide < out.data.length; n++) {
        row(given.data.subarray(n * deep, (n + 1) * deep), out.data.subarray(n * wide, (n + 1) * wide));
      }
    };
  };

  const constant = (node, inputs, out, read) => () => out.data.set(read(node.weight, out.data.length, node.parts));

  /** An image sampled where a map takes its pixels; the second input has the parameters of the map. */
  const warp = (node, [image, parameters], out) => {
    const [height, width] = node.shape.slice(2);
    const move = unbraid.mover(node.transform, parameters.data, height, width);
    return () => unbraid.resample(image.data, move(), out.data, node.shape.slice(1));
  };

  unbraid.operators = {
    map, strided, reduce, standardise, mix, cat, matmul, linear, constant, warp, max_pool: maxPool, conv: unbraid.convolution,
  };
})();
