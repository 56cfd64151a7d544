// Say what cannot be trusted right now: the connection, the live view, the controller's news; and chips at the top.

import { element, icon, pill, showIfOther } from "./build_elements.js";
import { memberStyle } from "./show_brokers.js";
import { amount, clockTime, shortList, span, words } from "./format_values.js";

const SERVED_OR_GONE = ["in_service", "left"];

export function showBanners(store) {
  const place = document.getElementById("banners");
  const chips = document.getElementById("chips");
  const startedMs = Date.now();

  function show() {
    const banners = findBanners(store, Date.now() - startedMs);
    showIfOther(place, banners, () => banners.map(({ kind, text }) =>
      element("p", { class: `banner ${kind}` }, icon(kind === "bad" ? "alert" : "clock"), element("span", {}, text))));
    document.body.classList.toggle("is-old", !store.isLive && store.version > 0);
    const shown = findChips(store);
    showIfOther(chips, shown, () => shown.map(([text, kind, iconName, title]) => pill(text, kind, iconName, title)));
    document.title = `${store.proposedPlans.length ? "(1) " : ""}Regraft ${store.parts.server?.namespace ?? ""}`.trim();
  }

  store.watch(["server", "link", "counts", "orders", "members", "configuration", "plans"], show);
  setInterval(show, 1000);
}

function findBanners(store, openMs) {
  const server = store.parts.server;
  const found = [];
  if (store.link.needsLogin) {
    return [{ kind: "wait", text: "Sign in to see the overlay: this dashboard shows it only to holders of a token." }];
  }
  if (!store.link.isOpen && openMs > 2500) {
    const seen = store.version ? ` This page shows the state of ${clockTime(lastSeenMs(store))}.` : "";
    found.push({ kind: "bad", text: `The dashboard's server has not answered since ${clockTime(store.link.sinceMs)}; the page keeps trying.${seen}` });
    return found;
  }
  if (!server) return found;
  if (server.view === "away") {
    const seen = store.parts.counts ? ` This page shows the state of ${clockTime(lastSeenMs(store))}.` : "";
    found.push({ kind: "bad", text: `The live view's server has been unreachable since ${clockTime(server.since_ms)}.${seen} Regraft itself does not need it. (${server.reason})` });
  } else if (server.view === "empty") {
    found.push({ kind: "wait", text: `No controller writes the live view of ${server.namespace} yet: check that it runs with the same redis.url and namespace.` });
  } else if (store.silentMs !== null && store.silentMs >= server.stale_ms) {
    found.push({ kind: "bad", text: `No update from the controller for ${span(store.silentMs)}. This page shows the state of ${clockTime(server.news_ms)}.` });
  }
  for (const error of server.errors ?? []) found.push({ kind: "bad", text: `${error}.` });
  return found;
}

function lastSeenMs(store) {
  return store.parts.server?.news_ms ?? store.parts.server?.looked_ms ?? 0;
}

function findChips(store) {
  const { server, counts, configuration, orders, members } = store.parts;
  const chips = [];
  if (server && server.namespace !== "regraft") chips.push([server.namespace, "quiet", null, "Namespace of topics and keys"]);
  if (counts) {
    if (counts.dry_run) chips.push(["manual approval", "ask", "eye", "A dry run: plans wait for an operator's approval"]);
    else chips.push(["automatic", "quiet", null, "Plans are executed without asking"]);
  }
  if (orders?.paused) chips.push(["paused", "warn", "pause", orders.paused.reason]);
  if (orders?.maintenance?.length) chips.push([`maintenance ${orders.maintenance.map((one) => one.broker).slice(0, 3).join(", ")}`, "warn", "wrench", null]);
  chips.push(...memberChips(members));
  if (configuration) chips.push([`epoch ${configuration.epoch}`, "quiet", null, "Number of the overlay in force"]);
  if (counts?.leader) chips.push([`term ${counts.term}`, "quiet", null, `${counts.leader} leads: each controller that takes over begins a term`]);
  if (counts) chips.push([words(counts.planner).replaceAll("+", " + "), "quiet long", null, `Planners: ${counts.planner}`]);
  return chips;
}

// Who does not simply serve, by state; and how much passed brokers that are gone and still in the overlay.
function memberChips(fleet) {
  const chips = [];
  for (const state of Object.keys(fleet?.counts ?? {}).sort()) {
    const found = (fleet.members ?? []).filter((one) => one.state === state);
    if (!found.length || SERVED_OR_GONE.includes(state)) continue;
    const why = found.slice(0, 10).map((one) => `${one.broker}: ${one.reason}`).join("\n");
    chips.push([`${words(state)} ${shortList(found.map((one) => one.broker), 3)}`, ...memberStyle(state), why]);
  }
  const asking = fleet?.announced ?? [];
  if (asking.length) chips.push([`asks to join ${shortList(asking.map((one) => one.broker), 3)}`, "ask", "eye", asking.slice(0, 10).map((one) => `${one.broker}: ${one.to_do}`).join("\n")]);
  const atRisk = fleet && "traffic_at_risk_per_s" in fleet ? fleet.traffic_at_risk_per_s : 0;
  if (atRisk !== 0) chips.push([`at risk ${amount(atRisk)} /s`, "bad", "alert", "Notifications a second that had to pass dead brokers: lost until the overlay is repaired"]);
  return chips;
}
