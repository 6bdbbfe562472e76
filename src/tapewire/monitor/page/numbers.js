// Numbers, sizes and durations for people, formatted as by tapewire/text.py.
const NONE = "–";

function scaled(value, step, units) {
  let power = 0;
  while (value >= step - 0.5 && power < units.length - 1) {
    value /= step;
    power += 1;
  }
  const digits = value >= 99.95 || (power === 0 && Number.isInteger(value)) ? 0 : 1;
  return value.toFixed(digits) + units[power];
}

export function count(value) {
  return value == null ? NONE : scaled(value, 1000, ["", "k", "M", "G", "T"]);
}

export function bytes(value) {
  return value == null ? NONE : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
}

export function span(seconds) {
  if (seconds == null) return NONE;
  if (seconds <= 0) return "0 s";
  for (const [limit, factor, unit] of [
    [1e-3, 1e6, "µs"], [1, 1e3, "ms"], [120, 1, "s"], [3600, 1 / 60, "min"], [172800, 1 / 3600, "h"],
  ]) {
    if (seconds < limit) {
      const value = seconds * factor;
      return `${value.toFixed(value >= 99.95 ? 0 : 1)} ${unit}`;
    }
  }
  return `${(seconds / 86400).toFixed(1)} d`;
}

export function whole(value) {
  return value == null ? NONE : value.toLocaleString("en-US");
}

export function clock(ns) {
  return new Date(ns / 1e6).toLocaleTimeString([], { hour12: false });
}
