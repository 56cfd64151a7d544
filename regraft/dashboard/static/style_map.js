// How brokers and links look: size by load, colour and form by congestion, so that nothing is shown by colour alone.

// Congestion is messages in / messages out * queue length (Shafique, Eq. 10); above 10 a queue counts as congested.
export const CONGESTION_CLASSES = [
  { least: 0, name: "calm", variable: "--calm" },
  { least: 2, name: "busy", variable: "--busy" },
  { least: 5, name: "pressed", variable: "--pressed" },
  { least: 10, name: "congested", variable: "--congested" },
];
const NODE_PX = { least: 13, most: 40 };
const LINK_PX = { least: 1.2, most: 8 };
const STEP_PX = 0.5; // Sizes change in steps, so that a redraw touches only what changed visibly.

export function congestionClass(congestion) {
  return CONGESTION_CLASSES.findLastIndex((one) => (congestion ?? 0) >= one.least);
}

// The area of a broker, and the width of a link, go with its load.
export function sizeOf(load, most, { least, most: largest }) {
  const part = most > 0 ? Math.sqrt(Math.max(0, load) / most) : 0;
  return Math.round((least + (largest - least) * part) / STEP_PX) * STEP_PX;
}

export const nodeSize = (load, most) => sizeOf(load, most, NODE_PX);
export const linkWidth = (load, most) => sizeOf(load, most, LINK_PX);

export function mapStyle() {
  const page = getComputedStyle(document.documentElement);
  const colour = (name) => page.getPropertyValue(name).trim();
  const byClass = CONGESTION_CLASSES.flatMap(({ variable }, number) => [
    { selector: `node[level = ${number}]`, style: { "background-color": colour(variable) } },
    { selector: `edge[level = ${number}]`, style: { "line-color": colour(number === 0 ? "--link" : variable) } },
  ]);
  return [
    {
      selector: "node",
      style: {
        width: "data(size)", height: "data(size)", label: "data(label)", "background-color": colour("--calm"),
        "border-width": 1.5, "border-color": colour("--panel"), color: colour("--ink"), "font-size": 12,
        "font-family": "system-ui, sans-serif", "text-valign": "bottom", "text-margin-y": 3, "min-zoomed-font-size": 8,
        "text-outline-color": colour("--panel"), "text-outline-width": 2, "overlay-opacity": 0, "z-index": 10,
      },
    },
    {
      selector: "edge",
      style: { width: "data(width)", "line-color": colour("--link"), "curve-style": "haystack", "haystack-radius": 0, opacity: 0.85, "overlay-opacity": 0 },
    },
    ...byClass,
    { selector: "node[level = 3]", style: { "border-width": 4, "border-style": "double", "border-color": colour("--ink"), "font-weight": "bold" } },
    { selector: "edge[level = 3]", style: { opacity: 1 } },
    { selector: "node.maintained", style: { shape: "octagon", "border-width": 3, "border-style": "dashed", "border-color": colour("--pressed-ink") } },
    { selector: "node.silent", style: { "background-opacity": 0.25, "border-style": "dotted", "border-color": colour("--congested") } },
    { selector: "edge.leaving", style: { "line-color": colour("--removed"), "line-style": "dashed", "line-dash-pattern": [7, 6], width: 3, opacity: 1, "z-index": 6 } },
    { selector: "edge.coming", style: { "line-color": colour("--added"), "line-style": "dotted", width: 4, opacity: 1, "z-index": 7 } },
    { selector: "edge.fresh, edge.arrived", style: { "line-color": colour("--added"), "line-style": "solid", width: 5.5, opacity: 1, "z-index": 7 } },
    { selector: "edge.gone", style: { "line-color": colour("--removed"), "line-style": "dashed", width: 2.5, opacity: 0.7 } },
    {
      selector: "edge.move",
      style: {
        "curve-style": "unbundled-bezier", "control-point-distances": 38, "control-point-weights": 0.5, width: 2,
        "line-color": colour("--moved"), "line-style": "dashed", "line-dash-pattern": [3, 5], "target-arrow-shape": "triangle",
        "target-arrow-color": colour("--moved"), "arrow-scale": 1.1, opacity: 0.95, "z-index": 8, label: "data(label)",
        "font-size": 11, color: colour("--moved"), "text-outline-color": colour("--panel"), "text-outline-width": 2, "min-zoomed-font-size": 9,
      },
    },
    { selector: "node.traveller", style: { width: 11, height: 11, shape: "diamond", "background-color": colour("--moved"), "border-width": 1, "border-color": colour("--panel"), label: "", events: "no", "z-index": 20 } },
    { selector: ".dimmed", style: { opacity: 0.16 } },
    { selector: "node:selected", style: { "border-width": 4, "border-style": "solid", "border-color": colour("--accent") } },
    { selector: "edge:selected", style: { "line-color": colour("--accent") } },
  ];
}
