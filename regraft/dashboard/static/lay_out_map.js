// Where brokers stand on the map: at their places, on the ring in the order of their IDs, or as forces find it.

const SPACING_PX = 112; // Between neighbours on an even grid.
const RING_SPACING_PX = 64;
const CROWDED_BROKERS = 60; // More on a ring stand closer, or they would be dots around an empty page.
const FORCE_STEPS = 4_000_000; // Pairs that the force layout may look at: more brokers, fewer rounds.

// Which layouts the present overlay allows, the best first.
export function layoutsFor(configuration, map) {
  const found = [];
  if (configuration?.ring) found.push(["ring", "Ring"]);
  if (map && map.source !== "none") found.push(["places", map.source === "positions" ? "Positions" : "Delays"]);
  found.push(["force", "Forces"]);
  return found;
}

export function layoutNote(name, map) {
  if (name === "ring") return "in the order of ring IDs";
  if (name === "force") return "force-directed layout";
  return map?.source === "positions" ? "positioned by location" : "positioned by network delay";
}

export function placesOf(configuration, map) {
  const scale = Math.max(1, (SPACING_PX * Math.sqrt(configuration.brokers.length)) / 750);
  return (name) => {
    const place = map.places[name];
    return place ? { x: place[0] * scale, y: place[1] * scale } : { x: 0, y: 0 };
  };
}

export function ringOf(configuration) {
  const ordered = configuration.ring.map(([name, id]) => [id, name]).sort((one, other) => one[0] - other[0]);
  const spacingPx = RING_SPACING_PX * Math.min(1, Math.sqrt(CROWDED_BROKERS / ordered.length));
  const radius = Math.max(220, (ordered.length * spacingPx) / (2 * Math.PI));
  const turnOf = new Map(ordered.map(([, name], number) => [name, (2 * Math.PI * number) / ordered.length - Math.PI / 2]));
  return (name) => {
    const turn = turnOf.get(name) ?? 0;
    return { x: radius * Math.cos(turn), y: radius * Math.sin(turn) };
  };
}

// Brokers without any place begin on a spiral, from which forces part them well.
export function spiralOf(configuration) {
  const numberOf = new Map(configuration.brokers.map((name, number) => [name, number]));
  return (name) => {
    const number = numberOf.get(name) ?? 0;
    const distance = SPACING_PX * 0.6 * Math.sqrt(number);
    return { x: distance * Math.cos(number * 2.4), y: distance * Math.sin(number * 2.4) };
  };
}

export function forceOptions(brokerCount) {
  return {
    name: "cose", randomize: false, fit: true, padding: 30, animate: false, nodeDimensionsIncludeLabels: false,
    idealEdgeLength: 70, nodeRepulsion: 60000, gravity: 0.6,
    numIter: Math.max(30, Math.min(900, Math.round(FORCE_STEPS / (brokerCount * brokerCount)))),
  };
}
