// Alerts, events, refusals, planners, services: each a list that fills one tab.

import { element, pill, showIfOther, table } from "./build_elements.js";
import { amount, clockTime, counted, milliseconds, readable, span, words } from "./format_values.js";
import { proposalTable } from "./show_plans.js";

const EVENTS_SHOWN_MAX = 200;
const SEVERITIES = { info: ["quiet", null], warning: ["warn", "alert"], critical: ["bad", "alert"] };

function severityPill(severity) {
  const [kind, iconName] = SEVERITIES[severity] ?? ["quiet", null];
  return pill(severity, kind, iconName);
}

export function showAlerts(store, pane) {
  const active = element("div");
  const recent = element("div");
  pane.append(element("h3", {}, "Active"), active, element("h3", {}, "Recent"), recent);

  function show() {
    const alerts = store.parts.alerts;
    showIfOther(active, alerts?.active ?? null, () => {
      if (!alerts) return element("p", { class: "muted" }, "The alert stage has not reported: start it with `regraft stage alerts`.");
      return alerts.active.length ? alertTable(alerts.active) : element("p", { class: "muted" }, "None.");
    });
    showIfOther(recent, alerts?.recent ?? null, () => (alerts?.recent?.length ? alertTable(alerts.recent) : element("p", { class: "muted" }, "None.")));
  }

  store.watch(["alerts"], show);
}

function alertTable(alerts) {
  return table(["Since", "Severity", "Rule", "Subject", "What", "State", "Notified"], alerts.map((alert) => [
    clockTime(alert.raised_ms), severityPill(alert.severity), words(alert.rule), alert.subject, alert.text,
    alert.status === "cleared" ? `cleared ${clockTime(alert.changed_ms)}` : alert.is_silenced ? `silenced ${alert.silenced_by ?? ""}` : "raised",
    (alert.deliveries ?? []).map((one) => `${one.target}: ${words(one.state)}`).join("; ") || "nobody",
  ]));
}

export function showEvents(store, pane) {
  const choice = element("select", { "aria-label": "Severity", onchange: () => show() },
    element("option", { value: "" }, "all events"), element("option", { value: "warning" }, "warnings and worse"));
  const filter = element("input", { type: "search", placeholder: "Find in events", "aria-label": "Find in events", oninput: () => show() });
  const list = element("div");
  pane.append(element("div", { class: "tools" }, choice, filter), list);

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const events = (store.parts.events ?? []).filter((event) =>
      (!choice.value || event.severity !== "info") && (!wanted || `${event.kind} ${event.subject} ${event.text}`.toLowerCase().includes(wanted)));
    const shown = events.slice(-EVENTS_SHOWN_MAX).reverse();
    showIfOther(list, shown, () => (shown.length ? table(["Time", "Severity", "Kind", "Subject", "What"], shown.map((event) =>
      [clockTime(event.time_ms), severityPill(event.severity), words(event.kind), event.subject, readable(event.text)])) : element("p", { class: "muted" }, "No event matches.")));
  }

  store.watch(["events"], show);
}

export function showRefusals(store, pane) {
  const bars = element("div");
  const last = element("div");
  pane.append(element("h3", {}, "By verdict, since the controller started"), bars, element("h3", {}, "Last decision"), last);

  function show() {
    const refusals = Object.entries(store.parts.refusals ?? {}).sort((one, other) => other[1] - one[1]);
    const most = Math.max(1, ...refusals.map(([, count]) => count));
    showIfOther(bars, refusals, () => (refusals.length ? table(["Verdict", "Count", ""], refusals.map(([verdict, count]) =>
      [words(verdict), count.toLocaleString("en"), element("meter", { class: "wide", min: 0, max: most, value: count, "aria-hidden": "true" })])) : element("p", { class: "muted" }, "Nothing was refused.")));
    const decision = store.parts.last_decision;
    showIfOther(last, decision ?? null, () => decisionContent(decision));
  }

  store.watch(["refusals", "last_decision"], show);
}

function decisionContent(decision) {
  if (!decision) return element("p", { class: "muted" }, "None yet.");
  const outcome = decision.state_verdict ? `${words(decision.state_verdict)}: ${readable(decision.state_reason)}` : decision.plan ? `${decision.plan.plan} was proposed` : "no plan";
  return [
    element("p", {}, `On the window that ended ${clockTime(decision.window_end_ms)}: ${outcome}.`),
    decision.refused?.length ? proposalTable(decision.refused, true) : null,
  ];
}

export function showPlanners(store, pane) {
  const list = element("div");
  pane.append(list);

  function show() {
    const { counts, shadows = {}, cost } = store.parts;
    const last = cost?.at(-1);
    const times = counts?.decision_ms ?? {};
    const rows = counts ? [[counts.planner, "acts", last?.cost_per_s, counts.plans_completed, times[`acting:${counts.planner}`], ""]] : [];
    for (const [name, shadow] of Object.entries(shadows ?? {})) {
      rows.push([name, "shadow", last?.cost_shadows_per_s?.[name], shadow.plans, times[`shadow:${name}`], shadow.error_text]);
    }
    showIfOther(list, rows, () => table(["Planner", "Role", "Cost/s now", "Plans", "Decision, mean", "Decision, longest", "Error"], rows.map(([name, role, costs, plans, time, error]) =>
      [words(name).replaceAll("+", " + "), role, amount(costs), amount(plans), milliseconds(time?.mean_ms), milliseconds(time?.max_ms), error || "none"])));
  }

  store.watch(["counts", "shadows", "cost"], show);
}

export function showServices(store, pane) {
  const services = element("div");
  const errors = element("div");
  pane.append(element("h3", {}, "Services, as last reported"), services, element("h3", {}, "Errors since the controller started"), errors);

  function show() {
    const rows = findServices(store);
    showIfOther(services, rows, () => table(["Service", "State", "Details"], rows.map(([name, kind, state, text]) =>
      [name, pill(state, kind, kind === "good" ? "check" : kind === "quiet" ? null : "alert"), text])));
    const counted = Object.entries(store.parts.errors ?? {}).filter(([, count]) => count);
    showIfOther(errors, counted, () => (counted.length ? table(["Error", "Count"], counted.map(([name, count]) => [name, count.toLocaleString("en")])) : element("p", { class: "muted" }, "None.")));
  }

  store.watch(["server", "link", "window", "errors", "alerts", "counts", "configuration"], show);
  setInterval(() => pane.hidden || show(), 1000);
}

function findServices(store) {
  const { server, window, alerts, configuration } = store.parts;
  const rows = [];
  const isHeard = store.silentMs !== null && store.silentMs < (server?.stale_ms ?? 0);
  rows.push(["Live view", server?.view === "live" ? "good" : "bad", server?.view ?? "unknown", server?.reason || `last checked ${clockTime(server?.looked_ms)}`]);
  rows.push(["Controller", isHeard ? "good" : "bad", isHeard ? "up" : "silent", store.silentMs === null ? "never" : `last update ${clockTime(server.news_ms)}`]);
  if (window) {
    const lengthMs = window.end_ms - window.start_ms;
    const ageMs = store.controllerNowMs - window.end_ms;
    const isFresh = ageMs < 4 * lengthMs;
    rows.push(["Streaming", isFresh ? "good" : "bad", isFresh ? "up" : "late", `newest window ended ${clockTime(window.end_ms)}${isFresh ? "" : `, ${span(ageMs)} ago`}`]);
    const short = window.short_brokers?.length ?? 0;
    const all = configuration?.brokers.length ?? 0;
    rows.push(["Brokers", short ? "bad" : "good", short ? `${short} of ${all} short` : "all reported", short ? window.short_brokers.slice(0, 20).join(", ") : `${counted(all, "broker")} in the newest window`]);
  }
  rows.push(["Alerts", alerts ? "good" : "quiet", alerts ? "up" : "not seen", alerts ? `written ${clockTime(alerts.time_ms)}` : "the alert stage has not reported"]);
  return rows;
}
