// Plans that wait for an operator: on top of the page, with their preview on the map and the two answers.

import { button, element, icon, showIfOther } from "./build_elements.js";
import { amount, clockTime, readable, share } from "./format_values.js";
import { changesText, isMembership } from "./show_headline.js";
import { changeLines, movedCount } from "./show_side.js";
import { priceOf, proposalTable } from "./show_plans.js";

const LINES_SHOWN = 15;
const PRICE_TEXT = "The transition cost of the change, spread over the time in which it must pay for itself: a change must save more.";
const GROUPS = [["removed", "Links removed"], ["added", "Links added"], ["moved", "Moves"]];

export function showReview(store, desk, map) {
  const place = document.getElementById("review");
  let seen = null;

  function show() {
    const plan = store.proposedPlans.at(-1) ?? null;
    if (plan && plan.plan !== seen) {
      seen = plan.plan;
      map.plan.preview(plan.plan); // What waits is shown on the map until somebody looks away.
    }
    const isPreviewed = plan !== null && map.plan.previewed === plan.plan;
    showIfOther(place, [plan, isPreviewed, desk.hindrance], () => (plan ? card(plan, isPreviewed) : []));
  }

  function card(plan, isPreviewed) {
    const saves = plan.cost_before_per_s - plan.cost_predicted_per_s;
    const lines = changeLines(plan);
    return element("article", { class: "review", "data-plan": plan.plan },
      element("div", { class: "review-head" },
        element("h2", {}, icon("ask"), `${plan.plan}: `, changesText(plan)),
        element("p", {}, "proposed ", clockTime(plan.history[0]?.time_ms), ", on the window that ended ", clockTime(plan.window_end_ms)),
      isMembership(plan) ? element("p", {}, readable(plan.history[0]?.reason)) : element("div", { class: "before-after" },
        figure("cost now", `${amount(plan.cost_before_per_s)}/s`),
        element("span", { class: "arrow", "aria-hidden": "true" }, "→"),
        figure("cost then", `${amount(plan.cost_predicted_per_s)}/s`, "good"),
        figure("saves", `${amount(saves)}/s (${share(saves / plan.cost_before_per_s)})`, "good"),
        figure("transition cost", `${amount(priceOf(plan))}/s`, "", PRICE_TEXT))),
      element("div", { class: "groups" }, GROUPS.map(([kind, title]) => group(title, lines.filter(([one]) => one === kind), kind, kind === "moved" ? movedCount(plan) : null))),
      element("details", {}, element("summary", {}, `Why these ${plan.proposals.length} changes, and why ${plan.refused?.length ?? 0} others were refused`),
        proposalTable(plan.proposals), plan.refused?.length ? proposalTable(plan.refused, true) : null),
      element("div", { class: "acts" },
        desk.button("Approve", "approve", plan.plan, { class: "good" }),
        desk.button("Refuse", "refuse", plan.plan),
        button(isPreviewed ? "Hide preview" : "Preview on the map", () => map.plan.preview(isPreviewed ? null : plan.plan), { class: "quiet", "aria-pressed": String(isPreviewed) }),
        desk.hindrance ? element("span", { class: "muted" }, desk.hindrance) : null));
  }

  store.watch(["plans", "server"], show);
  desk.watch(show);
  map.plan.onPreview(show);
}

function group(title, lines, kind, count) {
  if (!lines.length) return null;
  const all = count ?? lines.length;
  const shown = lines.slice(0, LINES_SHOWN);
  return element("div", {}, element("h3", {}, `${title} (${all})`),
    element("ul", { class: "changes columns" }, shown.map(([, text]) => element("li", { class: kind }, text)),
      all > shown.length ? element("li", { class: "muted" }, `and ${all - shown.length} more`) : null));
}

function figure(name, value, kind = "", title = null) {
  return element("div", { class: `figure ${kind}`, title }, element("span", { class: "name" }, name), element("span", { class: "value" }, value));
}
