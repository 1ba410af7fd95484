"use strict";
// Numbers and texts: how they are written, compared, filtered and smoothed. Nothing here touches the page.

const XB = {};

XB.COLOURS = [
  "#2f7fd1", "#e08214", "#9a54b8", "#1b9e9e", "#d6408f", "#a07f35", "#6b7785", "#4fa85c", "#d6604d", "#6fb1dc",
];

// The colour of the n-th chosen run: ten that are told apart well, then more by the golden angle.
XB.colour = (n) => (n < XB.COLOURS.length ? XB.COLOURS[n] : `hsl(${Math.round((n * 137.508) % 360)} 55% 52%)`);

XB.number = (value, digits = 5) => {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en-US");
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(digits - 2).replace(/\.?0+e/, "e");
  const text = value.toPrecision(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
};

XB.short = (value) => {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return `${+(value / unit).toPrecision(4)}${letter}`;
  }
  return size !== 0 && size < 1e-4 ? value.toExponential(1).replace(".0e", "e") : `${+value.toPrecision(5)}`;
};

XB.seconds = (value) => {
  if (!Number.isFinite(value)) return "";
  if (value < 100) return `${+value.toPrecision(3)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 100) return `${minutes} min`;
  return minutes < 6000 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.round(minutes / 1440)} days`;
};

XB.ago = (moment, now = Date.now() / 1000) => {
  if (!moment) return "";
  const passed = Math.max(0, now - moment);
  if (passed < 60) return "now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h`;
  return passed < 60 * 86400 ? `${Math.floor(passed / 86400)} d` : new Date(moment * 1000).toISOString().slice(0, 10);
};

XB.bytes = (size) => (size < 1e4 ? `${size} B` : size < 1e7 ? `${Math.round(size / 1024)} KB` : `${Math.round(size / 1048576)} MB`);

// What a setting says, which stands as Python wrote it: 'text' without its quotes, a number as a number.
XB.plain = (text) => {
  if (text === undefined || text === "") return "";
  const quoted = /^(['"])(.*)\1$/s.exec(text);
  if (quoted) return quoted[2];
  const value = Number(text);
  return text.trim() !== "" && !Number.isNaN(value) ? value : text;
};

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// Order of two values of a column: numbers by size, texts as people read them, nothing last.
XB.compare = (a, b, descending) => {
  const noA = a === null || a === undefined || a === "", noB = b === null || b === undefined || b === "";
  if (noA || noB) return noA - noB;
  const numbers = typeof a === "number" && typeof b === "number";
  const order = numbers ? a - b : natural.compare(String(a), String(b));
  return descending ? -order : order;
};

// A filter -> a function of a run. Words must all be found; `key>value` compares; `-` in front negates.
XB.filter = (text, valueOf) => {
  const tests = [];
  for (const [, minus, quoted, word] of text.matchAll(/(-?)(?:"([^"]*)"|(\S+))/g)) {
    const found = quoted === undefined ? /^([^<>=!]+)(<=|>=|!=|<|>|=)(.*)$/.exec(word) : null;
    if (found) {
      const [, key, sign, wanted] = found;
      if (wanted === "") continue; // still being typed
      tests.push([minus, (run) => XB.holds(valueOf(run, key), sign, wanted)]);
    } else {
      const sought = (quoted === undefined ? word : quoted).toLowerCase();
      if (sought) tests.push([minus, (run) => `${run.name} ${run.state} ${run.door}`.toLowerCase().includes(sought)]);
    }
  }
  return (run) => tests.every(([minus, test]) => test(run) !== (minus === "-"));
};

XB.holds = (value, sign, wanted) => {
  if (value === undefined || value === null || value === "") return sign === "!=";
  const number = Number(wanted), both = typeof value === "number" && !Number.isNaN(number);
  const a = both ? value : String(value).toLowerCase(), b = both ? number : wanted.toLowerCase();
  switch (sign) {
    case "=": return a === b;
    case "!=": return a !== b;
    case "<": return a < b;
    case ">": return a > b;
    case "<=": return a <= b;
    default: return a >= b;
  }
};

// Exponential mean without the pull towards zero at the beginning; gaps stay gaps.
XB.smooth = (values, weight) => {
  if (!weight) return values;
  const out = new Float64Array(values.length);
  let mean = 0, share = 1;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) {
      out[i] = value;
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    share *= weight;
    out[i] = mean / (1 - share);
  }
  return out;
};

// Seconds of training at a step, from some (step, seconds) that are known: in proportion between and beyond them.
XB.clock = (steps, seconds) => {
  const xs = [0], ys = [0];
  for (let i = 0; i < steps.length; i++) {
    if (Number.isFinite(seconds[i]) && steps[i] > xs[xs.length - 1]) {
      xs.push(steps[i]);
      ys.push(seconds[i]);
    }
  }
  const last = xs.length - 1;
  if (!last) return null;
  return (step) => {
    if (step >= xs[last]) return ys[last] + ((step - xs[last]) * ys[last]) / xs[last];
    const i = Math.max(1, XB.firstAbove(xs, step));
    return ys[i - 1] + ((ys[i] - ys[i - 1]) * (step - xs[i - 1])) / (xs[i] - xs[i - 1]);
  };
};

// The samples that a run had seen at a step, given [step, samples of an update from there on] of each batch size.
XB.seen = (paces) => (step) => paces.reduce((seen, [begin, pace], i) => {
  const end = Math.min(step, paces[i + 1]?.[0] ?? Infinity);
  return seen + Math.max(0, end - begin) * pace;
}, 0);

XB.firstAbove = (sorted, value) => {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
};

XB.nearest = (sorted, value) => {
  const above = XB.firstAbove(sorted, value);
  if (!above) return 0;
  return above < sorted.length && sorted[above] - value < value - sorted[above - 1] ? above : above - 1;
};

// The lowest and the highest value between `least` and `most` that curves have on a part of the horizontal axis, and some
// thousand of their values, evenly drawn.
XB.extremes = (curves, from, to, least, most) => {
  const some = [], count = curves.reduce((sum, curve) => sum + curve.x.length, 0), stride = Math.ceil(count / 8000);
  let low = Infinity, high = -Infinity, number = 0;
  for (const { x, y } of curves) {
    const end = XB.firstAbove(x, to);
    let start = XB.firstAbove(x, from);
    while (start > 0 && x[start - 1] === from) start -= 1;
    for (let i = start; i < end; i++) {
      const value = y[i];
      if (!(value >= least && value <= most) || value === Infinity || value === -Infinity) continue;
      if (value < low) low = value;
      if (value > high) high = value;
      if (number++ % stride === 0) some.push(value);
    }
  }
  return [low, high, some];
};

// Limits of the vertical axis, as the figures of x-viz have them: the body of the values, without a few far outliers.
XB.limits = (curves, from, to, { outliers, log }) => {
  let [low, high, values] = XB.extremes(curves, from, to, log ? Number.MIN_VALUE : -Infinity, Infinity);
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (outliers && values.length >= 8) {
    const sorted = Float64Array.from(values).sort();
    const lower = sorted[Math.floor(0.03 * (sorted.length - 1))], upper = sorted[Math.ceil(0.97 * (sorted.length - 1))];
    const least = lower - 1.2 * (upper - lower), most = upper + 1.2 * (upper - lower);
    if (low < least || high > most) [low, high] = XB.extremes(curves, from, to, log ? Math.max(least, Number.MIN_VALUE) : least, most);
  }
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
};

// An element with classes, texts and children: texts are never read as HTML.
XB.make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name.startsWith("aria_") || name === "role") element.setAttribute(name.replace("_", "-"), value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
