// Build elements of the page. Whatever a name or a reason holds becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

// Strokes of the icons, in a box of 16 by 16.
const ICONS = {
  check: "M3 8.5l3.4 3.4L13 4.8",
  alert: "M8 3v6M8 12.2v.6",
  ask: "M5.4 6.2a2.7 2.7 0 1 1 3.9 2.4c-.9.5-1.3 1-1.3 1.9M8 13v.4",
  move: "M2.5 8h10M9 4.5L12.5 8 9 11.5",
  eye: "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8zM8 6.400a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 0 0 0-3.200z",
  pause: "M5.5 3.500v9M10.5 3.500v9",
  play: "M5 3.500l7.5 4.500L5 12.500z",
  cross: "M4 4l8 8M12 4l-8 8",
  clock: "M8 2.200a5.8 5.8 0 1 0 0 11.600A5.8 5.8 0 0 0 8 2.200zM8 4.800V8l2.4 1.6",
  wrench: "M10.2 2.600a3.4 3.4 0 0 0-3.2 4.600l-4.4 4.4 1.8 1.8 4.4-4.400a3.4 3.4 0 0 0 4.4-4.400L11 6.8 9.2 5z",
  undo: "M4 6h6a3 3 0 0 1 0 6H6M4 6l2.6-2.600M4 6l2.6 2.6",
};

// Return an element. Of the properties, `on...` are listeners, the rest attributes; null and false are left out.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function icon(name, kind = "") {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", "0 0 16 16");
  made.setAttribute("class", `icon ${kind}`);
  made.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  made.append(path);
  return made;
}

export function button(text, onclick, properties = {}) {
  return element("button", { type: "button", onclick, ...properties }, text);
}

// A word in a small frame; the icon says the same as the colour.
export function pill(text, kind, iconName = null, title = null) {
  return element("span", { class: `pill ${kind}`, title }, iconName ? icon(iconName) : null, element("span", {}, text));
}

export function definitionList(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, shown.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// Columns whose cells stay in one line, and those that take the width that is left.
const ONE_LINE = new Set(["Since", "Time", "Severity", "State", "Rule", "Kind", "Subject", "Service"]);
const WIDE = new Set(["What", "Details"]);

function columnClass(head) {
  return ONE_LINE.has(head) ? "as-one" : WIDE.has(head) ? "wide" : null;
}

export function table(heads, rows, properties = {}) {
  const head = element("tr", {}, heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((cells) => element("tr", {}, cells.map((cell, at) => element("td", { class: columnClass(heads[at]) }, cell))));
  return element("div", { class: "table-frame" },
    element("table", properties, element("thead", {}, head), element("tbody", {}, body)));
}

// Build the content of a container anew only when what it shows is another; so focus and open parts stay.
export function showIfOther(container, shown, build) {
  const text = JSON.stringify(shown);
  if (container.dataset.shown === text) return false;
  container.dataset.shown = text;
  container.replaceChildren(...[build()].flat(Infinity).filter(Boolean));
  return true;
}
