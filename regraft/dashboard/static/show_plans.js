// Plans as a list that opens: changes and reasons, what was refused and why, predicted against observed.

import { element, pill, showIfOther, table } from "./build_elements.js";
import { amount, clockTime, counted, idMoveText, milliseconds, readable, share, words } from "./format_values.js";
import { changesText } from "./show_headline.js";

const SHOWN_FIRST = 25;

export function phasePill(store, phase) {
  return pill(phase, ...phaseLook(store.facts(phase)));
}

// A phase's colour and icon.
function phaseLook(facts) {
  if (facts.orders.includes("approve")) return ["ask", "ask"];
  if (facts.is_aborted) return ["bad", "cross"];
  if (facts.is_final) return facts.is_in_force ? ["good", "check"] : ["quiet", "cross"];
  return facts.is_under_way && !facts.is_moving ? ["busy", "eye"] : ["busy", "move"];
}

// Fill `body` with the plans, the newest first; what is open stays open.
export function showPlanList(store, body) {
  const open = new Set();
  let most = SHOWN_FIRST;
  const list = element("div", { class: "plan-list" });
  const more = element("button", { type: "button", class: "quiet", onclick: () => { most += SHOWN_FIRST; show(); } });
  const none = element("p", { class: "muted" }, "No plan yet. A plan is proposed when a change saves more than it costs, beyond the noise.");
  const rows = new Map();
  body.append(list, none, more);

  function show() {
    const plans = store.plans.slice(-most).reverse();
    const wanted = new Set(plans.map((plan) => plan.plan));
    for (const [name, row] of rows) {
      if (wanted.has(name)) continue;
      row.remove();
      rows.delete(name);
    }
    let place = list.firstElementChild;
    for (const plan of plans) {
      let row = rows.get(plan.plan);
      if (!row) {
        row = planRow(plan.plan, open, () => show());
        rows.set(plan.plan, row);
      }
      if (row === place) place = place.nextElementSibling;
      else list.insertBefore(row, place);
      showIfOther(row.querySelector("summary"), plan, () => summaryContent(plan, store));
      if (open.has(plan.plan)) showIfOther(row.querySelector(".plan-body"), plan, () => planBody(plan, store));
    }
    more.hidden = store.plans.length <= most;
    more.textContent = `Show older (${Math.max(0, store.plans.length - most)})`;
    none.hidden = plans.length > 0;
  }

  store.watch(["plans"], show);
}

function planRow(name, open, onToggle) {
  const row = element("details", { class: "plan", "data-plan": name }, element("summary", {}), element("div", { class: "plan-body" }));
  row.addEventListener("toggle", () => {
    if (row.open) open.add(name);
    else open.delete(name);
    if (row.open) onToggle();
  });
  return row;
}

export function gains(plan) {
  const predicted = plan.cost_before_per_s - plan.cost_predicted_per_s;
  const told = plan.proposals.map((one) => one.gain_observed_per_s).filter((one) => one !== null && one !== undefined);
  return { predicted, observed: told.length ? told.reduce((sum, one) => sum + one, 0) : null };
}

export function priceOf(plan) {
  return plan.proposals.length ? Math.max(...plan.proposals.map((one) => one.price_per_s)) : null;
}

function summaryContent(plan, store) {
  const { predicted, observed } = gains(plan);
  return [
    element("span", { class: "plan-name" }, plan.plan), phasePill(store, plan.phase),
    element("span", { class: "when" }, clockTime(plan.history[0]?.time_ms)),
    element("span", { class: "what" }, plan.undoes ? `undoes ${plan.undoes}: ` : "", changesText(plan)),
    element("span", { class: "gain" }, `predicted −${amount(predicted)}/s (${share(predicted / plan.cost_before_per_s)})`),
    element("span", { class: "gain" }, observed === null ? "" : `observed ${observed >= 0 ? "−" : "+"}${amount(Math.abs(observed))}/s`),
    gainBars(predicted, observed),
  ];
}

// Predicted above, observed below, on one scale.
function gainBars(predicted, observed) {
  const most = Math.max(Math.abs(predicted), Math.abs(observed ?? 0), 1e-9);
  const bar = (value, kind) => element("meter", { class: kind, min: 0, max: most, value: Math.max(0, value ?? 0), title: `${kind} ${amount(value)}/s` });
  return element("span", { class: "bars", "aria-hidden": "true" }, bar(predicted, "predicted"), observed === null ? null : bar(observed, "observed"));
}

export function planBody(plan, store) {
  const latency = store.parts.counts?.window_close_to_command_ms?.[plan.plan];
  return [
    element("p", { class: "muted" },
      `Epoch ${plan.epoch_from} to ${plan.epoch_to}, on the window that ended ${clockTime(plan.window_end_ms)}. `,
      `Cost ${amount(plan.cost_before_per_s)}/s before, ${amount(plan.cost_predicted_per_s)}/s predicted`,
      plan.sample_share < 1 ? `, estimated from ${share(plan.sample_share)} of the notifications` : "",
      plan.cost_observed_per_s === null ? "" : `; ${amount(plan.cost_observed_per_s)}/s on the later windows that verified it, whose traffic differs`,
      plan.control_messages ? `; ${counted(plan.control_messages, "control message")}` : "",
      latency === undefined ? "." : `; first command ${milliseconds(latency)} after the window's end.`),
    element("h3", {}, "Course"),
    element("ol", { class: "course" }, plan.history.map((change) =>
      element("li", {}, element("time", {}, clockTime(change.time_ms)), " ", phasePill(store, change.phase), " ", readable(change.reason)))),
    element("h3", {}, `Changes and reasons (${plan.proposals.length})`),
    proposalTable(plan.proposals),
    plan.refused?.length ? element("h3", {}, `Refused changes and reasons (${plan.refused.length})`) : null,
    plan.refused?.length ? proposalTable(plan.refused, true) : null,
  ];
}

export function proposalTable(proposals, isRefused = false) {
  const heads = ["Change", "Why it was proposed", "Saves/s", "Price/s", isRefused ? "Refused for" : "Verdict", ...(isRefused ? [] : ["Observed/s"])];
  return table(heads, proposals.map((one) => [
    changeText(one),
    [element("span", {}, readable(one.reason)), element("br"), element("span", { class: "muted" }, words(one.planner))],
    withError(one.cost_before_per_s - one.cost_after_per_s, one.gain_error_per_s),
    amount(one.price_per_s),
    [element("b", {}, words(one.verdict)), one.verdict_reason ? `: ${readable(one.verdict_reason)}` : ""],
    ...(isRefused ? [] : [one.gain_observed_per_s === null ? "not yet" : amount(one.gain_observed_per_s)]),
  ]));
}

// A saving with its standard error, where that is known.
function withError(value, error) {
  return error === null || error === undefined ? amount(value) : `${amount(value)} ± ${amount(error)}`;
}

function changeText(proposal) {
  const lines = [
    ...proposal.links_removed.map(([a, b]) => ["removed", `− ${a} – ${b}`]),
    ...proposal.links_added.map(([a, b]) => ["added", `+ ${a} – ${b}`]),
    ...proposal.moves.slice(0, 6).map((move) => ["moved", `◆ ${move.client}: ${move.home_from} → ${move.home_to}`]),
    ...(proposal.subscribers_moved ?? []).map((move) => ["moved", `◆ subscribers of ${move.home_from} → ${move.home_to}`]),
    ...proposal.id_moves.slice(0, 6).map((move) => ["moved", idMoveText(move, proposal.has_places)]),
  ];
  const rest = Math.max(0, (proposal.move_count ?? 0) - 6) + Math.max(0, (proposal.id_move_count ?? 0) - 6);
  if (rest) lines.push(["muted", `and ${rest} more`]);
  return element("ul", { class: "changes" }, lines.map(([kind, text]) => element("li", { class: kind }, text)));
}
