// The overlay as a table: what the map shows, for keys, screen readers and whoever looks for one broker.

import { button, element, icon, pill, showIfOther, table } from "./build_elements.js";
import { amount, clockTime, counted, share, words } from "./format_values.js";
import { CONGESTION_CLASSES, congestionClass } from "./style_map.js";

const SHOWN_MAX = 60;
const YEAR_MS = 365 * 86_400_000;
const ORDERS = {
  load: (one) => -one.load,
  congestion: (one) => -one.congestion,
  publishers: (one) => -one.publishers,
  degree: (one) => -one.degree,
};

export function showBrokerTable(store, desk, map, pane) {
  const filter = element("input", { type: "search", placeholder: "Find a broker", "aria-label": "Find a broker", oninput: () => show() });
  const order = element("select", { "aria-label": "Order", onchange: () => show() },
    element("option", { value: "load" }, "by load"), element("option", { value: "congestion" }, "by congestion"),
    element("option", { value: "publishers" }, "by publishers"), element("option", { value: "degree" }, "by links"), element("option", { value: "name" }, "by name"));
  const note = element("span", { class: "muted" });
  const list = element("div");
  pane.append(element("div", { class: "tools" }, filter, order, note), list);

  function show() {
    const all = findBrokers(store);
    const wanted = filter.value.trim().toLowerCase();
    const found = wanted ? all.filter((one) => one.name.toLowerCase().includes(wanted)) : all;
    const weigh = ORDERS[order.value];
    if (weigh) found.sort((one, other) => weigh(one) - weigh(other) || (one.name < other.name ? -1 : 1));
    const shown = found.slice(0, SHOWN_MAX);
    note.textContent = shown.length < found.length ? `first ${shown.length} of ${found.length}` : counted(found.length, "broker");
    showIfOther(list, [shown, desk.hindrance], () => table(
      ["Broker", "State", "Forwards /s", "Busy", "Queue, longest", "Congestion", "Publishers", "Subscribers", "Links", ""],
      shown.map((one) => [
        button(one.name, () => map.pickBroker(one.name), { class: "link", title: "Show on the map" }),
        one.member ? memberPill(one.member) : one.isKept ? pill("maintenance", "warn", "wrench") : one.isSilent ? pill("telemetry missing", "bad", "alert") : pill("up", "quiet", null),
        amount(one.load), share(one.busy), amount(one.queue), congestionText(one.congestion), amount(one.publishers), subscribersText(one), amount(one.degree),
        one.member ? memberButton(desk, one.member) : desk.button(one.isKept ? "Return" : "Maintain", one.isKept ? "return" : "maintain", one.name, { class: "quiet" }),
      ])));
  }

  store.watch(["network", "configuration", "orders", "members", "window"], () => pane.hidden || show());
  new MutationObserver(() => pane.hidden || show()).observe(pane, { attributes: true, attributeFilter: ["hidden"] });
  desk.watch(show);
}

function findBrokers(store) {
  const { configuration, network, orders, members: fleet, window } = store.parts;
  const members = new Map((fleet?.members ?? []).map((one) => [one.broker, one]));
  const loads = new Map((network?.brokers ?? []).map((one) => [one.broker, one]));
  const kept = new Set((orders?.maintenance ?? []).map((one) => one.broker));
  const silent = new Set(window?.short_brokers ?? []);
  const degrees = new Map();
  for (const pair of configuration?.links ?? []) for (const name of pair) degrees.set(name, (degrees.get(name) ?? 0) + 1);
  const names = [...(configuration?.brokers ?? [])];
  for (const name of members.keys()) if (!names.includes(name)) names.push(name);
  return names.map((name) => {
    const load = loads.get(name);
    return {
      name, member: memberToTell(members.get(name)), isKept: kept.has(name), isSilent: silent.has(name), degree: degrees.get(name) ?? 0, load: load?.notifications_per_s ?? 0, busy: load?.busy_share,
      queue: load?.queue_length_max, congestion: load?.congestion ?? 0, publishers: load?.publishers ?? 0, subscribers: load?.subscribers, movable: load?.movable, staying: load?.staying,
    };
  });
}

function congestionText(congestion) {
  const level = congestionClass(congestion);
  return [element("i", { class: `dot level-${level}` }), ` ${amount(congestion)} ${CONGESTION_CLASSES[level].name}`, level === 3 ? icon("alert") : null].filter(Boolean);
}

// Which subscribers stay is known only where clients stay unless an agent takes them along.
export function subscribersText({ subscribers, movable, staying }) {
  const reasons = Object.entries(staying ?? {}).sort(([, one], [, other]) => other - one).map(([label, count]) => `${count} ${words(label)}`);
  const why = reasons.length ? `, others stay (${reasons.join(", ")})` : "";
  const mayMove = movable === null || movable === undefined ? "" : `, ${movable} may move${why}`;
  return subscribers === null || subscribers === undefined ? "" : `${subscribers}${mayMove}`;
}

// A member that simply serves is shown as any broker.
function memberToTell(member) {
  return member && member.state !== "in_service" ? member : null;
}

// The colour and the icon of a member's state: one that leaves asks for less than one that is dead.
export function memberStyle(state) {
  return { dead: ["bad", "alert"], joining: ["busy", "move"], left: ["quiet", null] }[state] ?? ["warn", "undo"];
}

function memberPill(member) {
  const returns = member.returns_ms > Date.now() + YEAR_MS ? "; does not rejoin automatically" : member.returns_ms ? `; may rejoin from ${clockTime(member.returns_ms)}` : "";
  return pill(words(member.state), ...memberStyle(member.state), `since ${clockTime(member.since_ms)}: ${member.reason}${returns}`);
}

function memberButton(desk, member) {
  return member.state === "joining" ? "" : desk.button("Readmit", "readmit", member.broker, { class: "quiet" });
}
