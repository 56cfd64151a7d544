// Numbers, spans and times as people read them.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function clockTime(ms) {
  return ms ? clock.format(new Date(ms)) : "never";
}

export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 100) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function amount(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toPrecision(size >= 1 ? 3 : 2).replace(/\.?0+$/, "");
}

// A value of an axis, without digits that say nothing: 30 k, not 30.0 k.
export function tick(value) {
  const size = Math.abs(value);
  const [unit, text] = size >= 1e6 ? [1e6, " M"] : size >= 1e4 ? [1e3, " k"] : [1, ""];
  return `${Number((value / unit).toPrecision(3)).toLocaleString("en")}${text}`;
}

// Times of an axis, all in one unit.
export function timeTicks(values) {
  const inSeconds = Math.max(...values) >= 1000;
  return values.map((value) => `${Number((inSeconds ? value / 1000 : value).toPrecision(3))} ${inSeconds ? "s" : "ms"}`);
}

export function share(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const percent = value * 100;
  return `${Math.abs(percent) < 9.95 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export function signedShare(value) {
  return value > 0 ? `+${share(value)}` : share(value).replace("-", "−");
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`;
}

export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

// What the controller says, with its numbers as the rest of the page has them.
export function readable(text) {
  return String(text ?? "").replace(/\d(?:\.\d+)?e[+-]\d+/g, (number) => amount(Number(number)));
}

// A word of the records, `gain_below_price`, for reading.
export function words(name) {
  return String(name).replaceAll("_", " ");
}

export function shortList(names, most = 6) {
  return names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}

// Which ring ID, or place on a structured cyclic overlay (region * 4096 + cluster), a broker gives up and gets; -1 is none.
export function idMoveText(move, hasPlaces) {
  const text = (id) => (id < 0 ? "none" : hasPlaces ? `cluster ${id % 4096} in region ${Math.floor(id / 4096)}` : id);
  return `${move.broker}: ${hasPlaces ? "" : "ID "}${text(move.id_from)} → ${text(move.id_to)}`;
}
