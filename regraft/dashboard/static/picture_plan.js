// A plan on the map: links that go and come, clients on their way; while brokers are at work, or as a preview.

// Names of the drawing's elements. The separator is in no name of a broker.
const SEPARATOR = "\u001f";
export const nodeId = (name) => `b${SEPARATOR}${name}`;
export const linkId = (a, b) => ["l", ...(a < b ? [a, b] : [b, a])].join(SEPARATOR);

const TRAVEL_MS = 1800;
const TRAVELLERS_MAX = 24;

export class PlanPicture {
  constructor(cy, store) {
    this._cy = cy;
    this._store = store;
    this._drawn = "";
    this._previewed = null;
    this._travels = 0;
    this._watchers = [];
  }

  // Show a proposed plan on the map, or none.
  preview(name) {
    this._previewed = name;
    this.show();
    for (const show of this._watchers) show();
  }

  get previewed() {
    return this._previewed;
  }

  onPreview(show) {
    this._watchers.push(show);
  }

  show() {
    const moving = this._store.movingPlan;
    const previewed = this._store.proposedPlans.find((plan) => plan.plan === this._previewed) ?? null;
    const plan = moving ?? previewed;
    const epoch = this._store.parts.configuration?.epoch;
    const drawn = JSON.stringify([plan?.plan, plan?.phase, epoch, plan?.move_count]);
    if (drawn === this._drawn || this._cy.nodes().empty()) return;
    this._drawn = drawn;
    this._clear();
    if (plan) this._draw(plan, moving !== null);
  }

  _clear() {
    const cy = this._cy;
    this._travels += 1;
    cy.batch(() => {
      cy.$("edge.drawn, edge.move, node.traveller").remove();
      cy.$("edge.leaving, edge.arrived").removeClass("leaving arrived");
      cy.$(".dimmed").removeClass("dimmed");
    });
  }

  _draw(plan, isMoving) {
    const cy = this._cy;
    cy.batch(() => {
      if (!isMoving) cy.edges().addClass("dimmed");
      // Brokers switch before the plan is over: what it removed is then no link any more, what it added is one.
      for (const [a, b] of plan.links_removed ?? []) this._mark([a, b], "leaving");
      for (const [a, b] of plan.links_added ?? []) this._mark([a, b], "coming");
      for (const move of plan.moves ?? []) {
        this._add({
          data: { id: `m ${move.client}`, source: nodeId(move.home_from), target: nodeId(move.home_to), label: move.client, width: 2, level: 0 },
          classes: "move",
        });
      }
    });
    if (isMoving && !matchMedia("(prefers-reduced-motion: reduce)").matches) this._send(plan.moves ?? []);
  }

  _mark([a, b], kind) {
    const known = this._cy.$id(linkId(a, b));
    if (known.empty() || known.hasClass("gone")) {
      known.remove();
      this._add({ data: { id: linkId(a, b), pair: [a, b], source: nodeId(a), target: nodeId(b), width: 2, level: 0 }, classes: `${kind} drawn` });
    } else {
      known.removeClass("dimmed fresh").addClass(kind === "coming" ? "arrived" : kind);
    }
  }

  // A plan may name a broker that the overlay shown does not have yet.
  _add(edge) {
    if (this._cy.$id(edge.data.source).nonempty() && this._cy.$id(edge.data.target).nonempty()) this._cy.add(edge);
  }

  _send(moves) {
    const travel = this._travels;
    moves.slice(0, TRAVELLERS_MAX).forEach((move, number) => {
      const from = this._cy.$id(nodeId(move.home_from));
      const to = this._cy.$id(nodeId(move.home_to));
      if (from.empty() || to.empty()) return;
      const traveller = this._cy.add({ data: { id: `t ${move.client}`, size: 11, level: 0 }, position: { ...from.position() }, classes: "traveller" });
      const go = () => {
        if (travel !== this._travels) return;
        traveller.position({ ...from.position() });
        traveller.animate({ position: { ...to.position() } }, { duration: TRAVEL_MS, easing: "ease-in-out-cubic", complete: () => setTimeout(go, 300) });
      };
      setTimeout(go, (number % 8) * 120);
    });
  }
}
