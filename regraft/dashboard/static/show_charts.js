// Cost, rate, completeness and latency over time, with the plans that changed them.

import { button, element, showIfOther } from "./build_elements.js";
import { amount, milliseconds, share, signedShare, tick, timeTicks, words } from "./format_values.js";

const HEIGHT_PX = 180;
const SPANS = [["15 min", 15 * 60], ["2 h", 2 * 3600], ["all", null]];
const AXIS_PX = 52;
const COST_TEXT = "In the unit of the inventory: what links and brokers charge for the notifications of a second, such as ms of delay or money";

export function showCharts(store) {
  const place = document.getElementById("charts");
  const sync = uPlot.sync("windows");
  let spanS = null;
  const charts = [
    new Chart(place, "cost", "Cost per second", costLines, COST_TEXT),
    new Chart(place, "rate", "Notifications per second", rateLines),
    new Chart(place, "latency", "Window end to state", latencyLines),
  ];

  const choice = element("div", { class: "choice", role: "group", "aria-label": "Time span" });
  charts[0].head.append(choice);

  function showChoice() {
    showIfOther(choice, spanS, () => SPANS.map(([text, seconds]) =>
      button(text, () => { spanS = seconds; show(); }, { "aria-pressed": String(seconds === spanS) })));
  }

  function show() {
    showChoice();
    const range = shownRange(store, spanS);
    for (const chart of charts) chart.show(store, range, sync);
  }

  store.watch(["cost", "windows", "plans", "events"], show);
  new ResizeObserver(() => { for (const chart of charts) chart.resize(); }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of charts) chart.reset(); show(); });
  return charts;
}

class Chart {
  constructor(place, name, title, build, about = null) {
    this._build = build;
    this._hasMarkKey = name === "cost";
    this._value = element("p", { class: "now" });
    this.head = element("div", { class: "panel-head" }, element("h2", { title: about }, title));
    this._frame = element("div", { class: "chart-frame" });
    this._legend = element("p", { class: "chart-legend" });
    place.append(element("section", { class: "panel chart", "data-chart": name }, this.head, this._value, this._frame, this._legend));
    this._plot = null;
    this._lines = "";
    this._marks = [];
    this._broken = [];
    this._text = amount;
  }

  show(store, range, sync) {
    const built = this._build(store);
    showIfOther(this._value, built.value, () => [built.value[0], element("small", {}, built.value[1])]);
    if (!built.times.length) {
      showIfOther(this._legend, "empty", () => "No window has closed yet.");
      return;
    }
    this._marks = [...planMarks(store), ...changeMarks(store)].sort((one, other) => one.time - other.time);
    this._broken = built.broken;
    this._text = built.text ?? amount;
    const lines = JSON.stringify(built.lines.map((line) => line.name));
    if (this._plot === null || lines !== this._lines) this._make(built, sync);
    this._lines = lines;
    this._plot.batch(() => {
      this._plot.setData([built.times, ...built.lines.map((line) => line.values)], false);
      this._plot.setScale("x", range);
    });
    showIfOther(this._legend, built.lines.map((line) => [line.name, line.kind]), () => [
      ...built.lines.map((line) => element("span", {}, element("i", { class: `key ${line.kind}` }), `${line.name} `, element("b", { class: "at-cursor" }))),
      this._hasMarkKey ? element("span", {}, element("i", { class: "key mark" }), "plan committed") : null,
      element("span", {}, element("i", { class: "key broken" }), "incomplete window"),
    ]);
    this._report(this._plot);
  }

  // From when to when it shows, and which marks of plans and changes are within; null before the first window.
  get shown() {
    if (!this._plot) return null;
    const { min, max } = this._plot.scales.x;
    return { min, max, marks: this._marks.filter(({ time }) => time >= min && time <= max).map(({ text }) => text) };
  }

  resize() {
    if (this._plot) this._plot.setSize({ width: this._frame.clientWidth, height: HEIGHT_PX });
  }

  reset() {
    this._plot?.destroy();
    this._plot = null;
  }

  _make(built, sync) {
    this.reset();
    const page = getComputedStyle(document.documentElement);
    const colour = (name) => page.getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this._plot = new uPlot({
      width: this._frame.clientWidth, height: HEIGHT_PX, legend: { show: false }, cursor: { sync: { key: sync.key }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, (high || 1) * 1.12] } },
      axes: [{ ...axis, size: 30, space: 70, values: [[3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, text]) => [step, text, null, null, null, null, null, null, 1]) }, { ...axis, size: AXIS_PX, values: (_plot, ticks) => built.ticks?.(ticks) ?? ticks.map(tick) }],
      series: [{}, ...built.lines.map((line) => ({
        label: line.name, stroke: colour(line.colour), width: line.width ?? 1.5, dash: line.dash, fill: line.fill ? `${colour(line.colour)}22` : undefined, points: { show: false }, spanGaps: false,
      }))],
      hooks: { drawClear: [(plot) => this._drawBroken(plot, colour("--removed"))], draw: [(plot) => this._drawMarks(plot, colour)], setCursor: [(plot) => this._report(plot)] },
    }, [[]], this._frame);
  }

  // Under the curves: windows of which something is missing.
  _drawBroken(plot, stroke) {
    const { ctx, bbox } = plot;
    const width = Math.max(2 * devicePixelRatio, 3);
    ctx.save();
    ctx.fillStyle = stroke;
    for (const time of this._broken) {
      const x = plot.valToPos(time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.globalAlpha = 0.16;
      ctx.fillRect(x - width, bbox.top, width * 2, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillRect(x - width, bbox.top + bbox.height - 5 * devicePixelRatio, width * 2, 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  // Over them: when a plan came into force, with its number, and when traffic changed.
  _drawMarks(plot, colour) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.lineWidth = devicePixelRatio;
    let lastX = -Infinity;
    for (const mark of this._marks) {
      const x = plot.valToPos(mark.time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.isChange ? "--moved" : mark.isAborted ? "--removed" : "--added");
      ctx.setLineDash(mark.isAborted ? [2, 4] : [4, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 12 * devicePixelRatio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (x - lastX < 22 * devicePixelRatio) continue;
      ctx.fillText(mark.text, x, bbox.top + 8 * devicePixelRatio);
      lastX = x;
    }
    ctx.restore();
  }

  // In the legend: what the curves say under the cursor.
  _report(plot) {
    const at = plot.cursor.idx;
    this._legend.querySelectorAll(".at-cursor").forEach((place, number) => {
      place.textContent = at === null || at === undefined ? "" : this._text(plot.data[number + 1]?.[at]);
    });
  }
}

// The same for all charts. A controller that took over has no costs of earlier windows, and no chart restarts with it.
function shownRange(store, spanS) {
  const times = [...(store.parts.cost ?? []), ...(store.parts.windows ?? [])].map(endS);
  if (!times.length) return null;
  const last = times.reduce((one, other) => Math.max(one, other));
  const first = times.reduce((one, other) => Math.min(one, other));
  const min = spanS === null ? first : Math.max(first, last - spanS);
  return { min, max: Math.max(last, min + 10) };
}

// A plan counts from when its brokers were told to switch, or to drop it.
function planMarks(store) {
  return store.plans.flatMap((plan) => {
    const told = plan.history.find(({ phase }) => store.facts(phase).is_committed || store.facts(phase).is_aborted);
    if (!told) return [];
    return [{ time: told.time_ms / 1000, text: plan.plan.replace(/^\D+/, ""), isAborted: store.facts(told.phase).is_aborted }];
  });
}

// Since when traffic has been another, as the controller tells it.
function changeMarks(store) {
  return (store.parts.events ?? []).filter((event) => event.kind === "change_detected")
    .map((event) => ({ time: Number(event.details.since_ms) / 1000, text: "change", isChange: true }));
}

function costLines(store) {
  const points = store.parts.cost ?? [];
  const last = points.at(-1);
  const shadows = [...new Set(points.slice(-50).flatMap((point) => Object.keys(point.cost_shadows_per_s ?? {})))];
  const lines = [
    { name: "first overlay", kind: "first", colour: "--first", dash: [6, 4], values: points.map((point) => point.cost_bootstrap_per_s) },
    ...shadows.map((name, number) => ({ name: `shadow ${words(name)}`, kind: `shadow-${number % 3}`, colour: `--shadow-${number % 3}`, width: 1.2, dash: [2, 3], values: points.map((point) => point.cost_shadows_per_s?.[name] ?? null) })),
    { name: "overlay in force", kind: "present", colour: "--accent", width: 2.2, fill: true, values: points.map((point) => point.cost_per_s) },
  ];
  const saved = last ? last.cost_per_s / last.cost_bootstrap_per_s - 1 : null;
  const value = last ? [`${last.sample_share < 1 ? "about " : ""}${amount(last.cost_per_s)}`, `${signedShare(saved)} against the first overlay${estimate(last)}`] : ["", ""];
  return { times: points.map(endS), lines, broken: points.filter((point) => !point.is_complete).map(endS), value };
}

// How far a cost may be off that rests on a sample of the telemetry; nothing where all is known.
function estimate(point) {
  if (!(point.sample_share < 1)) return "";
  const error = point.cost_error_per_s;
  const off = error === null || error === undefined ? "" : `, standard error ${amount(error)}`;
  return `; estimated from 1 of ${Math.round(1 / point.sample_share)} notifications${off}`;
}

function rateLines(store) {
  const points = store.parts.windows ?? [];
  const last = points.at(-1);
  const short = points.filter((point) => !point.is_complete);
  const complete = points.length ? 1 - short.length / points.length : null;
  const value = last ? [amount(last.notifications_per_s), `${share(complete)} of ${points.length} windows complete`] : ["", ""];
  return { times: points.map(endS), lines: [{ name: "notifications", kind: "present", colour: "--accent", width: 2, fill: true, values: points.map((point) => point.notifications_per_s) }], broken: short.map(endS), value };
}

function latencyLines(store) {
  const points = store.parts.windows ?? [];
  const last = points.at(-1);
  const known = points.map((point) => point.state_latency_ms).filter((value) => value !== null).sort((one, other) => one - other);
  const middle = known[Math.floor(known.length / 2)];
  const value = last ? [milliseconds(last.state_latency_ms), `half of them within ${milliseconds(middle)}`] : ["", ""];
  return { times: points.map(endS), lines: [{ name: "latency", kind: "present", colour: "--accent", width: 2, values: points.map((point) => point.state_latency_ms) }], broken: points.filter((point) => !point.is_complete).map(endS), value, ticks: timeTicks, text: milliseconds };
}

const endS = (point) => point.window_end_ms / 1000;
