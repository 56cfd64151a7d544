// The lower part of the page: one list at a time, switched by tabs that keys reach as well.

import { element, showIfOther } from "./build_elements.js";
import { showBrokerTable } from "./show_brokers.js";
import { showAlerts, showEvents, showPlanners, showRefusals, showServices } from "./show_lists.js";
import { showPlanList } from "./show_plans.js";

const STEP_BY_KEY = { ArrowRight: 1, ArrowLeft: -1 };

export function showTabs(store, desk, map) {
  const list = document.getElementById("tab-list");
  const body = document.getElementById("tab-body");
  const tabs = [
    { name: "plans", title: "Plans", fill: (pane) => showPlanList(store, pane), count: () => store.plans.length },
    { name: "alerts", title: "Alerts", fill: (pane) => showAlerts(store, pane), count: () => store.parts.alerts?.active_count ?? store.activeAlerts.length },
    { name: "events", title: "Events", fill: (pane) => showEvents(store, pane) },
    { name: "refusals", title: "Refusals", fill: (pane) => showRefusals(store, pane) },
    { name: "brokers", title: "Brokers", fill: (pane) => showBrokerTable(store, desk, map, pane) },
    { name: "planners", title: "Planners", fill: (pane) => showPlanners(store, pane) },
    { name: "services", title: "Services and errors", fill: (pane) => showServices(store, pane) },
  ];
  for (const tab of tabs) {
    tab.pane = element("div", { role: "tabpanel", id: `pane-${tab.name}`, "aria-labelledby": `tab-${tab.name}`, tabindex: 0, hidden: true });
    tab.counter = element("span", { class: "count" });
    tab.head = element("button", { type: "button", role: "tab", id: `tab-${tab.name}`, "aria-controls": `pane-${tab.name}`, onclick: () => choose(tab) }, tab.title, tab.counter);
    list.append(tab.head);
    body.append(tab.pane);
  }

  function choose(chosen) {
    for (const tab of tabs) {
      const isChosen = tab === chosen;
      tab.head.setAttribute("aria-selected", String(isChosen));
      tab.head.tabIndex = isChosen ? 0 : -1;
      tab.pane.hidden = !isChosen;
    }
    if (!chosen.isFilled) chosen.fill(chosen.pane);
    chosen.isFilled = true;
  }

  list.addEventListener("keydown", (event) => {
    const step = STEP_BY_KEY[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.head === document.activeElement);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    choose(next);
    next.head.focus();
  });

  store.watch(["plans", "alerts"], () => {
    for (const tab of tabs.filter((each) => each.count)) {
      const count = tab.count();
      showIfOther(tab.counter, count, () => (count ? String(count) : null));
      tab.counter.classList.toggle("loud", tab.name === "alerts" && count > 0);
    }
  });
  choose(tabs[0]);
}
