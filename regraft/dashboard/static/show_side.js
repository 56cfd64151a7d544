// Beside the map: what was chosen on it, and the plan under way or the last one.

import { button, definitionList, element, icon, pill, showIfOther } from "./build_elements.js";
import { amount, clockTime, idMoveText, milliseconds, readable, share, shortList } from "./format_values.js";
import { changesText, isMembership, phaseSteps } from "./show_headline.js";
import { subscribersText } from "./show_brokers.js";
import { phasePill } from "./show_plans.js";
import { congestionClass, CONGESTION_CLASSES } from "./style_map.js";

const NEIGHBOURS_SHOWN = 12;
const LINES_OF_EACH = 3;

export function showSide(store, desk, map) {
  const side = document.getElementById("side");
  const details = element("section", { class: "panel details", "aria-live": "polite", hidden: true });
  const plan = element("section", { class: "panel" });
  const facts = element("section", { class: "panel" });
  side.append(details, plan, facts);
  let chosen = null;

  map.onPick((picked) => {
    chosen = picked;
    showDetails();
  });

  function showDetails() {
    details.hidden = chosen === null;
    if (chosen === null) return;
    const content = chosen.broker ? brokerContent(store, chosen.broker) : linkContent(store, chosen.link);
    showIfOther(details, [content, desk.hindrance], () => [
      element("div", { class: "panel-head" }, element("h2", {}, content.title), ...(content.pills ?? []).map(([text, kind, name]) => pill(text, kind, name)),
        button("Close", () => { chosen = null; map.cy.$(":selected").unselect(); showDetails(); }, { class: "quiet" })),
      definitionList(content.rows),
      content.note ? element("p", { class: "muted" }, content.note) : null,
      content.order ? element("p", { class: "acts" }, desk.button(content.order[0], content.order[1], chosen.broker)) : null,
    ]);
  }

  function showPlan() {
    const shown = store.movingPlan ?? store.plans.findLast((one) => !store.isProposed(one)) ?? null;
    showIfOther(plan, [shown, store.proposedPlans.at(-1)?.plan, desk.hindrance], () => planContent(store, shown, desk));
  }

  function showFacts() {
    const { counts, window, horizon } = { ...store.parts, horizon: store.parts.counts?.horizon };
    showIfOther(facts, [counts && { ...counts, decision_ms: null }, window], () => [
      element("div", { class: "panel-head" }, element("h2", {}, "Loop")),
      counts ? definitionList([
        ["Plans", `${counts.plans_completed} executed, ${counts.plans_aborted} aborted, ${counts.plans_undone} rolled back`],
        ["Windows", `${counts.windows_closed} closed, ${counts.windows_incomplete} incomplete`],
        ["Look-back", horizon ? `${horizon.windows} windows${horizon.lifetime_s ? `; mean subscription lifetime ${amount(horizon.lifetime_s)} s` : ""}` : null],
        ["Longest queue", window ? amount(window.queue_length_max) : null],
        ["Longest path", window?.rtt_ms_max ? `${milliseconds(window.rtt_ms_max)} round trip` : null],
        ["Users", window?.users ? `${amount(window.users)}, ${amount(window.users_strayed)} not where they should be` : null],
        ["Since", clockTime(counts.started_ms)],
      ]) : element("p", { class: "muted" }, "Nothing yet."),
    ]);
  }

  store.watch(["plans"], showPlan);
  store.watch(["counts", "window"], showFacts);
  store.watch(["network", "orders", "configuration", "window"], showDetails);
  desk.watch(() => { showPlan(); showDetails(); });
}

function planContent(store, plan, desk) {
  const waiting = store.proposedPlans.at(-1);
  if (!plan && waiting) return [element("div", { class: "panel-head" }, element("h2", {}, `${waiting.plan} waits for approval`)), element("p", { class: "muted" }, "It waits for your decision at the top of this page. No plan has been executed yet.")];
  if (!plan) return [element("div", { class: "panel-head" }, element("h2", {}, "No plan yet")), element("p", { class: "muted" }, "The first one is proposed when a change is worth its transition cost.")];
  const facts = store.facts(plan.phase);
  const saves = plan.cost_before_per_s - plan.cost_predicted_per_s;
  const change = plan.history.at(-1);
  return [
    element("div", { class: "panel-head" }, element("h2", {}, facts.is_under_way ? plan.plan : `Last plan: ${plan.plan}`), phasePill(store, plan.phase)),
    facts.is_under_way && !facts.is_aborted ? phaseSteps(store, plan.phase) : null,
    isMembership(plan) ? element("p", {}, `${changesText(plan)}: ${readable(plan.proposals[0].reason)}.`)
      : element("p", {}, `${changesText(plan)}, predicted to save `, element("b", {}, `${amount(saves)} a second (${share(saves / plan.cost_before_per_s)})`), "."),
    element("ul", { class: "changes" }, firstOfEach(changeLines(plan)).map(([kind, text]) => element("li", { class: kind }, text))),
    changeCount(plan) > firstOfEach(changeLines(plan)).length
      ? element("p", { class: "muted" }, `and ${changeCount(plan) - firstOfEach(changeLines(plan)).length} more: see Plans`) : null,
    change ? element("p", { class: "muted" }, `${clockTime(change.time_ms)} ${change.phase}: ${readable(change.reason)}`) : null,
    facts.orders.includes("cancel") ? element("p", { class: "acts" }, desk.button("Cancel this plan", "cancel", plan.plan, { class: "bad" })) : null,
  ];
}

function firstOfEach(lines) {
  return ["removed", "added", "moved"].flatMap((kind) => lines.filter(([one]) => one === kind).slice(0, LINES_OF_EACH));
}

// How many changes a plan has, those included that the view cuts off.
export function changeCount(plan) {
  return (plan.links_removed?.length ?? 0) + (plan.links_added?.length ?? 0) + movedCount(plan);
}

export function movedCount(plan) {
  return (plan.move_count ?? 0) + (plan.id_move_count ?? 0) + (plan.subscribers_moved?.length ?? 0);
}

// Each change of a plan in a line: [kind, text].
export function changeLines(plan) {
  return [
    ...(plan.links_removed ?? []).map(([a, b]) => ["removed", `− ${a} – ${b}`]),
    ...(plan.links_added ?? []).map(([a, b]) => ["added", `+ ${a} – ${b}`]),
    ...(plan.moves ?? []).map((move) => ["moved", `◆ ${move.client}: ${move.home_from} → ${move.home_to}`]),
    ...(plan.subscribers_moved ?? []).map((move) => ["moved", `◆ subscribers of ${move.home_from} → ${move.home_to}`]),
    ...(plan.id_moves ?? []).map((move) => ["moved", idMoveText(move, plan.has_places)]),
  ];
}

function brokerContent(store, name) {
  const { configuration, network, orders, window } = store.parts;
  const load = network?.brokers?.find((one) => one.broker === name);
  const kept = orders?.maintenance?.find((one) => one.broker === name);
  const links = (configuration?.links ?? []).filter((pair) => pair.includes(name));
  const neighbours = links.map(([a, b]) => (a === name ? b : a));
  const ringId = configuration?.ring?.find(([broker]) => broker === name)?.[1];
  const isSilent = window?.short_brokers?.includes(name);
  return {
    title: name,
    pills: [
      ...(kept ? [["maintenance", "warn", "wrench"]] : []),
      ...(isSilent ? [["telemetry missing", "bad", "alert"]] : []),
      ...(load ? [congestionPill(load.congestion)] : []),
    ],
    rows: [
      ["Forwards", load ? `${amount(load.notifications_per_s)} notifications a second` : "not measured"],
      ["Busy", load ? share(load.busy_share) : null],
      ["Queue", load ? `${amount(load.queue_length_last)} now, ${amount(load.queue_length_max)} at most` : null],
      ["Congestion", load ? amount(load.congestion) : null],
      ["Publishers", load ? String(load.publishers) : null],
      ["Subscribers", load ? subscribersText(load) || null : null],
      ["Ring ID", ringId === undefined ? null : String(ringId)],
      ["Links", `${links.length}: ${shortList(neighbours, NEIGHBOURS_SHOWN)}`],
      ["Maintenance", kept ? `by ${kept.by} since ${clockTime(kept.since_ms)}${kept.until_ms ? ` until ${clockTime(kept.until_ms)}` : ""}: ${kept.reason}` : null],
    ],
    order: kept ? ["Return from maintenance", "return"] : ["Begin maintenance", "maintain"],
  };
}

function linkContent(store, [a, b]) {
  const { network, configuration } = store.parts;
  const load = network?.links?.find((one) => (one.a === a && one.b === b) || (one.a === b && one.b === a));
  const isThere = configuration?.links?.some((pair) => pair.includes(a) && pair.includes(b));
  return {
    title: `${a} – ${b}`,
    pills: [...(isThere ? [] : [["not in force", "quiet", null]]), ...(load ? [congestionPill(load.congestion)] : [])],
    rows: [
      ["Carries", load ? `${amount(load.notifications_per_s)} notifications a second, both directions` : "nothing measured"],
      ["Bytes", load ? `${amount(load.bytes_per_s)} a second` : null],
      ["Round trip", load?.rtt_ms ? milliseconds(load.rtt_ms) : "not measured"],
      ["Longest queue", load ? amount(load.queue_length_max) : null],
      ["Congestion", load ? amount(load.congestion) : null],
    ],
  };
}

function congestionPill(congestion) {
  const level = congestionClass(congestion);
  return [CONGESTION_CLASSES[level].name, ["quiet", "quiet", "warn", "bad"][level], level > 1 ? "alert" : null];
}
