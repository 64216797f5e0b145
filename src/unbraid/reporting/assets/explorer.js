"use strict";
/* The explorer: sliders that change latents, for one or two runs. It has examples to start from, a grid for two sliders, and true images. */
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const GRID = 9; // pictures per side of the pad

  /* The source of decoded images: the decoders in this page, each created when it is first needed. live.js replaces this source. */
  const decoders = {};
  function embedded(id) {
    const text = document.querySelector(`script[data-weights="${CSS.escape(id)}"]`).textContent;
    const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    return unbraid.decoder(unbraid.run(id).decoder, bytes);
  }
  unbraid.source ??= { decode: (id, z) => (decoders[id] ??= embedded(id))(z) };

  /* Draw an example on a canvas: images as pixels, other vectors as bars. */
  function paint(canvas, shape, values) {
    const context = canvas.getContext("2d");
    if (shape.length !== 3) return bars(canvas, context, values);
    const [channels, h, w] = shape;
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    context.putImageData(pixels(values, channels, h, w), 0, 0);
  }

  function pixels(values, channels, h, w) {
    const image = new ImageData(w, h), size = h * w;
    for (let i = 0; i < size; i++) {
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = Math.round(255 * Math.min(1, Math.max(0, values[(channels === 3 ? c : 0) * size + i])));
      image.data[4 * i + 3] = 255;
    }
    return image;
  }

  function bars(canvas, context, values) {
    [canvas.width, canvas.height] = [256, 128];
    const largest = Math.max(1e-9, ...Array.from(values, Math.abs)), wide = 256 / values.length;
    context.fillStyle = "#0b79d0";
    for (let i = 0; i < values.length; i++) {
      const tall = (60 * values[i]) / largest;
      context.fillRect(i * wide, 64 - Math.max(tall, 0), Math.max(1, wide - 1), Math.abs(tall));
    }
  }
  unbraid.paint = paint;

  function choice(label, options, value, change) {
    const list = unbraid.make("select", { change: () => change(list.value) }, ...options.map(([key, text]) => unbraid.make("option", { value: key }, text)));
    list.value = value;
    const whole = unbraid.make("label", {}, `${label} `, list);
    return { whole, list };
  }

  /* The label of a run, with its data if the page has several datasets. */
  const several = () => Object.keys(unbraid.report.data).length > 1;
  const title = (run) => (several() ? `${run.label} on ${run.data}` : run.label);

  const closeTo = (a, b) => Math.abs(a - b) < 1e-9;

  /* One run with its sliders. */
  class Panel {
    constructor(id) {
      this.run = unbraid.run(id);
      this.spec = this.run.detail.controls;
      this.map = unbraid.controls(this.spec);
      this.shape = this.run.decoder.shape;
      this.example = 0;
      this.controls = Float64Array.from(this.spec.start[0]);
      this.z = new Float32Array(this.run.latents);
      this.busy = this.dirty = false;
      this.build();
      this.refresh();
    }

    build() {
      const make = unbraid.make;
      this.canvas = make("canvas", { class: "image", role: "img", "aria-label": `Image decoded by ${this.run.label} from the sliders` });
      this.text = make("p", { class: "code soft" });
      this.status = make("span", { role: "status" });
      const buttons = make("div", { class: "row" },
        make("button", { click: () => this.start(this.example) }, "Reset"),
        make("button", { click: () => this.copy() }, "Copy latents"), this.status);
      this.sliders = this.order().map((i) => this.slider(i));
      this.pad = new Pad(this);
      this.element = make("div", { class: "card", "data-panel": this.run.id },
        make("h3", {}, title(this.run)),
        make("div", { class: "decoded" }, make("figure", {}, this.canvas, make("figcaption", {}, this.shape.length === 3 ? "decoded image" : "decoded vector, one bar per number")), make("div", {}, buttons, this.text)),
        ...this.sliders.map((slider) => slider.element), this.pad.element);
    }

    order() {
      const nats = this.spec.nats, all = this.spec.names.map((_, i) => i);
      return all.every((i) => nats[i] !== null) ? all.sort((a, b) => nats[b] - nats[a]) : all;
    }

    slider(i) {
      const make = unbraid.make, name = `slider-${this.run.id}-${i}-${Math.random().toString(36).slice(2, 8)}`;
      const nats = this.spec.nats[i], factor = this.spec.factors[i];
      const notes = [nats === null ? "" : `${nats.toFixed(2)} nats`, factor ? `${factor.name} ${unbraid.percent(factor.share)} (floor ${unbraid.percent(factor.floor)})` : ""].filter(Boolean).join(" · ");
      const input = make("input", { type: "range", id: name, min: this.spec.low[i], max: this.spec.high[i], step: 0.01, input: () => this.move(i, +input.value) });
      const output = make("output", { for: name });
      const swing = make("button", { "aria-pressed": "false", "aria-label": `Animate ${this.spec.names[i]}`, title: "animate", click: () => this.swing(i, swing) }, "∿");
      const label = make("label", { for: name }, this.spec.names[i], make("small", {}, notes ? ` · ${notes}` : ""));
      return { i, input, output, element: make("div", { class: nats !== null && nats < 0.05 ? "slider uninformative" : "slider" }, label, input, output, swing) };
    }

    move(i, value) {
      this.controls[i] = value;
      this.map.adjust(this.controls, i);
      this.refresh(i);
    }

    start(example) {
      this.example = example;
      this.controls.set(this.spec.start[example]);
      this.refresh();
    }

    /* Animate slider i over its range until the button is clicked again. */
    swing(i, button) {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      const low = this.spec.low[i], high = this.spec.high[i], begun = performance.now();
      const at = Math.asin(Math.min(1, Math.max(-1, (2 * (this.controls[i] - low)) / (high - low) - 1)));
      const step = (now) => {
        if (button.getAttribute("aria-pressed") !== "true" || !button.isConnected) return;
        this.move(i, low + ((high - low) * (1 + Math.sin(at + (now - begun) / 700))) / 2);
        requestAnimationFrame(step);
      };
      if (on) requestAnimationFrame(step);
    }

    /* Update the sliders and decode; `moved` is the index of the slider that was moved, or null. */
    refresh(moved = null) {
      for (const slider of this.sliders) {
        if (!closeTo(+slider.input.value, this.controls[slider.i])) slider.input.value = this.controls[slider.i];
        slider.output.textContent = this.controls[slider.i].toFixed(2);
      }
      this.z = this.map.toLatents(this.controls, this.example, this.z) ?? this.z;
      this.text.textContent = `latents: ${Array.from(this.z, (value) => value.toFixed(2)).join(", ")}`;
      this.pad.refresh(moved);
      this.dirty = true;
      if (!this.busy) this.draw();
    }

    async draw() {
      this.busy = true;
      while (this.dirty) {
        this.dirty = false;
        paint(this.canvas, this.shape, await unbraid.source.decode(this.run.id, this.z));
      }
      this.busy = false;
    }

    async copy() {
      const text = JSON.stringify(Array.from(this.z, (value) => +value.toPrecision(7)));
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = unbraid.make("textarea", {}, text);
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      this.status.textContent = "copied";
      setTimeout(() => { this.status.textContent = ""; }, 1500);
    }
  }

  /* Two sliders at once: a grid of decoded images, and a mark to drag. */
  class Pad {
    constructor(panel) {
      const make = unbraid.make;
      this.panel = panel;
      this.round = 0;
      const order = panel.order(), options = order.map((i) => [String(i), panel.spec.names[i]]);
      [this.across, this.down] = [order[0], order[1] ?? order[0]];
      if (order.length < 2 || panel.shape.length !== 3) {
        this.element = make("div");
        return;
      }
      this.canvas = make("canvas", {});
      this.mark = make("div", { class: "mark" });
      this.box = make("div", { class: "pad", tabindex: "0", role: "img", "aria-label": this.words(), pointerdown: (event) => this.drag(event),
        pointermove: (event) => event.buttons && this.drag(event), keydown: (event) => this.key(event) }, this.canvas, this.mark);
      const choose = (key) => (value) => { this[key] = +value; this.box.setAttribute("aria-label", this.words()); this.stale = true; this.refresh(null); };
      this.element = make("details", { toggle: () => this.refresh(null) }, make("summary", {}, "Two sliders at once"),
        make("div", { class: "row" }, choice("across", options, String(this.across), choose("across")).whole, choice("down", options, String(this.down), choose("down")).whole), this.box);
      this.stale = true;
    }

    words() {
      return `Grid of decoded images, with ${this.panel.spec.names[this.across]} across and ${this.panel.spec.names[this.down]} down. Drag the mark, or use the arrow keys.`;
    }

    at(i, place) {
      const { low, high } = this.panel.spec;
      return low[i] + (high[i] - low[i]) * place;
    }

    drag(event) {
      const box = this.box.getBoundingClientRect(), clip = (value) => Math.min(1, Math.max(0, value));
      event.preventDefault();
      this.box.focus({ preventScroll: true });
      this.to(clip((event.clientX - box.left) / box.width), clip((event.clientY - box.top) / box.height));
    }

    key(event) {
      const step = { ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, -0.05], ArrowDown: [0, 0.05] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [x, y] = this.position();
      this.to(Math.min(1, Math.max(0, x + step[0])), Math.min(1, Math.max(0, y + step[1])));
    }

    to(x, y) {
      const { panel } = this;
      panel.controls[this.across] = this.at(this.across, x);
      panel.map.adjust(panel.controls, this.across);
      panel.controls[this.down] = this.at(this.down, y);
      panel.map.adjust(panel.controls, this.down);
      panel.refresh(this.across);
    }

    position() {
      const { low, high } = this.panel.spec, part = (i) => (this.panel.controls[i] - low[i]) / (high[i] - low[i]);
      return [part(this.across), part(this.down)];
    }

    refresh(moved) {
      if (!this.box) return;
      const [x, y] = this.position();
      this.mark.style.left = `${100 * x}%`;
      this.mark.style.top = `${100 * y}%`;
      if (moved !== this.across && moved !== this.down) this.stale = true;
      if (this.stale && this.element.open) {
        this.stale = false;
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.draw(), moved === null ? 0 : 200);
      }
    }

    /* Decode the grid, a few pictures per frame. A new call stops an earlier one. */
    async draw() {
      const { panel } = this, [channels, h, w] = panel.shape, round = ++this.round, context = this.canvas.getContext("2d");
      [this.canvas.width, this.canvas.height] = [GRID * w, GRID * h];
      const controls = Float64Array.from(panel.controls), z = new Float32Array(panel.run.latents), own = Float64Array.from(panel.controls);
      let since = performance.now();
      this.drawn = false;
      for (let k = 0; k < GRID * GRID; k++) {
        controls.set(own);
        controls[this.across] = this.at(this.across, (k % GRID) / (GRID - 1));
        panel.map.adjust(controls, this.across);
        controls[this.down] = this.at(this.down, Math.floor(k / GRID) / (GRID - 1));
        panel.map.adjust(controls, this.down);
        const values = await unbraid.source.decode(panel.run.id, panel.map.toLatents(controls, panel.example, z) ?? z);
        context.putImageData(pixels(values, channels, h, w), (k % GRID) * w, Math.floor(k / GRID) * h);
        if (performance.now() - since > 12) {
          await new Promise((done) => requestAnimationFrame(done));
          since = performance.now();
        }
        if (round !== this.round) return;
      }
      this.drawn = true;
    }
  }

  /* The true image of given factor values, rendered on the page. */
  function truthCard(name, data) {
    const make = unbraid.make, render = unbraid.truth(data.truth), values = data.sizes.map(() => 0);
    const canvas = make("canvas", { class: "image", role: "img", "aria-label": "The true image of these factor values" });
    const rows = data.names.map((name, j) => {
      const id = `factor-${j}`, output = make("output", { for: id });
      const input = make("input", { type: "range", id, min: 0, max: data.sizes[j] - 1, step: 1, input: () => { values[j] = +input.value; show(); } });
      return { input, output, element: make("div", { class: "slider" }, make("label", { for: id }, name, make("small", {}, ` · ${data.sizes[j]} values`)), input, output) };
    });
    const show = () => {
      rows.forEach((row, j) => { row.input.value = values[j]; row.output.textContent = values[j]; });
      paint(canvas, data.shape, render(values));
    };
    const element = make("div", { class: "card", id: "truth" }, make("h3", {}, several() ? `True image of ${name}` : "True image"),
      make("div", { class: "decoded" }, make("figure", {}, canvas, make("figcaption", {}, "true image of these factor values"))), ...rows.map((row) => row.element));
    return { element, set: (factors) => { factors.forEach((value, j) => { values[j] = value; }); show(); } };
  }

  unbraid.explore = () => {
    const make = unbraid.make, section = document.getElementById("explorer"), able = unbraid.detailed.filter((one) => one.decoder);
    if (!able.length) {
      const why = unbraid.detailed.find((one) => one.why)?.why;
      return why ? void section.append(make("p", { class: "soft" }, why)) : section.remove();
    }
    const state = { first: null, second: null, truth: null, example: 0 };
    const bench = make("div", { class: "panels" }), starts = make("div", { class: "starts", role: "group", "aria-label": "Examples to start from" });
    const options = able.map((one) => [one.id, title(one)]);
    const first = choice("run", options, able[0].id, (id) => unbraid.select(id));
    const compare = (id) => { state.second = id ? new Panel(id) : null; follow(); lay(); };
    const second = choice("compare with", [["", "no other run"], ...options], "", compare);
    unbraid.compare = (id) => { second.list.value = id; compare(id); };
    const follow = () => { if (state.second) state.second.start(Math.min(state.example, state.second.spec.start.length - 1)); };
    const lay = () => bench.replaceChildren(...[state.first, state.second, state.truth].filter(Boolean).map((one) => one.element));
    const pick = (i) => {
      state.example = i;
      state.first.start(i);
      follow();
      state.truth?.set(unbraid.report.data[state.first.run.data].examples[i].factors);
      [...starts.children].forEach((button, j) => button.setAttribute("aria-pressed", j === i));
    };
    unbraid.onSelect((id) => {
      if (!unbraid.run(id).decoder) return;
      first.list.value = id;
      state.first = new Panel(id);
      const data = unbraid.report.data[state.first.run.data];
      state.truth = data.truth ? truthCard(state.first.run.data, data) : null;
      starts.replaceChildren(...data.examples.map((one, i) => {
        const words = data.names.map((name, j) => `${name} ${one.factors[j]}`).join(", ");
        return make("button", { "aria-label": `Start from example ${one.index}${words ? `: ${words}` : ""}`, title: words, click: () => pick(i) },
          one.image ? make("img", { src: one.image, alt: "" }) : String(one.index));
      }));
      pick(0);
      lay();
    });
    unbraid.panels = state;
    section.append(make("p", { class: "soft" }, `Choose an example to start from, then move a slider. The sliders change the latents, and the decoder of the run computes the image. The decoder runs ${unbraid.report.live ? "on this machine" : "in this browser"}.`),
      make("div", { class: "row" }, first.whole, second.whole), starts, make("p"), bench);
  };

  if (typeof document !== "undefined") addEventListener("DOMContentLoaded", () => unbraid.start());
})();
