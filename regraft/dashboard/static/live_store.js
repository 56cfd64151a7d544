// The newest state that the server sent, and who wants to know when a part of it changes.

const NOTHING_KNOWN = { orders: [] };

export class LiveStore {
  constructor() {
    this.version = 0;
    this.parts = {};
    this.link = { isOpen: false, needsLogin: false, sinceMs: Date.now() };
    this._bases = {};
    this._offsetMs = 0;
    this._wanted = new Map();
    this._changed = new Set();
  }

  // Call `show` once a frame at most, after any of these parts changed. `link` is the connection itself.
  watch(names, show) {
    this._wanted.set(show, names);
    for (const name of names) this._mark(name);
  }

  // Take a message: whole parts, and series as the entries that changed.
  take(message) {
    this.version = message.version;
    for (const [name, part] of Object.entries(message.parts)) {
      const value = "whole" in part ? part.whole : this._takeSeries(name, part);
      this.parts[name] = name === "network" && value ? unpackNetwork(value) : value;
      this._mark(name);
    }
  }

  _takeSeries(name, part) {
    const known = part.is_whole ? [] : this.parts[name] ?? [];
    const cut = part.is_whole ? 0 : part.base - (this._bases[name] ?? 0);
    const entries = cut > 0 ? known.slice(cut) : known.slice();
    for (const [number, entry] of part.entries) entries[number - part.base] = entry;
    this._bases[name] = part.base;
    return entries;
  }

  setLink(isOpen) {
    if (isOpen !== this.link.isOpen) this.link = { ...this.link, isOpen, sinceMs: Date.now() };
    this._mark("link");
  }

  // Whether the server waits for somebody to sign in before it shows anything.
  setNeedsLogin(needsLogin) {
    this.link = { ...this.link, needsLogin };
    this._mark("link");
  }

  // The server's clock is the one that counts; this machine's may be wrong.
  setClock(serverMs) {
    this._offsetMs = serverMs - Date.now();
  }

  get serverNowMs() {
    return Date.now() + this._offsetMs;
  }

  // The controller's own clock, in which windows, plans and events are dated.
  get controllerNowMs() {
    const server = this.parts.server;
    if (!server?.news_ms) return this.serverNowMs;
    return server.told_ms + Math.max(0, this.serverNowMs - server.news_ms);
  }

  get silentMs() {
    const news = this.parts.server?.news_ms;
    return news ? Math.max(0, this.serverNowMs - news) : null;
  }

  // Whether what is shown may be taken for the present.
  get isLive() {
    const server = this.parts.server;
    return this.link.isOpen && server?.view === "live" && this.silentMs !== null && this.silentMs < server.stale_ms;
  }

  get plans() {
    return this.parts.plans ?? [];
  }

  // What holds in a phase of a plan; the server has the table.
  facts(phase) {
    return this.parts.phases?.facts[phase] ?? NOTHING_KNOWN;
  }

  // The phases of a plan that is executed, in their order.
  get phaseSteps() {
    return this.parts.phases?.steps ?? [];
  }

  get proposedPlans() {
    return this.plans.filter((plan) => this.isProposed(plan));
  }

  isProposed(plan) {
    return this.facts(plan.phase).orders.includes("approve");
  }

  get movingPlan() {
    return this.plans.findLast((plan) => this.facts(plan.phase).is_moving) ?? null;
  }

  // The plan that has begun and is not over: one that brokers work on before one that is only checked.
  get planUnderWay() {
    return this.movingPlan ?? this.plans.findLast((plan) => this.facts(plan.phase).is_under_way) ?? null;
  }

  get activeAlerts() {
    return this.parts.alerts?.active ?? [];
  }

  _mark(name) {
    if (!this._changed.size) requestAnimationFrame(() => this._report());
    this._changed.add(name);
  }

  _report() {
    const changed = this._changed;
    this._changed = new Set();
    for (const [show, names] of this._wanted) {
      if (names.some((name) => changed.has(name))) show(changed);
    }
  }
}

// Links and brokers come as rows under their fields.
function unpackNetwork(packed) {
  const unpack = ({ fields, rows }) => rows.map((row) => Object.fromEntries(fields.map((field, at) => [field, row[at]])));
  return { window_end_ms: packed.window_end_ms, links: unpack(packed.links), brokers: unpack(packed.brokers) };
}
