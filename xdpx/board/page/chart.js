"use strict";
// One chart. uPlot draws axes, zooms and follows the pointer; the curves, each with x of its own, are drawn here.

const AXES = { steps: "steps", samples: "samples seen", time: "training time" };
const MOST_TOLD = 12; // curves that are named at the pointer

XB.Chart = class {
  constructor(metric, { onClose, onWide }) {
    this.metric = metric;
    this.curves = [];
    this.over = XB.make("div", { class: "tip", hidden: true });
    this.dot = XB.make("div", { class: "dot", hidden: true });
    this.note = XB.make("span", { class: "quiet note" });
    this.plot = XB.make("div", { class: "plot" });
    const wide = XB.make("button", { type: "button", class: "plain icon", title: "Wide or narrow", textContent: "⤢", onclick: () => onWide(this) });
    const close = XB.make("button", { type: "button", class: "plain icon", title: "Do not draw this", textContent: "✕", onclick: () => onClose(this) });
    const title = XB.make("h3", { textContent: metric, title: metric });
    this.card = XB.make("article", { class: "card" }, XB.make("div", { class: "card-head" }, title, this.note, XB.make("span", { class: "spring" }), wide, close), this.plot, this.over);
  }

  // Show these curves. Options: axis, log, outliers, epochs (borders as places), empty (what to say without curves).
  show(curves, options) {
    const rebuilt = !this.view || this.options.log !== options.log || this.options.axis !== options.axis;
    this.curves = curves;
    this.options = options;
    this.note.textContent = curves.length ? "" : options.empty;
    let from = Infinity, to = -Infinity;
    for (const { x } of curves) {
      if (x[0] < from) from = x[0];
      if (x[x.length - 1] > to) to = x[x.length - 1];
    }
    this.range = from > to ? [0, 1] : from === to ? [from - 0.5, to + 0.5] : [from, to];
    if (rebuilt) this.build();
    else this.refresh();
  }

  refresh() {
    const { min, max } = this.view.scales.x;
    const zoomed = this.zoomed && min !== null;
    this.view.batch(() => {
      this.view.setData(this.data(), !zoomed);
      if (zoomed) this.view.setScale("x", { min, max });
    });
  }

  data() {
    return [this.range, [0, 1]];
  }

  size() {
    return { width: Math.max(200, this.plot.clientWidth), height: this.card.classList.contains("wide") ? 420 : 250 };
  }

  resize() {
    if (this.view) this.view.setSize(this.size());
  }

  build() {
    this.view?.destroy();
    this.zoomed = false;
    const style = getComputedStyle(document.body), ink = style.getPropertyValue("--quiet"), rule = style.getPropertyValue("--grid");
    const font = `11px ${style.fontFamily}`;
    const time = this.options.axis === "time";
    const axis = { stroke: ink, font, labelFont: font, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1, size: 4 } };
    const settings = {
      ...this.size(),
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { show: false }, sync: { key: "board" }, y: false },
      scales: {
        x: { time: false, range: (view, min, max) => this.window(min, max) },
        y: { distr: this.options.log ? 3 : 1, range: () => XB.limits(this.curves, ...this.seen, this.options) },
      },
      axes: [
        { ...axis, label: AXES[this.options.axis], labelSize: 16, size: 30, gap: 3, space: 70, values: (view, marks) => marks.map(time ? XB.seconds : XB.short) },
        { ...axis, size: (view, values) => 12 + 6.6 * Math.max(3, ...(values ?? []).map((text) => (text ?? "").length)), values: (view, marks) => marks.map((mark) => (mark === null ? null : XB.short(mark))) },
      ],
      series: [{}, { points: { show: false }, paths: () => null }],
      hooks: {
        draw: [(view) => this.paint(view)],
        setCursor: [(view) => this.tell(view)],
        setSelect: [(view) => { if (view.select.width > 0) this.zoomed = true; }],
      },
    };
    this.view = new uPlot(settings, this.data(), this.plot);
    this.view.over.append(this.dot);
    this.view.over.addEventListener("mouseenter", () => { this.here = true; });
    this.view.over.addEventListener("mouseleave", () => { this.here = false; this.hush(); });
    this.view.over.addEventListener("dblclick", () => { this.zoomed = false; this.refresh(); });
  }

  // The part of the horizontal axis that is seen: all of it, or what somebody drew a frame around.
  window(min, max) {
    const [from, to] = this.range;
    if (min <= from && max >= to) this.zoomed = false;
    this.seen = this.zoomed ? [min, max] : this.range;
    return this.seen;
  }

  paint(view) {
    const { ctx, bbox } = view, scale = uPlot.pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    this.paintEpochs(view);
    ctx.lineJoin = "bevel";
    const many = this.curves.length > 20;
    let beyond = 0;
    for (const curve of this.curves) {
      ctx.strokeStyle = curve.colour;
      if (curve.raw && !many) {
        ctx.globalAlpha = 0.22;
        ctx.lineWidth = scale;
        ctx.setLineDash([]);
        this.line(view, curve.x, curve.raw);
      }
      ctx.globalAlpha = curve.dashed ? 0.75 : 1;
      // A line of one pixel takes browsers without a GPU a twentieth of the time of any wider one.
      ctx.lineWidth = many ? 1 : (curve.dashed ? 1.2 : 1.8) * scale;
      ctx.setLineDash(curve.dashed ? [5 * scale, 3 * scale] : []);
      beyond += this.line(view, curve.x, curve.y);
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    ctx.restore();
    for (const { best, colour } of this.curves) if (best) this.paintBest(view, best, colour);
    if (this.curves.length) this.note.textContent = beyond ? `${beyond.toLocaleString("en-US")} outlying point${beyond > 1 ? "s" : ""} beyond the axis` : "";
  }

  // Draw one line, of many points the lowest and highest of each pixel, and return how many lie above or below the axis.
  line(view, x, y) {
    const { ctx, bbox, scales } = view;
    const { min, max } = scales.x, log = this.options.log;
    const low = log ? Math.log(scales.y.min) : scales.y.min, high = log ? Math.log(scales.y.max) : scales.y.max;
    const perX = bbox.width / (max - min), perY = bbox.height / (high - low), bottom = bbox.top + bbox.height;
    const first = Math.max(0, XB.firstAbove(x, min) - 1), last = Math.min(x.length, XB.firstAbove(x, max) + 1);
    const dense = last - first > 2 * bbox.width;
    let beyond = 0, open = false, pixel = NaN, top = 0, deep = 0, left = 0;
    ctx.beginPath();
    const flush = () => {
      if (Number.isNaN(pixel)) return;
      ctx.lineTo(pixel, top);
      ctx.lineTo(pixel, deep);
      ctx.lineTo(pixel, left);
    };
    for (let i = first; i < last; i++) {
      const value = log ? Math.log(y[i]) : y[i];
      if (!Number.isFinite(value)) {
        if (dense) flush();
        pixel = NaN;
        open = false;
        continue;
      }
      if ((value < low || value > high) && x[i] >= min && x[i] <= max) beyond += 1;
      let px = bbox.left + (x[i] - min) * perX;
      const py = Math.max(-1e5, Math.min(1e5, bottom - (value - low) * perY));
      if (!dense) {
        if (open) ctx.lineTo(px, py);
        else ctx.moveTo(px, py);
        open = true;
        continue;
      }
      px = Math.round(px);
      if (!open) ctx.moveTo(px, py);
      open = true;
      if (px === pixel) {
        if (py < top) top = py;
        if (py > deep) deep = py;
      } else {
        flush();
        pixel = px;
        top = deep = py;
      }
      left = py;
    }
    if (dense) flush();
    ctx.stroke();
    if (last - first === 1) this.disc(view, x[first], y[first], 2.5, ctx.strokeStyle);
    return beyond;
  }

  paintEpochs(view) {
    const { ctx, bbox } = view, borders = this.options.epochs ?? [];
    const shown = borders.filter((place) => place > view.scales.x.min && place < view.scales.x.max);
    if (!shown.length) return;
    const stride = Math.ceil(shown.length / 60);
    ctx.strokeStyle = getComputedStyle(document.body).getPropertyValue("--epoch");
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    for (let i = 0; i < shown.length; i += stride) {
      const px = Math.round(view.valToPos(shown[i], "x", true)) + 0.5;
      ctx.moveTo(px, bbox.top);
      ctx.lineTo(px, bbox.top + bbox.height);
    }
    ctx.stroke();
  }

  paintBest(view, best, colour) {
    const { x, y } = view.scales;
    if (best.x < x.min || best.x > x.max || best.y < y.min || best.y > y.max) return;
    this.disc(view, best.x, best.y, 5, getComputedStyle(document.body).getPropertyValue("--paper"));
    this.disc(view, best.x, best.y, 3.8, colour);
    this.disc(view, best.x, best.y, 1.6, getComputedStyle(document.body).getPropertyValue("--paper"));
  }

  disc(view, x, y, radius, colour) {
    const { ctx } = view;
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.arc(view.valToPos(x, "x", true), view.valToPos(y, "y", true), radius * uPlot.pxRatio, 0, 2 * Math.PI);
    ctx.fill();
  }

  // Say what the curves are at the pointer, the nearest first.
  tell(view) {
    const { left, top } = view.cursor;
    if (!this.here || left === undefined || left < 0 || !this.curves.length) return this.hush();
    const at = view.posToVal(left, "x");
    const near = [];
    for (const curve of this.curves) {
      const { x, y } = curve;
      if (at < x[0] && view.valToPos(x[0], "x") - left > 20) continue;
      if (at > x[x.length - 1] && left - view.valToPos(x[x.length - 1], "x") > 20) continue;
      const i = XB.nearest(x, at);
      if (Number.isNaN(y[i])) continue;
      near.push({ curve, i, away: Math.abs(view.valToPos(y[i], "y") - top) });
    }
    if (!near.length) return this.hush();
    near.sort((a, b) => a.away - b.away);
    const { curve, i } = near[0];
    const place = this.options.axis === "time" ? XB.seconds(curve.x[i]) : `${XB.number(curve.x[i])} ${AXES[this.options.axis]}`;
    const step = this.options.axis === "steps" ? "" : ` (step ${XB.number(curve.steps[i])})`;
    const rows = near.slice(0, MOST_TOLD).map(({ curve: each, i: row }, n) => XB.make("div", { class: n ? "told" : "told nearest" },
      XB.make("i", { class: each.dashed ? "swatch dashed" : "swatch" }), XB.make("span", { class: "name", textContent: each.dashed ? `${each.label} · training` : each.label }),
      XB.make("b", { textContent: XB.number(each.raw ? each.raw[row] : each.y[row]) }), each.raw ? XB.make("span", { class: "quiet", textContent: `~${XB.number(each.y[row])}` }) : null));
    near.slice(0, MOST_TOLD).forEach(({ curve: each }, n) => { rows[n].firstChild.style.borderColor = each.colour; });
    const more = near.length > MOST_TOLD ? [XB.make("div", { class: "quiet", textContent: `and ${near.length - MOST_TOLD} more` })] : [];
    this.over.replaceChildren(XB.make("div", { class: "quiet", textContent: place + step }), ...rows, ...more);
    this.over.hidden = this.dot.hidden = false;
    const frame = this.card.getBoundingClientRect(), area = view.over.getBoundingClientRect();
    const onLeft = left > area.width / 2;
    this.over.style.left = onLeft ? "" : `${area.left - frame.left + left + 14}px`;
    this.over.style.right = onLeft ? `${frame.right - area.left - left + 14}px` : "";
    this.over.style.top = `${area.top - frame.top + 4}px`;
    this.dot.style.transform = `translate(${view.valToPos(curve.x[i], "x")}px, ${view.valToPos(curve.y[i], "y")}px)`;
    this.dot.style.background = curve.colour;
    return undefined;
  }

  hush() {
    this.over.hidden = this.dot.hidden = true;
  }

  remove() {
    this.view?.destroy();
    this.card.remove();
  }
};
