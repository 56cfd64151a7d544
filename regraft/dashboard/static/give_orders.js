// Give orders with a token. It is kept for this tab only and goes nowhere but into the header of our own calls.

import { button, element, icon } from "./build_elements.js";
import { clockTime } from "./format_values.js";

const KEPT_AS = "regraft-token";
const ANSWER_MS_MAX = 20000;
const NOTE_MS = 9000;

// What each order does, in the words of the dialog.
const ORDERS = {
  approve: { title: "Approve", act: "Approve", kind: "good", text: "The controller executes it exactly as shown, or refuses it as stale." },
  refuse: { title: "Refuse", act: "Refuse", kind: "", text: "The plan is dropped, and the overlay stays as it is." },
  cancel: { title: "Cancel", act: "Cancel the plan", kind: "bad", text: "Possible until the brokers activate it. Nothing of the plan remains." },
  pause: { title: "Pause adaptation", act: "Pause", kind: "", text: "No plan starts until someone resumes; a running one is finished.", mayEnd: true },
  resume: { title: "Resume adaptation", act: "Resume", kind: "good", text: "Plans may start again with the next window." },
  maintain: { title: "Begin maintenance of", act: "Begin maintenance", kind: "", text: "Nothing moves to this broker until it returns.", mayEnd: true, mayEvacuate: true },
  readmit: { title: "Readmit", act: "Readmit", kind: "good", text: "The broker stays, or joins the overlay again without the usual pause." },
  return: { title: "End maintenance of", act: "End maintenance", kind: "good", text: "The broker takes part in plans again." },
};

export class OrderDesk {
  constructor(store) {
    this._store = store;
    this._token = sessionStorage.getItem(KEPT_AS) ?? "";
    this._who = null;
    this._readers = []; // Who waits until somebody has signed in, to read.
    this._watchers = [];
    this._corner = document.getElementById("session");
    store.watch(["server"], () => this._show());
    if (this._token) this._check(this._token).catch((error) => this._leave(error.message));
  }

  get mayOrder() {
    return Boolean(this._store.parts.server?.can_order && this._who?.can_order);
  }

  // Why buttons do nothing now; empty where they work.
  get hindrance() {
    if (!this._store.parts.server?.can_order) return "Read-only: this dashboard has no secret that signs tokens.";
    if (this._who && !this._who.can_order) return "Your token lets you read only.";
    return this._who ? "" : "Sign in with a token to give orders.";
  }

  // Call `show` whenever who may order changes.
  watch(show) {
    this._watchers.push(show);
  }

  // A button that gives an order, or asks for a token first.
  button(text, kind, subject, properties = {}) {
    const canOrder = Boolean(this._store.parts.server?.can_order);
    const classes = `${properties.class ?? ""} ${this.hindrance ? "locked" : ""}`.trim();
    return button(text, () => (this.mayOrder ? this._ask(kind, subject) : this._askToken()), {
      disabled: !canOrder, title: this.hindrance || null, "data-order": kind, ...properties, class: classes || null,
    });
  }

  note(text, kind = "") {
    const shown = element("p", { class: `note ${kind}` }, icon(kind === "bad" ? "alert" : "check"), element("span", {}, text));
    document.getElementById("notes").append(shown);
    setTimeout(() => shown.remove(), NOTE_MS);
  }

  // Ask for a token; returns once somebody has signed in.
  signInToRead() {
    const signedIn = new Promise((resolve) => this._readers.push(resolve));
    this._show();
    this._askToken();
    return signedIn;
  }

  _show() {
    const canOrder = this._readers.length ? true : this._store.parts.server?.can_order;
    const content = canOrder === undefined ? []
      : !canOrder ? [element("span", { class: "muted", title: this.hindrance }, icon("eye"), " Read-only")]
      : this._who ? [element("span", {}, `${this._who.by}, until ${clockTime(this._who.until_ms)}`), button("Sign out", () => this._signOut())]
      : [button("Sign in", () => this._askToken())];
    const shown = JSON.stringify([canOrder, this._who]);
    if (this._corner.dataset.shown === shown) return;
    this._corner.dataset.shown = shown;
    this._corner.replaceChildren(...content);
    for (const show of this._watchers) show();
  }

  _leave(reason = "") {
    this._token = "";
    this._who = null;
    sessionStorage.removeItem(KEPT_AS);
    this._show();
    if (reason) this.note(reason, "bad");
  }

  async _signOut() {
    await fetch("/api/session", { method: "DELETE" }).catch(() => {});
    this._leave();
    if (this._store.parts.server?.login_to_read) location.reload();
  }

  async _check(token) {
    this._who = await call("/api/session", token, {});
    this._token = token;
    sessionStorage.setItem(KEPT_AS, token);
    document.getElementById("token-dialog").close();
    for (const goOn of this._readers.splice(0)) goOn();
    this._show();
  }

  _askToken() {
    const dialog = document.getElementById("token-dialog");
    const field = element("textarea", { id: "token-field", rows: 4, required: true, spellcheck: "false", autocomplete: "off" });
    const notice = element("p", { class: "error", role: "alert" });
    const submit = async (event) => {
      event.preventDefault();
      try {
        await this._check(field.value.trim());
      } catch (error) {
        notice.textContent = error.message;
      }
    };
    dialog.replaceChildren(element("form", { method: "dialog", onsubmit: submit },
      element("h2", { id: "token-title" }, "Sign in"),
      element("p", {}, "To sign in, you need a personal token. Ask your administrator, who can issue one with:"),
      element("pre", {}, "regraft dashboard token --by NAME --hours 8"),
      element("label", { for: "token-field" }, "Token"), field, notice,
      element("div", { class: "dialog-foot" }, button("Close", () => dialog.close()), element("button", { class: "good" }, "Sign in"))));
    if (!dialog.open) dialog.showModal();
    field.focus();
  }

  _ask(kind, subject) {
    const order = ORDERS[kind];
    // The plan as it is shown now: the order is about this one, whatever has the name by then.
    const digest = (this._store.parts.plans ?? []).findLast((plan) => plan.plan === subject)?.digest;
    const dialog = document.getElementById("order-dialog");
    const reason = element("textarea", { id: "order-reason", rows: 2, required: true, minlength: 3, maxlength: 500 });
    const minutes = element("input", { id: "order-minutes", type: "number", min: 1, max: 44640, placeholder: "until revoked" });
    const evacuate = element("input", { id: "order-evacuate", type: "checkbox" });
    const notice = element("p", { class: "error", role: "alert" });
    const act = element("button", { class: order.kind }, order.act);
    const submit = async (event) => {
      event.preventDefault();
      act.disabled = true;
      const request = { kind, subject, reason: reason.value.trim() };
      if (minutes.value) request.minutes = Number(minutes.value);
      if (evacuate.checked) request.evacuate = true;
      if (digest) request.plan_digest = digest;
      try {
        const answer = await call("/api/orders", this._token, request);
        dialog.close();
        this.note(`${order.title}${subject === "overlay" ? "" : ` ${subject}`}: ${answer.text}`, "good");
      } catch (error) {
        notice.textContent = error.message;
        if (error.status === 401) this._leave();
      } finally {
        act.disabled = false;
      }
    };
    const optional = (wanted, ...parts) => (wanted ? element("p", { class: "field" }, ...parts) : null);
    dialog.replaceChildren(element("form", { method: "dialog", onsubmit: submit },
      element("h2", { id: "order-title" }, subject === "overlay" ? order.title : `${order.title} ${subject}`),
      element("p", {}, order.text),
      element("label", { for: "order-reason" }, "Reason, kept in the audit log"), reason,
      optional(order.mayEnd, element("label", { for: "order-minutes" }, "Expires after (minutes)"), minutes) ?? "",
      optional(order.mayEvacuate, evacuate, element("label", { for: "order-evacuate" }, "Move its clients to other brokers")) ?? "",
      notice,
      element("div", { class: "dialog-foot" }, button("Back", () => dialog.close()), act)));
    dialog.showModal();
    reason.focus();
  }
}

// Call the server; an error says what the server said, for people.
async function call(path, token, body = null) {
  const request = { headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(ANSWER_MS_MAX) };
  if (body !== null) {
    request.method = "POST";
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw Object.assign(new Error("The dashboard's server did not answer: try again."), { status: 0 });
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.text ?? answer.detail ?? `The server answered ${response.status}.`), { status: response.status });
}
