"use strict";
/* All parts of the page except the explorer: helpers, the score table, details of a run, training curves and analyses. */
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const report = JSON.parse(document.getElementById("report").textContent);
  unbraid.report = report;

  /* Create an element with attributes and children. Attributes that are functions become event listeners. Strings are inserted as text. */
  function make(tag, attributes = {}, ...children) {
    const element = tag.startsWith("svg:")
      ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (name.startsWith("--")) element.style.setProperty(name, value);
      else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }
  unbraid.make = make;

  const percent = (share) => `${Math.round(100 * share)} %`;
  const number = (value) => (value === undefined || value === null ? "–" : value.toFixed(3));
  const run = (id) => report.runs.find((one) => one.id === id);
  unbraid.run = run;
  unbraid.percent = percent;

  /* Functions that are called when a run is selected. */
  const listeners = [];
  unbraid.onSelect = (listener) => listeners.push(listener);
  unbraid.select = (id) => listeners.forEach((listener) => listener(id));
  const detailed = report.runs.filter((one) => one.detail);
  unbraid.detailed = detailed;

  /* A region that scrolls sideways, with a hint that is shown while it is wider than the screen. */
  function scroller(label, ...children) {
    const region = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
    const hint = make("p", { class: "hint soft", hidden: true }, "Scroll the table sideways to see all columns \u2192");
    const update = () => {
      hint.hidden = region.scrollWidth <= region.clientWidth + 1;
      region.classList.toggle("more", region.scrollLeft + region.clientWidth < region.scrollWidth - 1);
    };
    region.addEventListener("scroll", update);
    new ResizeObserver(update).observe(region);
    return { whole: make("div", {}, hint, region), region, update };
  }

  function picture(image) {
    const scale = Math.max(1, Math.round(48 / image.height)) || 1;
    return make("img", { src: image.src, alt: image.alt, width: image.width * scale, height: image.height * scale });
  }

  /* Scores ---------------------------------------------------------------------------------------------------- */

  const several = Object.keys(report.data).length > 1;
  const sorting = { column: report.rank, down: true };

  function share(metric, one) {
    const value = one.scores[metric.column];
    const limits = (report.bounds[one.data] ?? []).filter((limit) => limit.protocol === one.protocol);
    const high = limits.find((limit) => limit.kind === "perfect")?.scores[metric.column];
    const low = limits.find((limit) => limit.kind === "noise" && limit.latents === one.latents)?.scores[metric.column];
    if (value === undefined || high === undefined || low === undefined || high === low) return 0;
    return Math.min(1, Math.max(0, (value - low) / (high - low)));
  }

  function scoreRow(one) {
    const name = one.detail
      ? make("button", { class: "link", click: () => unbraid.select(one.id) }, one.label)
      : make("span", {}, one.label);
    const cells = report.metrics.map((metric) =>
      make("td", { class: "score", "--share": share(metric, one) }, number(one.scores[metric.column])));
    return make("tr", { "data-run": one.id }, make("td", {}, name), several ? make("td", {}, one.data) : null, ...cells);
  }

  function limitRows() {
    const rows = [];
    for (const [name, limits] of Object.entries(report.bounds)) {
      for (const limit of limits) {
        const cells = report.metrics.map((metric) => make("td", {}, number(limit.scores[metric.column])));
        rows.push(make("tr", {}, make("td", {}, limit.label), several ? make("td", {}, name) : null, ...cells));
      }
    }
    return rows;
  }

  function sorted(runs) {
    const metric = report.metrics.find((one) => one.name === sorting.column);
    const key = (one) => (metric ? one.scores[metric.column] : one.label);
    const known = runs.filter((one) => key(one) !== undefined), rest = runs.filter((one) => key(one) === undefined);
    known.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    return [...(sorting.down ? known.reverse() : known), ...rest];
  }

  function head(title, column, help) {
    const state = sorting.column === column ? (sorting.down ? "descending" : "ascending") : "none";
    const press = () => {
      sorting.down = sorting.column === column ? !sorting.down : true;
      sorting.column = column;
      drawScores();
      document.querySelector(`#scores th[data-column="${CSS.escape(String(column))}"] button`)?.focus();
    };
    const button = make("button", { click: press, title: help }, title);
    return make("th", { scope: "col", "aria-sort": state, "data-column": String(column) }, button);
  }

  const words = make("input", { type: "search", placeholder: "filter runs", "aria-label": "Filter runs", input: () => drawScores() });
  const { whole: scoreTable, region: board, update: updateHint } = scroller("Score table");

  function drawScores() {
    const asked = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const runs = report.runs.filter((one) => asked.every((word) => `${one.label} ${one.data} ${one.id}`.toLowerCase().includes(word)));
    const heads = report.metrics.map((metric) => head(metric.title + (metric.low ? " (low)" : ""), metric.name, metric.help));
    board.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, head("run", null, "Method, settings and seed"), several ? make("th", { scope: "col" }, "data") : null, ...heads)),
      make("tbody", {}, ...sorted(runs).map(scoreRow)),
      make("tfoot", {}, ...limitRows())));
    updateHint();
    markCurrent();
  }

  let current = null;
  function markCurrent() {
    for (const line of board.querySelectorAll("tbody tr")) {
      if (line.dataset.run === current) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    }
  }
  unbraid.onSelect((id) => { current = id; markCurrent(); });

  function scores() {
    const section = document.getElementById("scores");
    const note = "The table shows the main score of each metric. Hover over a column title to see what the metric measures, and click it to sort. "
      + "Each bar shows where a score lies between the score of pure noise and the score of a perfect code on the same data (the last rows). "
      + "Runs shown as links have details below.";
    section.append(make("p", { class: "soft" }, report.metrics.length ? note : "No run has been scored yet."));
    if (report.runs.length > 8) section.append(make("p", {}, words));
    section.append(scoreTable);
    if (report.left_out) section.append(make("p", {}, `${report.left_out} more runs are in the results table but not on this page.`));
    for (const text of report.notes) section.append(make("p", { class: "soft" }, text));
    for (const one of report.diverged) {
      section.append(make("p", { class: "soft" }, `${one.label} diverged at step ${one.step} (in the term ${one.term}) and has no scores.`));
    }
    drawScores();
  }

  /* Details of one run ---------------------------------------------------------------------------------- */

  function heat(title, note, detail, matrix, text, floor) {
    const head = make("tr", {}, make("th", { scope: "col" }, ""), ...detail.factors.map((name) => make("th", { scope: "col" }, name)));
    const largest = detail.factors.map((_, j) => Math.max(...matrix.map((line) => line[j])));
    const lines = matrix.map((line, i) => make("tr", {},
      make("th", { scope: "row" }, detail.codes[i]),
      ...line.map((value, j) => make("td", { "--share": Math.min(1, value), class: value === largest[j] && value > 0.05 ? "best" : null }, text(value)))));
    if (floor) {
      lines.push(make("tr", { class: "floor" }, make("th", { scope: "row" }, "floor"), ...floor.map((value) => make("td", { "--share": Math.min(1, value) }, text(value)))));
    }
    const table = make("table", { class: "heat" }, make("caption", { class: "soft" }, note), make("thead", {}, head), make("tbody", {}, ...lines));
    return make("div", {}, make("h3", {}, title), scroller(title, table).whole);
  }

  function strip(image, text, note) {
    const words = make("p", {}, text, note ? make("br") : null, note ? make("small", {}, note) : null);
    return make("div", { class: "strip" }, words, make("div", {}, picture(image)));
  }

  function labelNotes(data) {
    const missing = Object.entries(data.missing).map(([name, count]) => `${name} ${count.toLocaleString("en")}`).join(", ");
    return [
      data.continuous.length && `Continuous factors: ${data.continuous.join(", ")}. To compute their information, they are divided into bins, as in the MIG. Their importances are those of regression trees.`,
      missing && `Missing labels among ${data.size.toLocaleString("en")} examples: ${missing}. For each factor, examples without its label are left out.`,
    ].filter(Boolean);
  }

  function learned(id) {
    const section = document.getElementById("learned"), one = run(id), detail = one.detail;
    const parts = [make("p", {}, one.label, make("span", { class: "soft" }, ` · ${one.data} · run ${one.id}`))];
    if (detail.factors.length) {
      parts.push(make("div", { class: "pair" },
        heat("Information", "mutual information between each latent or subspace and each factor, as a fraction of the factor's entropy; floor: the same codes in random order", detail, detail.information, percent, detail.floor),
        heat("Importance", "importance of each latent or subspace for boosted trees that predict each factor (DCI)", detail, detail.importances, (value) => value.toFixed(2))));
      for (const text of labelNotes(report.data[one.data])) parts.push(make("p", { class: "soft" }, text));
    }
    if (detail.reconstructions) {
      parts.push(make("h3", {}, "Reconstructions"), strip(detail.reconstructions[0], "examples"), strip(detail.reconstructions[1], "reconstructions"));
      parts.push(make("h3", {}, "Traversals"), make("p", { class: "soft" }, "In each row, one latent changes. The others keep the values of the middle example of the dataset."));
      for (const line of detail.traversals) {
        const factor = line.factor ? `${percent(line.factor.share)} of the entropy of ${line.factor.name} (floor ${percent(line.factor.floor)})` : "";
        parts.push(strip(line, line.name, [line.note, factor].filter(Boolean).join(" · ")));
      }
    }
    if (one.why) parts.push(make("p", { class: "soft" }, one.why));
    parts.push(make("details", {}, make("summary", {}, "Settings"), make("p", { class: "code" }, JSON.stringify(one.settings))));
    section.replaceChildren(section.firstElementChild, ...parts);
  }

  /* Training -------------------------------------------------------------------------------------------------- */

  /* The style of curve i: one of 12 hues, and a pattern of dashes that changes after every 12 curves. page.css sets the lightness. */
  const HUES = 12, DASHES = [null, "7 3", "2 3"];
  const look = (i) => {
    const hue = (150 * i) % 360;
    return { class: (hue / 30) % 2 ? "line deep" : "line", "--hue": hue, "stroke-dasharray": DASHES[Math.floor(i / HUES) % DASHES.length] };
  };
  unbraid.curveLook = look;

  function axis(low, high, count) {
    const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
    const decimals = Math.min(100, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
    const ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) ticks.push(+(i * step).toFixed(decimals));
    return ticks;
  }

  /* Points [step, mean, standard deviation] of a logged term. */
  const points = (curve, term) => curve.step.map((step, i) => [step, curve.terms[term].mean[i], curve.terms[term].deviation?.[i] ?? 0]).filter((one) => Number.isFinite(one[1]));

  /* The axes of a chart of a given width in pixels, and functions that convert steps and values to positions. */
  function frameOf(lines, width) {
    const xs = lines.flat().map((one) => one[0]), ys = lines.flat().flatMap((one) => [one[1] - one[2], one[1] + one[2]]).sort((a, b) => a - b);
    const left = 58, right = width - 28, top = 10, bottom = 240;
    const x1 = Math.max(...xs, 1), y0 = ys[0], y1 = ys[Math.floor(0.98 * (ys.length - 1))], room = 0.05 * (y1 - y0) || 1;
    const x = (value) => left + ((right - left) * value) / x1;
    const y = (value) => bottom - ((bottom - top) * (Math.max(Math.min(value, y1 + room), y0 - room) - y0 + room)) / (y1 - y0 + 2 * room);
    const parts = [];
    for (const at of axis(y0, y1, 4)) parts.push(make("svg:line", { x1: left, x2: right, y1: y(at), y2: y(at) }), make("svg:text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, String(at)));
    for (const at of axis(0, x1, Math.max(2, Math.floor(width / 110)))) parts.push(make("svg:text", { x: x(at), y: bottom + 20, "text-anchor": "middle" }, at.toLocaleString("en")));
    parts.push(make("svg:text", { x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" }, "step"));
    return { x, y, parts };
  }

  function chart(term, curves, width) {
    const lines = curves.map((one) => points(one, term));
    const { x, y, parts } = frameOf(lines, width);
    const drawing = make("svg:svg", { viewBox: `0 0 ${width} 284`, width, height: 284, class: "curve", role: "img", "aria-label": `${term} over training steps, ${curves.length} curve${curves.length === 1 ? "" : "s"}` }, ...parts);
    const path = (list, value) => list.map((one, j) => `${j ? "L" : "M"}${x(one[0]).toFixed(1)},${y(value(one)).toFixed(1)}`).join("");
    lines.forEach((line, i) => {
      if (line.length < 2) return;
      const title = () => make("svg:title", {}, name(curves[i]));
      const { "stroke-dasharray": dash, ...colour } = look(report.curves.indexOf(curves[i]));
      if (line.some((one) => one[2] > 0)) {
        const outline = `${path(line, (one) => one[1] + one[2])}${path([...line].reverse(), (one) => one[1] - one[2]).replace("M", "L")}Z`;
        drawing.append(make("svg:path", { ...colour, class: colour.class.replace("line", "band"), d: outline }, title()));
      }
      drawing.append(make("svg:path", { ...colour, "stroke-dasharray": dash, d: path(line, (one) => one[1]) }, title()));
    });
    return drawing;
  }

  const name = (curve) => `${curve.label}${several ? ` (${curve.data})` : ""}${curve.seeds > 1 ? `, ${curve.seeds} seeds` : ""}`;

  function legend(curves) {
    const sample = (i) => make("svg:svg", { class: "swatch", viewBox: "0 0 28 6", width: 28, height: 6, "aria-hidden": "true" }, make("svg:path", { ...look(i), d: "M0,3L28,3" }));
    return make("ul", { class: "legend" }, ...curves.map((one, i) => make("li", {}, sample(i), name(one))));
  }

  function training() {
    const section = document.getElementById("training"), curves = report.curves;
    if (!curves.length) return section.remove();
    const terms = [...new Set(curves.flatMap((one) => Object.keys(one.terms)))];
    const choice = make("select", { id: "term", change: () => draw() }, ...terms.map((term) => make("option", {}, term)));
    choice.value = ["loss", "rec"].find((term) => terms.includes(term)) ?? terms[0];
    const place = make("div");
    let width = 0;
    /* One chart per dataset, because losses on different datasets cannot be compared. */
    const datasets = [...new Set(curves.map((one) => one.data))];
    const draw = () => place.replaceChildren(...datasets.flatMap((data) => {
      const shown = curves.filter((one) => one.data === data && one.terms[choice.value]);
      if (!shown.length) return [];
      return [...(datasets.length > 1 ? [make("h3", {}, data)] : []), chart(choice.value, shown, width)];
    }));
    const fit = () => {
      const wide = Math.max(240, Math.min(736, place.clientWidth || 736));
      if (wide !== width) { width = wide; draw(); }
    };
    section.append(make("p", { class: "row" }, make("label", { for: "term" }, "logged term "), choice), place, legend(curves));
    if (curves.some((one) => one.seeds > 1)) section.append(make("p", { class: "soft" }, "A line is the mean over seeds. A band shows one standard deviation over seeds to either side."));
    if (report.curves_left_out) section.append(make("p", { class: "soft" }, `${report.curves_left_out} more curves are not shown.`));
    new ResizeObserver(fit).observe(place);
    fit();
  }

  /* Study, header and footer ---------------------------------------------------------------------------------- */

  function study() {
    const section = document.getElementById("study");
    if (!report.analyses.length) return section.remove();
    for (const one of report.analyses) {
      const answer = make("div", { class: "answer" }, make("h3", {}, one.question));
      if (one.figure) answer.append(make("p", {}, one.text), make("img", { src: one.figure.src, alt: one.figure.alt, width: one.figure.width, height: one.figure.height }));
      else answer.append(make("p", { class: "soft" }, `Not answered: ${one.reason}`));
      section.append(answer);
    }
  }

  function frame() {
    const data = Object.entries(report.data).map(([name, one]) => `${name} (${one.size.toLocaleString("en")} examples)`).join(", ");
    const count = report.runs.length + report.left_out;
    document.getElementById("summary").textContent = `${count} run${count === 1 ? "" : "s"} on ${data}`;
    const links = [...document.querySelectorAll("main > section")].map((section) => make("a", { href: `#${section.id}` }, section.firstElementChild.textContent));
    document.getElementById("contents").replaceChildren(...links);
    const commit = report.made.commit ? `, commit ${report.made.commit.slice(0, 9)}` : "";
    document.getElementById("made").append(make("p", {}, `Made by unbraid ${report.made.version}${commit}.${report.live ? "" : " This file contains everything that the page needs."}`));
  }

  unbraid.start = () => {
    scores();
    if (detailed.length) unbraid.onSelect(learned);
    else document.getElementById("learned").remove();
    training();
    study();
    unbraid.explore();
    frame();
    const first = detailed.find((one) => one.decoder && report.data[one.data].drawable) ?? detailed.find((one) => one.decoder) ?? detailed[0];
    if (first) unbraid.select(first.id);
    const other = detailed.find((one) => one.decoder && one.data !== first.data);
    if (first?.decoder && other) unbraid.compare(other.id);
  };
})();
