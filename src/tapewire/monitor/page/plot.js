// Lines over time, drawn as SVG. Text is inserted by textContent: names come from the disk.
const SVG = "http://www.w3.org/2000/svg";

function make(parent, name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent.append(node);
  return node;
}

// The path of points (x, y); a null y interrupts the line.
function path(points) {
  let text = "";
  let drawing = false;
  for (const [x, y] of points) {
    if (y == null) {
      drawing = false;
    } else {
      text += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      drawing = true;
    }
  }
  return text;
}

// Three or four round values from 0 to at least `top`. Bytes and times have other units than
// counts: a tick of 976.6 KiB would be hard to read.
function ticks(top, unit) {
  if (!(top > 0)) return [0, 1];
  let base = 1;
  if (unit === "bytes") base = 1024 ** Math.max(0, Math.floor(Math.log2(top) / 10));
  else if (unit === "seconds" && top >= 120) base = top >= 7200 ? 3600 : 60;
  const raw = top / base / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw) * base;
  if (unit === "count" && step < 1) step = 1;
  const values = [0];
  while (values[values.length - 1] < top) values.push(values[values.length - 1] + step);
  return values;
}

// A small line without axes.
export class Spark {
  constructor(parent, width = 84, height = 22) {
    this.width = width;
    this.height = height;
    this.svg = make(parent, "svg", {
      class: "spark c0", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true",
    });
    this.area = make(this.svg, "path", { class: "area" });
    this.line = make(this.svg, "path", { class: "line" });
  }

  draw(values) {
    const shown = values.slice(-60);
    const top = Math.max(1e-12, ...shown.map((v) => v ?? 0));
    const step = this.width / Math.max(1, Math.min(59, shown.length - 1));
    const points = shown.map((v, i) => [i * step, v == null ? null : this.height - 2 - (v / top) * (this.height - 4)]);
    this.line.setAttribute("d", path(points));
    const solid = points.filter(([, y]) => y != null);
    this.area.setAttribute("d", solid.length < 2 ? "" :
      `${path(solid)}L${solid[solid.length - 1][0]} ${this.height}L${solid[0][0]} ${this.height}Z`);
  }
}

// A plot with axes, a legend and a cross-hair that shows the values at the pointer.
export class Plot {
  constructor(box, unit, format) {
    this.box = box;
    this.unit = unit;
    this.format = format;
    this.series = [];
    this.svg = make(box, "svg", { role: "img" });
    this.grid = make(this.svg, "g", { class: "grid" });
    this.lines = make(this.svg, "g");
    this.hair = make(this.svg, "line", { class: "hair", visibility: "hidden" });
    this.dots = make(this.svg, "g");
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    box.append(this.legend, this.tip);
    this.pointer = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.pointer = event.offsetX;
      this.point();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.point();
    });
    new ResizeObserver(() => this.render()).observe(box);
  }

  // series: [{name, times, values}]; `now` is the right edge, `span` seconds are shown.
  draw(series, now, span, label, limit = null) {
    Object.assign(this, { series, now, span, label, limit });
    this.render();
  }

  render() {
    if (this.now === undefined) return;
    const width = this.box.clientWidth;
    const height = this.svg.clientHeight;
    if (!width || !height) return;
    const { series, now, span } = this;
    const left = 62, right = 10, top = 10, bottom = 22;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const from = now - span;
    const highest = Math.max(0, ...series.flatMap((s) => s.values.filter((v, i) => v != null && s.times[i] >= from)));
    const marks = ticks(highest, this.unit);
    const full = marks[marks.length - 1];
    this.x = (t) => left + ((t - from) / span) * (width - left - right);
    this.y = (v) => height - bottom - (v / full) * (height - top - bottom);

    this.grid.replaceChildren();
    for (const value of marks) {
      const y = this.y(value);
      make(this.grid, "line", { x1: left, x2: width - right, y1: y, y2: y });
      make(this.grid, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }).textContent = this.format(value);
    }
    const fits = Math.max(1, Math.floor((width - left - right) / 72));
    const step = [15, 30, 60, 120, 300].find((s) => span / s <= fits) ?? span;
    for (let ago = 0; ago <= span; ago += step) {
      const anchor = ago === 0 ? "end" : ago === span ? "start" : "middle";
      make(this.grid, "text", { x: this.x(now - ago), y: height - 5, "text-anchor": anchor }).textContent =
        ago === 0 ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
    }
    if (this.limit != null && this.limit <= full) {
      make(this.grid, "line", { class: "limit", x1: left, x2: width - right, y1: this.y(this.limit), y2: this.y(this.limit) });
    }

    this.lines.replaceChildren();
    series.forEach((one, index) => {
      const points = one.times.map((t, i) => [this.x(t), one.values[i] == null ? null : this.y(one.values[i])])
        .filter(([x]) => x >= left - 1);
      const solid = points.filter(([, y]) => y != null);
      if (series.length === 1 && solid.length > 1) {
        make(this.lines, "path", {
          class: `area c${index % 6}`,
          d: `${path(solid)}L${solid[solid.length - 1][0].toFixed(1)} ${height - bottom}L${solid[0][0].toFixed(1)} ${height - bottom}Z`,
        });
      }
      make(this.lines, "path", { class: `line c${index % 6}`, d: path(points) });
    });

    const latest = (one) => (one.values.length ? one.values[one.values.length - 1] : null);
    this.legend.replaceChildren(...(series.length < 2 ? [] : series.map((one, index) => {
      const item = document.createElement("li");
      item.className = `c${index % 6}`;
      item.textContent = one.name;
      return item;
    })));
    this.svg.setAttribute("aria-label", `${this.label}: ` + (series.length
      ? series.map((one) => `${one.name} ${this.format(latest(one))}`).join(", ") : "nothing yet"));
    this.point();
  }

  point() {
    const shown = this.pointer != null && this.x && this.series.some((one) => one.times.length);
    this.hair.setAttribute("visibility", shown ? "visible" : "hidden");
    this.tip.hidden = !shown;
    this.dots.replaceChildren();
    if (!shown) return;
    let time = null;
    for (const one of this.series) {
      for (const t of one.times) {
        if (time == null || Math.abs(this.x(t) - this.pointer) < Math.abs(this.x(time) - this.pointer)) time = t;
      }
    }
    const x = this.x(time);
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", 10], ["y2", this.svg.clientHeight - 22]]) {
      this.hair.setAttribute(name, value);
    }
    const rows = [`${(this.now - time).toFixed(0)} s ago`];
    this.series.forEach((one, index) => {
      const at = one.times.indexOf(time);
      const value = at < 0 ? null : one.values[at];
      if (value == null) return;
      rows.push(this.series.length > 1 ? `${one.name}  ${this.format(value)}` : this.format(value));
      make(this.dots, "circle", { class: `dot c${index % 6}`, cx: x, cy: this.y(value), r: 3.5 });
    });
    this.tip.textContent = rows.join("\n");
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.min(Math.max(0, x + 12), this.box.clientWidth - wide)}px`;
    if (x + 12 + wide > this.box.clientWidth) this.tip.style.left = `${x - 12 - wide}px`;
  }
}
