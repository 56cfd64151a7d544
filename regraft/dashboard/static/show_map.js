// The overlay as a drawing that keeps up with the state: brokers, links, what they carry.

import { button, element, icon, showIfOther } from "./build_elements.js";
import { counted } from "./format_values.js";
import { forceOptions, layoutNote, layoutsFor, placesOf, ringOf, spiralOf } from "./lay_out_map.js";
import { PlanPicture, linkId, nodeId } from "./picture_plan.js";
import { CONGESTION_CLASSES, congestionClass, linkWidth, mapStyle, nodeSize } from "./style_map.js";

const ANIMATED_BROKERS_MAX = 300;
const CROWDED_BROKERS = 300; // From here on drawing is made cheaper where one hardly sees it.
const LINKS_DRAWN_MAX = 3000; // More cannot be told apart; the busiest are drawn then.
const FRESH_MS = 6000; // How long a link that came or went is shown as such.
const PADDING_PX = 34;

export class OverlayMap {
  constructor(store) {
    this._store = store;
    this._choice = null;
    this._placedBy = "";
    this._pickers = [];
    this._userMoved = false;
    this.drawnMs = 0; // How long the last redraw of loads took.
    this.cy = cytoscape({
      container: document.getElementById("map"), style: mapStyle(), minZoom: 0.02, maxZoom: 4,
      boxSelectionEnabled: false, selectionType: "single", autoungrabify: true, textureOnViewport: true, hideEdgesOnViewport: false,
    });
    this.plan = new PlanPicture(this.cy, store);
    this.cy.on("tap", (event) => this._pick(event.target));
    new ResizeObserver(() => { this.cy.resize(); if (!this._userMoved) this.fit(); }).observe(document.getElementById("map"));
    document.getElementById("map").addEventListener("wheel", () => (this._userMoved = true), { passive: true });
    document.getElementById("map").addEventListener("pointerdown", () => (this._userMoved = true));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.cy.style(mapStyle()));
    store.watch(["configuration", "map"], () => this._showOverlay());
    store.watch(["network", "orders", "window", "configuration"], () => this._showLoads());
    store.watch(["plans"], () => this.plan.show());
    this._showLegend();
  }

  // Call `show` with what was chosen on the map: {broker}, {link: [a, b]} or null.
  onPick(show) {
    this._pickers.push(show);
  }

  // Choose a broker from elsewhere on the page, and bring it into view.
  pickBroker(name) {
    const node = this.cy.$id(nodeId(name));
    if (node.empty()) return;
    this.cy.$(":selected").unselect();
    node.select();
    this._userMoved = true;
    this.cy.animate({ center: { eles: node }, zoom: Math.max(this.cy.zoom(), 1), duration: this._animationMs });
    for (const show of this._pickers) show({ broker: name });
  }

  fit() {
    this._userMoved = false;
    const own = this.cy.nodes().not(".traveller");
    this.cy.fit(own, PADDING_PX);
  }

  _pick(target) {
    let chosen = null;
    if (target !== this.cy && target.isNode() && target.data("name")) chosen = { broker: target.data("name") };
    if (target !== this.cy && target.isEdge() && target.data("pair")) chosen = { link: target.data("pair") };
    for (const show of this._pickers) show(chosen);
  }

  get _animationMs() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches || this.cy.nodes().length > ANIMATED_BROKERS_MAX ? 0 : 600;
  }

  _showOverlay() {
    const configuration = this._store.parts.configuration;
    const empty = document.getElementById("map-empty");
    empty.hidden = Boolean(configuration);
    if (!configuration) {
      empty.textContent = "No overlay yet: the controller has not reported one.";
      return;
    }
    const isFirst = this.cy.nodes("[name]").empty();
    this._reconcile(configuration, isFirst);
    const layouts = layoutsFor(configuration, this._store.parts.map);
    const name = layouts.some(([each]) => each === this._choice) ? this._choice : layouts[0][0];
    this._showTools(layouts, name);
    const placedBy = this._placeKey(name, configuration);
    if (placedBy !== this._placedBy) this._place(name, configuration, isFirst);
    this._placedBy = placedBy;
    this.plan.show();
    const all = configuration.links.length;
    const links = all > LINKS_DRAWN_MAX ? `the ${LINKS_DRAWN_MAX.toLocaleString("en")} busiest of ${counted(all, "link")}` : counted(all, "link");
    document.getElementById("map-note").textContent =
      `${counted(configuration.brokers.length, "broker")}, ${links}, ${layoutNote(name, this._store.parts.map)}`;
  }

  // What the places rest on: brokers are placed anew only when that changes.
  _placeKey(name, configuration) {
    const { map } = this._store.parts;
    const brokers = configuration.brokers.length;
    if (name === "ring") return JSON.stringify(["ring", configuration.ring]);
    return JSON.stringify([name, brokers, name === "places" ? [map.source, Object.values(map.places)[0]] : null]);
  }

  _reconcile(configuration, isFirst) {
    const { cy } = this;
    const wanted = new Map(this._linksToDraw(configuration).map(([a, b]) => [linkId(a, b), [a, b]]));
    const names = new Set(configuration.brokers);
    cy.batch(() => {
      cy.nodes("[name]").filter((node) => !names.has(node.data("name"))).remove();
      const added = configuration.brokers.filter((name) => cy.$id(nodeId(name)).empty());
      cy.add(added.map((name) => ({ data: { id: nodeId(name), name, label: name, size: 16, level: 0 }, position: { x: 0, y: 0 } })));
      for (const edge of cy.edges("[pair]")) {
        if (wanted.has(edge.id()) || edge.hasClass("gone") || edge.hasClass("drawn")) continue;
        edge.removeClass("leaving fresh arrived").addClass("gone");
        setTimeout(() => { if (edge.hasClass("gone")) edge.remove(); }, FRESH_MS);
      }
      for (const [id, pair] of wanted) {
        const known = cy.$id(id);
        if (known.nonempty() && !known.hasClass("gone") && !known.hasClass("drawn")) continue;
        known.remove();
        const edge = cy.add({ data: { id, pair, source: nodeId(pair[0]), target: nodeId(pair[1]), width: 1.5, level: 0 } });
        if (isFirst) continue;
        edge.addClass("fresh");
        setTimeout(() => edge.removeClass("fresh"), FRESH_MS);
      }
    });
    const isCrowded = configuration.brokers.length >= CROWDED_BROKERS;
    cy.renderer().hideEdgesOnViewport = isCrowded;
  }

  // Of very many links the busiest, as they were when this overlay came into force.
  _linksToDraw({ links, epoch }) {
    if (links.length <= LINKS_DRAWN_MAX) return links;
    if (this._chosen?.epoch === epoch && this._chosen.hadLoads) return this._chosen.links;
    const loads = new Map((this._store.parts.network?.links ?? []).map((one) => [linkId(one.a, one.b), one.notifications_per_s]));
    const loadOf = new Map(links.map((pair) => [pair, loads.get(linkId(...pair)) ?? 0]));
    const busiest = [...links].sort((one, other) => loadOf.get(other) - loadOf.get(one)).slice(0, LINKS_DRAWN_MAX);
    this._chosen = { epoch, links: busiest, hadLoads: loads.size > 0 };
    return busiest;
  }

  _place(name, configuration, isFirst) {
    const { map } = this._store.parts;
    const nodes = this.cy.nodes("[name]");
    if (name === "force") {
      if (isFirst) {
        const place = spiralOf(configuration);
        nodes.positions((node) => place(node.data("name")));
      }
      this.cy.elements().not(".move, .traveller").layout(forceOptions(nodes.length)).run();
      this.fit();
      return;
    }
    const place = name === "ring" ? ringOf(configuration) : placesOf(configuration, map);
    const animationMs = isFirst ? 0 : this._animationMs;
    const layout = nodes.layout({
      name: "preset", positions: (node) => place(node.data("name")), fit: true, padding: PADDING_PX,
      animate: animationMs > 0, animationDuration: animationMs, animationEasing: "ease-in-out-cubic",
    });
    layout.run();
    this._userMoved = false;
  }

  _showTools(layouts, chosen) {
    showIfOther(document.getElementById("map-tools"), [layouts, chosen], () => [
      element("div", { class: "choice", role: "group", "aria-label": "Layout" }, layouts.map(([name, text]) =>
        button(text, () => { this._choice = name; this._showOverlay(); }, { "aria-pressed": String(name === chosen), "data-layout": name }))),
      button("Fit", () => this.fit(), { title: "Show the whole overlay" }),
    ]);
  }

  _showLoads() {
    const began = performance.now();
    const { network, orders, window, configuration } = this._store.parts;
    if (!configuration) return;
    const maintained = new Set((orders?.maintenance ?? []).map((one) => one.broker));
    const silent = new Set(window?.short_brokers ?? []);
    const brokers = new Map((network?.brokers ?? []).map((one) => [one.broker, one]));
    const links = new Map((network?.links ?? []).map((one) => [linkId(one.a, one.b), one]));
    const largest = (loads) => [...loads.values()].reduce((most, one) => Math.max(most, one.notifications_per_s), 0);
    const [brokerMost, linkMost] = [largest(brokers), largest(links)];
    this.cy.batch(() => {
      for (const node of this.cy.nodes("[name]")) {
        const name = node.data("name");
        const load = brokers.get(name);
        const level = congestionClass(load?.congestion);
        const publishers = load?.publishers ? ` ◆${load.publishers}` : "";
        setData(node, { size: nodeSize(load?.notifications_per_s ?? 0, brokerMost), level, label: `${name}${publishers}${level === 3 ? " !" : ""}` });
        setClass(node, "maintained", maintained.has(name));
        setClass(node, "silent", silent.has(name));
      }
      for (const edge of this.cy.edges("[pair]")) {
        const load = links.get(edge.id());
        setData(edge, { width: linkWidth(load?.notifications_per_s ?? 0, linkMost), level: congestionClass(load?.congestion) });
      }
    });
    this.drawnMs = performance.now() - began;
  }

  _showLegend() {
    const classes = CONGESTION_CLASSES.map(({ name, least }, number) => {
      const until = CONGESTION_CLASSES[number + 1];
      const text = until ? `${name} (${least}–${until.least})` : `${name} ! (${least}+)`;
      return element("span", {}, element("i", { class: `dot level-${number}` }), text);
    });
    document.getElementById("legend").replaceChildren(
      element("span", { class: "group" }, element("b", {}, "Congestion "), ...classes),
      element("span", { class: "group" }, element("b", {}, "Plan "),
        element("span", {}, element("i", { class: "line removed" }), "removed"),
        element("span", {}, element("i", { class: "line added" }), "added"),
        element("span", {}, element("i", { class: "line moved" }), "client moves")),
      element("span", { class: "group" }, element("b", {}, "Size "), "broker and link by notifications a second"),
      element("span", { class: "group" }, "◆ publishers", element("span", {}, icon("wrench"), "octagon: maintenance")));
  }
}

// Touch only what changed: each touch costs a look at all styles.
function setData(one, values) {
  for (const [name, value] of Object.entries(values)) if (one.data(name) !== value) one.data(name, value);
}

function setClass(one, name, wanted) {
  if (one.hasClass(name) !== wanted) one.toggleClass(name, wanted);
}
