// Answer an operator's three questions in words: is it healthy, what is it doing, what does it want from me.

import { element, icon, showIfOther } from "./build_elements.js";
import { amount, clockTime, counted, readable, shortList, span, words } from "./format_values.js";

const COMPLETE_LOOKED_AT = 20;
const REASONS_SHOWN = 2;

export function showHeadline(store, desk) {
  const place = document.getElementById("headline");
  const cards = ["Is it healthy?", "What is it doing?", "What does it need from me?"].map((question) => {
    const body = element("div", { class: "answer" });
    const card = element("article", { class: "card" }, element("h2", {}, question), body);
    place.append(card);
    return { card, body };
  });

  function show() {
    const answers = [howItIs(store), whatItDoes(store), whatItWants(store)];
    document.body.classList.toggle("is-calm", answers.every(({ kind }) => kind === "good" || kind === "calm"));
    answers.forEach((answer, number) => {
      const { card, body } = cards[number];
      card.className = `card ${answer.kind}`;
      showIfOther(body, [answer, desk.hindrance], () => [
        element("p", { class: "short" }, icon(answer.icon), element("span", {}, answer.short)),
        element("p", { class: "long" }, answer.long),
        answer.phase ? phaseSteps(store, answer.phase) : null,
        answer.orders?.length ? element("p", { class: "acts" }, answer.orders.map(([text, kind]) => desk.button(text, kind, "overlay"))) : null,
      ]);
    });
  }

  store.watch(["server", "verdict", "link", "counts", "window", "windows", "plans", "alerts", "orders", "last_decision", "configuration"], show);
  desk.watch(show);
  setInterval(show, 1000);
}

export function phaseSteps(store, phase) {
  const reached = store.phaseSteps.indexOf(phase);
  return element("ol", { class: "steps" }, store.phaseSteps.map((step, number) =>
    element("li", { class: number < reached ? "done" : number === reached ? "now" : "", "aria-current": number === reached ? "step" : null }, step)));
}

// The verdict is the server's, by the rule of `regraft status`.
function howItIs(store) {
  const { server, verdict, windows = [], configuration } = store.parts;
  if (!store.version || !server) return { kind: "unknown", icon: "clock", short: "Connecting", long: "Waiting for the first data." };
  if (!store.link.isOpen || server.view === "away" || !verdict) return { kind: "unknown", icon: "ask", short: "Unknown", long: "This page is out of date; see the reason above." };
  const short = sentence(verdict.verdict);
  if (verdict.verdict === "not running") return { kind: server.view === "empty" ? "unknown" : "bad", icon: "alert", short, long: reasonsText(verdict.reasons) };
  if (verdict.verdict !== "healthy") {
    const isCritical = store.activeAlerts.some((alert) => alert.severity === "critical");
    return { kind: isCritical ? "bad" : "warn", icon: "alert", short, long: reasonsText(verdict.reasons) };
  }
  const { warnings } = verdict;
  if (warnings.length) return { kind: "warn", icon: "alert", short, long: `${counted(warnings.length, "warning")}: ${reasonsText(warnings)}` };
  const last = windows.slice(-COMPLETE_LOOKED_AT);
  const complete = last.filter((point) => point.is_complete).length;
  const heard = configuration ? counted(configuration.brokers.length, "broker") : "all brokers";
  const rate = last.at(-1)?.notifications_per_s;
  return {
    kind: "good", icon: "check", short,
    long: `${heard} report, ${complete} of the last ${last.length} windows are complete, ${amount(rate)} notifications a second. No alerts.`,
  };
}

function reasonsText(reasons) {
  const shown = reasons.slice(0, REASONS_SHOWN).map((reason) => sentence(readable(reason).replace(/\.$/, "")));
  const more = reasons.length - shown.length;
  return `${shown.join(". ")}.${more ? ` And ${more} more: see \`regraft status\`.` : ""}`;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function whatItDoes(store) {
  const { counts, orders, last_decision: decision, window } = store.parts;
  const plan = store.planUnderWay;
  const pauseOrders = orders?.paused ? [["Resume", "resume"]] : [["Pause", "pause"]];
  if (!counts) return { kind: "unknown", icon: "clock", short: "Unknown", long: "The controller has not reported yet." };
  if (plan && !store.facts(plan.phase).is_moving) {
    return { kind: "busy", icon: "eye", short: `Checking ${plan.plan}`, phase: plan.phase, orders: pauseOrders, long: `It is in force; the next windows show what it saves. Predicted: ${amount(plan.cost_before_per_s - plan.cost_predicted_per_s)} of ${amount(plan.cost_before_per_s)} a second.` };
  }
  if (plan) {
    return { kind: "busy", icon: "move", short: `Executing ${plan.plan}`, phase: plan.phase, orders: pauseOrders, long: `${changesText(plan)}; ${readable(plan.history.at(-1)?.reason)}.` };
  }
  if (orders?.paused) {
    const { by, reason, until_ms: untilMs } = orders.paused;
    return { kind: "warn", icon: "pause", short: "Paused", orders: pauseOrders, long: `By ${by}${untilMs ? ` until ${clockTime(untilMs)}` : ""}: ${reason}` };
  }
  const waiting = store.proposedPlans.at(-1);
  const long = waiting ? `Nothing else is planned until ${waiting.plan} is decided.` : whyNothing(decision, window, counts);
  return { kind: "calm", icon: "eye", short: "Watching", orders: pauseOrders, long };
}

function whyNothing(decision, window, counts) {
  if (!decision) return window ? "No decision has been made yet." : "It waits for the first window.";
  const about = `Window of ${clockTime(decision.window_end_ms)}`;
  if (decision.state_verdict) return `${about}: ${readable(decision.state_reason) || words(decision.state_verdict)}.`;
  if (decision.plan) return `${about}: a plan was proposed. ${counts.plans_completed} executed so far.`;
  const count = decision.refused?.length ?? 0;
  return count ? `${about}: ${counted(count, "change")} considered, none worthwhile (${words(decision.refused[0].verdict)}).` : `${about}: nothing to improve.`;
}

function whatItWants(store) {
  const proposed = store.proposedPlans;
  if (proposed.length) {
    const plan = proposed.at(-1);
    return { kind: "ask", icon: "ask", short: "Your decision", long: `${plan.plan} waits for approval: ${changesText(plan)} would ${effectText(plan)}.` };
  }
  const loud = store.activeAlerts.filter((alert) => alert.severity !== "info" && !alert.is_silenced);
  if (loud.length) return { kind: loud.some((alert) => alert.severity === "critical") ? "bad" : "warn", icon: "alert", short: `Look at ${counted(loud.length, "alert")}`, long: shortList(loud.map((alert) => `${words(alert.rule)} at ${alert.subject}`), 3) };
  const { paused, maintenance = [] } = store.parts.orders ?? {};
  if (paused && !paused.until_ms) return { kind: "warn", icon: "pause", short: "Resume when ready", long: `Paused for ${span(store.controllerNowMs - paused.since_ms)} without an end.` };
  if (maintenance.length) return { kind: "calm", icon: "wrench", short: "Nothing", long: `${shortList(maintenance.map((one) => one.broker))} in maintenance.` };
  return { kind: "calm", icon: "check", short: "Nothing", long: "No plan waits for approval, and no alert is open." };
}

// A plan that repairs the overlay, or admits or releases brokers, is not made to save anything.
export function isMembership(plan) {
  return plan.proposals.some((one) => one.planner === "repair" || one.planner === "membership");
}

function effectText(plan) {
  return isMembership(plan) ? `make the overlay whole: ${plan.proposals[0].reason}` : `save ${amount(plan.cost_before_per_s - plan.cost_predicted_per_s)} a second`;
}

export function changesText(plan) {
  const texts = [];
  if (plan.links_added?.length || plan.links_removed?.length) texts.push(counted(Math.max(plan.links_added.length, plan.links_removed.length), "link"));
  if (plan.move_count) texts.push(counted(plan.move_count, "client move"));
  if (plan.subscribers_moved?.length) texts.push(`subscribers of ${counted(plan.subscribers_moved.length, "broker")}`);
  if (plan.id_move_count) texts.push(counted(plan.id_move_count, plan.has_places ? "place" : "ring ID"));
  return texts.join(", ") || "no change";
}
