// A trained decoder in plain JavaScript. It converts a program of reporting/program.py to a function from latents to images.
//
// A program is a list of nodes. Each node computes one tensor from the tensors of earlier nodes. It is compiled once to
// a function that reads fixed buffers and fills another. A call therefore allocates almost no memory.
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

  const values = (node) => (node.in ?? []).filter((one) => typeof one === "number");

  /** For each node, the node whose buffer it uses, and for each such node, the last node that reads its buffer. */
  const lifetimes = (nodes, output) => {
    const owner = [], last = Array(nodes.length).fill(-1);
    nodes.forEach((node, i) => {
      owner.push(node.op === "reshape" ? owner[node.in[0]] : i);
      for (const one of values(node)) last[owner[one]] = i;
    });
    last[owner[output]] = Infinity;
    return { owner, last };
  };

  /** Buffers by size, so that a node can use the buffer of an earlier one that is no longer read. */
  const bufferPool = () => {
    const free = {};
    return {
      take: (size) => free[size]?.pop() ?? new Float32Array(size),
      give: (data) => (free[data.length] ??= []).push(data),
    };
  };

  /** Compile nodes to steps. Nodes that do not depend on the latents are computed at once. */
  const compile = (nodes, output, read) => {
    const { owner, last } = lifetimes(nodes, output), pool = bufferPool(), tensors = [], steps = [];
    nodes.forEach((node, i) => {
      const inputs = (node.in ?? []).map((one) => (typeof one === "number" ? tensors[one] : Number(one[0])));
      const fixed = node.op !== "input" && values(node).every((one) => tensors[one].fixed);
      const release = () => {
        for (const one of new Set(values(node).map((one) => owner[one]))) {
          if (last[one] === i && one > 0 && !tensors[one].fixed) pool.give(tensors[one].data);
        }
      };
      if (node.op === "reshape") return tensors.push({ ...inputs[0], shape: node.shape });
      if (node.op === "map") release(); // it may overwrite its input
      const size = product(node.shape);
      const tensor = { data: fixed || node.op === "input" ? new Float32Array(size) : pool.take(size), shape: node.shape, fixed };
      tensors.push(tensor);
      if (node.op === "input") return;
      if (!Object.hasOwn(unbraid.operators, node.op)) throw new RangeError(`This page cannot run the operator ${node.op}. Write the page again with this version of unbraid.`);
      const run = unbraid.operators[node.op](node, inputs, tensor, read);
      if (fixed) run();
      else steps.push(run);
      if (node.op !== "map") release();
    });
    return { input: tensors[0].data, out: tensors[output].data, steps };
  };

  /** decode(z) returns the mean of an image, c * h * w numbers, in an array that the next call overwrites. */
  unbraid.decoder = (spec, bytes) => {
    const { input, out, steps } = compile(spec.nodes, spec.output, reader(half(bytes)));
    return (z) => {
      if (z.length !== spec.latents) throw new RangeError(`A code has ${spec.latents} numbers. Got ${z.length}.`);
      input.set(z);
      for (const step of steps) step();
      return out;
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
