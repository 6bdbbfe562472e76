// The live page: shows the events from /events. No library, no build step.
// Everything that comes from the bus is inserted by textContent.
import { bytes, clock, count, span, whole } from "/numbers.js";
import { Plot, Spark } from "/plot.js";

const $ = (id) => document.getElementById(id);
const KEEP = 300;

// The queue in the address; null if the address is invalid.
function named() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
}

const state = {
  hello: null,
  snapshot: null,
  history: new Map(), // queue name → {uptime, records_per_second, bytes_per_second, readers: Map}
  chosen: named(),
  filter: "",
  sort: { by: "name", down: false },
  window: 300,
  lag: "lag_records",
};

// ---- history for the plots --------------------------------------------------------------------

function remember(series, row) {
  const last = series.uptime[series.uptime.length - 1];
  if (last !== undefined && row.uptime <= last) return; // already in the history that hello brought
  for (const key of Object.keys(row)) {
    series[key].push(row[key]);
    if (series[key].length > KEEP) series[key].shift();
  }
}

function begin(hello) {
  state.hello = hello;
  state.history = new Map(Object.entries(hello.history).map(([name, queue]) => [
    name, { ...queue, readers: new Map(Object.entries(queue.readers)) },
  ]));
  $("root").textContent = hello.root;
}

function record(snapshot) {
  const before = state.history;
  state.history = new Map();
  for (const queue of snapshot.queues) {
    const series = before.get(queue.name) ??
      { uptime: [], records_per_second: [], bytes_per_second: [], readers: new Map() };
    state.history.set(queue.name, series);
    if (queue.error !== null) continue;
    const { uptime } = snapshot;
    remember(series, {
      uptime, records_per_second: queue.records_per_second, bytes_per_second: queue.bytes_per_second,
    });
    const readers = series.readers;
    series.readers = new Map();
    for (const reader of queue.readers) {
      const lags = readers.get(reader.name) ?? { uptime: [], lag_records: [], lag_bytes: [], lag_seconds: [] };
      series.readers.set(reader.name, lags);
      remember(lags, {
        uptime, lag_records: reader.lag_records, lag_bytes: reader.lag_bytes, lag_seconds: reader.lag_seconds,
      });
    }
  }
}

// ---- rows reuse their elements between samples, which keeps focus and selection --------------

class Rows {
  constructor(body, create) {
    this.body = body;
    this.create = create;
    this.rows = new Map();
  }

  show(items, key, update) {
    const before = this.rows;
    this.rows = new Map();
    for (const item of items) {
      const row = before.get(key(item)) ?? this.create(item);
      before.delete(key(item));
      this.rows.set(key(item), row);
      update(row, item);
    }
    for (const row of before.values()) row.element.remove();
    let at = this.body.firstElementChild;
    for (const { element } of this.rows.values()) {
      if (element === at) at = at.nextElementSibling;
      else this.body.insertBefore(element, at);
    }
  }
}

function cell(row, kind = "") {
  const td = document.createElement("td");
  td.className = kind;
  row.append(td);
  return td;
}

function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

// A path is wrapped after a slash, elsewhere only if necessary.
function pathText(node, value) {
  node.replaceChildren();
  for (const part of value.split(/(?<=\/)/)) node.append(part, document.createElement("wbr"));
}

function stateText(node, value) {
  text(node, value);
  node.dataset.state = value;
}

const worst = (queue) => queue.readers.reduce((a, b) => (a && a.lag_bytes >= b.lag_bytes ? a : b), null);
const lagText = (reader) => (reader.lag_records == null ? bytes(reader.lag_bytes) : count(reader.lag_records));

const queueRows = new Rows($("queue-table").tBodies[0], (queue) => {
  const element = document.createElement("tr");
  const name = document.createElement("button");
  name.type = "button";
  name.className = "name";
  pathText(name, queue.name);
  const head = document.createElement("th");
  head.scope = "row";
  head.append(name);
  element.append(head);
  element.addEventListener("click", () => choose(queue.name));
  const writer = document.createElement("span");
  writer.className = "state";
  cell(element).append(writer);
  return {
    element, name, writer, rate: cell(element, "number"), spark: new Spark(cell(element, "if700")),
    bytes: cell(element, "number if800"), seq: cell(element, "number if480"), lag: cell(element, "number"),
    disk: cell(element, "number if600"),
  };
});

const readerRows = new Rows($("reader-table").tBodies[0], () => {
  const element = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  element.append(name);
  const running = document.createElement("span");
  running.className = "state";
  cell(element).append(running);
  return {
    element, name, running, records: cell(element, "number"), bytes: cell(element, "number"),
    time: cell(element, "number"), rate: cell(element, "number if480"), spark: new Spark(cell(element, "if600")),
  };
});

const alertRows = new Rows($("alerts"), () => {
  const element = document.createElement("li");
  const parts = ["severity", "what", "since", "remedy"].map((kind) => {
    const part = document.createElement("span");
    part.className = kind;
    element.append(part);
    return part;
  });
  return { element, severity: parts[0], what: parts[1], since: parts[2], remedy: parts[3] };
});

const ratePlot = new Plot($("rate-plot"), "count", (v) => `${count(v)}`);
const lagPlot = new Plot($("lag-plot"), "count", count);
const LAGS = {
  lag_records: ["count", count], lag_bytes: ["bytes", bytes], lag_seconds: ["seconds", span],
};

// ---- showing ----------------------------------------------------------------------------------

function sorted(queues) {
  const value = {
    name: (q) => q.name, rate: (q) => q.records_per_second ?? -1, bytes: (q) => q.bytes_per_second ?? -1,
    seq: (q) => q.last_seq ?? -1, lag: (q) => worst(q)?.lag_bytes ?? -1, disk: (q) => q.disk_bytes,
  }[state.sort.by];
  const sign = state.sort.down ? -1 : 1;
  return [...queues].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * sign || (a.name < b.name ? -1 : 1);
  });
}

function show() {
  const { snapshot } = state;
  if (!snapshot) return;
  showTotals(snapshot);
  showAlerts(snapshot.alerts);
  showQueues(snapshot);
  showDetail(snapshot);
}

function showTotals({ queues, alerts }) {
  const sum = (of) => queues.reduce((total, queue) => total + (of(queue) ?? 0), 0);
  const readers = queues.flatMap((queue) => queue.readers);
  const late = readers.reduce((a, b) => (a && a.lag_bytes >= b.lag_bytes ? a : b), null);
  text($("sum-records"), `${count(Math.round(sum((q) => q.records_per_second)))}/s`);
  text($("sum-bytes"), `${bytes(Math.round(sum((q) => q.bytes_per_second)))}/s`);
  text($("sum-writers"), `${queues.filter((q) => q.writer?.state === "live").length} of ${queues.length}`);
  text($("sum-readers"), `${readers.filter((r) => r.state === "live").length} of ${readers.length}`);
  text($("sum-lag"), late ? (late.lag_bytes === 0 ? "none" : `${lagText(late)} · ${span(late.lag_seconds)}`) : "–");
  text($("sum-disk"), bytes(sum((q) => q.disk_bytes)));
  const loud = alerts.filter((alert) => alert.severity !== "info").length;
  document.title = loud ? `(${loud}) tapewire` : "tapewire";
}

function showAlerts(alerts) {
  text($("alerts-count"), String(alerts.length));
  $("alerts-count").dataset.severity = alerts[0]?.severity ?? "none";
  $("all-well").hidden = alerts.length > 0;
  alertRows.show(alerts, (a) => JSON.stringify([a.kind, a.queue, a.reader, a.path]), (row, alert) => {
    row.element.dataset.severity = alert.severity;
    text(row.severity, alert.severity);
    text(row.what, alert.text);
    text(row.since, `since ${clock(alert.since_ns)}`);
    text(row.remedy, alert.remedy);
  });
}

function showQueues({ queues }) {
  const shown = sorted(queues.filter((queue) => queue.name.toLowerCase().includes(state.filter)));
  if (!queues.some((queue) => queue.name === state.chosen) && shown.length && !named()) {
    state.chosen = shown[0].name;
  }
  text($("queues-count"), shown.length === queues.length ? String(queues.length) : `${shown.length} of ${queues.length}`);
  $("no-queues").hidden = shown.length > 0;
  text($("no-queues"), queues.length ? "No queue matches the filter." : "This directory has no queue yet.");
  queueRows.show(shown, (queue) => queue.name, (row, queue) => {
    const late = worst(queue);
    row.name.setAttribute("aria-pressed", String(queue.name === state.chosen));
    row.element.classList.toggle("chosen", queue.name === state.chosen);
    stateText(row.writer, queue.writer?.state ?? "unreadable");
    text(row.rate, count(queue.records_per_second));
    text(row.bytes, queue.bytes_per_second == null ? "–" : `${bytes(queue.bytes_per_second)}`);
    text(row.seq, whole(queue.last_seq));
    text(row.lag, late ? (late.lag_bytes === 0 ? "0" : lagText(late)) : "–");
    text(row.disk, bytes(queue.disk_bytes));
    row.spark.draw(state.history.get(queue.name).records_per_second);
  });
}

function showDetail(snapshot) {
  // At the start the time axis grows with the history.
  const shown = Math.min(state.window, Math.max(60, Math.ceil(snapshot.uptime / 60) * 60));
  const queue = snapshot.queues.find((one) => one.name === state.chosen);
  const title = queue ? queue.name : state.chosen ? `${state.chosen}: not found` : "No queue selected";
  if ($("detail-title").textContent !== title) pathText($("detail-title"), title);
  const facts = !queue ? [] : queue.error !== null ? [["Error", queue.error]] : [
    ["Writer", `${queue.writer.state}${queue.writer.pid == null ? "" : `, pid ${queue.writer.pid}`}`],
    ["Epoch", whole(queue.writer.epoch)],
    ["Heartbeat", `${span(queue.writer.heartbeat_age)} ago`],
    ["Written", `${count(queue.records_per_second)}/s`],
    ["Segments", `${whole(queue.segments)} × ${bytes(queue.segment_bytes)}`],
    ["Rolls", whole(queue.metrics?.rolls)],
    ["Last record", queue.last_timestamp_ns == null ? "–" : clock(queue.last_timestamp_ns)],
  ];
  $("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = document.createElement("div");
    const dt = document.createElement("dt");
    const dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    pair.append(dt, dd);
    return pair;
  }));
  const series = (queue && state.history.get(queue.name)) ?? { uptime: [], records_per_second: [], readers: new Map() };
  ratePlot.draw([{ name: "records/s", times: series.uptime, values: series.records_per_second }],
    snapshot.uptime, shown, "Records per second");
  [lagPlot.unit, lagPlot.format] = LAGS[state.lag];
  lagPlot.draw([...series.readers].map(([name, lags]) => ({ name, times: lags.uptime, values: lags[state.lag] })),
    snapshot.uptime, shown, "Lag", state.hello.limits[state.lag]);
  const readers = queue?.readers ?? [];
  $("no-readers").hidden = readers.length > 0;
  $("reader-table").hidden = readers.length === 0;
  readerRows.show(readers, (reader) => reader.name, (row, reader) => {
    text(row.name, reader.name + (reader.pinned ? " (pinned)" : ""));
    stateText(row.running, reader.state);
    text(row.records, whole(reader.lag_records));
    text(row.bytes, bytes(reader.lag_bytes));
    text(row.time, span(reader.lag_seconds));
    text(row.rate, count(reader.records_per_second));
    row.spark.draw(series.readers.get(reader.name)?.[state.lag] ?? []);
    row.spark.svg.setAttribute("class", `spark c${readers.indexOf(reader) % 6}`);
  });
}

// ---- user input -------------------------------------------------------------------------------

function choose(name) {
  state.chosen = name;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  show();
}

addEventListener("hashchange", () => {
  state.chosen = named();
  show();
});

$("filter").addEventListener("input", (event) => {
  state.filter = event.target.value.toLowerCase();
  show();
});

addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== $("filter")) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape" && document.activeElement === $("filter")) {
    $("filter").value = state.filter = "";
    $("filter").blur();
    show();
  }
});

for (const head of document.querySelectorAll("th[data-sort]")) {
  head.firstElementChild.addEventListener("click", () => {
    const by = head.dataset.sort;
    state.sort = { by, down: state.sort.by === by ? !state.sort.down : by !== "name" };
    for (const other of document.querySelectorAll("th[data-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", state.sort.down ? "descending" : "ascending");
    show();
  });
}

for (const [name, take] of [["window", Number], ["lag", String]]) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      state[name] = take(button.dataset[name]);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      show();
    });
  }
}

// A browser may deny access to localStorage.
function remembered(key, value = null) {
  try {
    if (value !== null) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

const THEMES = ["auto", "light", "dark"];

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
}

$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  wear(next);
  remembered("theme", next);
});
const worn = remembered("theme");
wear(THEMES.includes(worn) ? worn : "auto");

// ---- the stream -------------------------------------------------------------------------------

let heard = 0; // performance.now() of the last event

function link(status, message) {
  $("link").dataset.state = status;
  text($("link"), message);
  document.body.classList.toggle("old", status === "lost");
  $("lost").hidden = status !== "lost";
}

function lost(why) {
  link("lost", "connection lost");
  const last = state.snapshot ? `Values are from ${clock(state.snapshot.time_ns)}.` : "";
  text($("lost"), `${why} ${last} Reconnecting.`);
}

function connect() {
  const events = new EventSource("/events");
  heard = performance.now();
  let watch = null;
  const again = (why) => {
    clearInterval(watch);
    events.close(); // an EventSource does not reconnect after every failure
    lost(why);
    setTimeout(connect, 1000);
  };
  // A stopped server keeps the connection open and sends nothing.
  watch = setInterval(() => {
    const patience = Math.max(5, 5 * (state.hello?.interval ?? 1)) * 1000;
    if (performance.now() - heard > patience) again("Connection lost: no data from the monitor.");
  }, 500);
  events.addEventListener("error", () => again("Connection lost: the monitor does not respond."));
  events.addEventListener("hello", (event) => begin(JSON.parse(event.data)));
  events.addEventListener("snapshot", (event) => {
    heard = performance.now();
    const snapshot = JSON.parse(event.data);
    if (snapshot.error !== undefined) {
      link("lost", "bus unreadable");
      text($("lost"), snapshot.error);
      return;
    }
    link("live", `live · every ${span(state.hello.interval)}`);
    state.snapshot = snapshot;
    record(snapshot);
    show();
  });
}

connect();
