"use strict";
// Columns of logs that the page holds, and follows while they grow: after the first time, only what was added is fetched.

XB.SYSTEM = /^(wps|ups|mfu|data_wait|tokens_per|examples_per|samples_per|steps_per|peak_|system|cpu|gpu|mem|rss|disk|net|power|temp)|_per_second|memory|_gb$|_gib$|utili[sz]ation/i;
const NO_METRIC = new Set(["epoch", "step", "train_wall", "best_score", "best_step"]);
const TRAINING = new Set(["loss", "gnorm", "lr", "clip", "loss_scale"]);

// {metric: group} of a run. What is logged in training and in evaluations is one metric.
XB.metricsOf = (run) => {
  const found = new Map();
  for (const name of run.valid) {
    if (name.startsWith("valid_")) found.set(name.slice(6), "Scores");
  }
  for (const name of run.valid) {
    if (NO_METRIC.has(name) || name.startsWith("valid_")) continue;
    const metric = name.startsWith("train_") ? name.slice(6) : name;
    if (!found.has(metric)) found.set(metric, XB.SYSTEM.test(metric) ? "System" : "Training");
  }
  for (const name of run.train) {
    if (!NO_METRIC.has(name) && !found.has(name)) found.set(name, XB.SYSTEM.test(name) ? "System" : "Training");
  }
  return found;
};

// The lines of a metric of a run: [log, column, whether it is that of training beside one of validation].
XB.linesOf = (run, metric, withTraining) => {
  const lines = [];
  const scored = run.valid.includes(`valid_${metric}`);
  if (scored) lines.push(["valid", `valid_${metric}`, false]);
  if (!scored || withTraining) {
    if (run.train.includes(metric)) lines.push(["train", metric, scored]);
    else if (run.valid.includes(`train_${metric}`)) lines.push(["valid", `train_${metric}`, scored]);
    else if (run.valid.includes(metric)) lines.push(["valid", metric, scored]);
  }
  return lines;
};

XB.majorColumn = (run) => (run.valid.includes(`valid_${run.metric}`) ? `valid_${run.metric}` : "best_score");

XB.Logs = class {
  constructor(source, changed, trouble) {
    this.source = source;
    this.changed = changed;
    this.trouble = trouble;
    this.files = new Map(); // "run log" -> {run, log, columns, at, data}
    this.wanted = new Set();
    this.drawn = new Map();
    this.wake = () => {};
    this.follow();
  }

  // Follow these columns from now on: Map of "run log" -> Set of names. Others are kept, but no longer asked for.
  want(wanted) {
    let changed = false;
    for (const [key, names] of wanted) {
      const [run, log] = key.split(" ");
      const file = this.files.get(key) ?? { run, log, columns: new Set(), at: "", data: {} };
      const before = file.columns.size;
      names.forEach((name) => file.columns.add(name));
      if (file.columns.size > before) file.at = "";
      changed ||= file.columns.size > before || !this.wanted.has(key);
      this.files.set(key, file);
    }
    changed ||= wanted.size !== this.wanted.size;
    this.wanted = new Set(wanted.keys());
    for (const key of this.files.keys()) {
      if (this.files.size > 2000 && !this.wanted.has(key)) this.files.delete(key);
    }
    if (changed) {
      this.abort?.abort();
      this.wake();
    }
  }

  column(run, log, name) {
    return this.files.get(`${run} ${log}`)?.data[name];
  }

  async follow() {
    for (;;) {
      const files = [...this.wanted].map((key) => this.files.get(key));
      if (!files.length || document.hidden) {
        await new Promise((resolve) => {
          this.wake = resolve;
          document.addEventListener("visibilitychange", resolve, { once: true });
        });
        continue;
      }
      const asked = files.map(({ run, log, columns, at }) => ({ run, log, columns: [...columns], at }));
      this.abort = new AbortController();
      try {
        const answers = await this.source.rows(asked, 20, this.abort.signal);
        this.trouble("");
        for (const answer of answers) this.take(files[answer.mark], asked[answer.mark], answer);
        if (answers.length) this.changed();
      } catch (error) {
        if (error.name === "AbortError") continue;
        this.trouble(error.message || "no answer");
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  }

  take(file, asked, { at, anew, columns }) {
    if (file.at !== asked.at || file.columns.size !== asked.columns.length) return; // asked for more meanwhile
    file.at = at;
    file.version = (file.version ?? 0) + 1;
    if (anew) {
      file.data = columns;
      return;
    }
    const steps = file.data.step ?? new Float64Array(0), added = columns.step;
    if (!added?.length) return;
    const kept = XB.firstAbove(steps, added[0] - 1e-9); // steps that a resumed run walks again are replaced
    for (const name of new Set([...Object.keys(file.data), ...Object.keys(columns)])) {
      const values = new Float64Array(kept + added.length).fill(NaN);
      if (file.data[name]) values.set(file.data[name].subarray(0, kept));
      if (columns[name]) values.set(columns[name], kept);
      file.data[name] = values;
    }
  }

  // What turns steps of a run into places on the axis; null where the run does not tell.
  place(run, axis) {
    if (axis === "steps") return (step) => step;
    if (axis === "samples") return run.paces.length ? XB.seen(run.paces) : null;
    const wall = this.column(run.id, "valid", "train_wall");
    const clock = wall && XB.clock(this.column(run.id, "valid", "step"), wall);
    if (clock) return clock;
    const speed = this.column(run.id, "train", "ups"), steps = this.column(run.id, "train", "step");
    if (!speed) return null;
    const seconds = new Float64Array(steps.length);
    for (let i = 0, total = 0; i < steps.length; i++) {
      if (speed[i] > 0) total += (steps[i] - (i ? steps[i - 1] : 0)) / speed[i];
      seconds[i] = total;
    }
    return XB.clock(steps, seconds);
  }

  // Columns that must be there to draw a metric of a run.
  needs(run, metric, { axis, training }, wanted) {
    const add = (log, ...names) => {
      const key = `${run.id} ${log}`;
      if (!wanted.has(key)) wanted.set(key, new Set());
      names.forEach((name) => wanted.get(key).add(name));
    };
    for (const [log, column] of XB.linesOf(run, metric, training)) {
      add(log, column);
      if (column.startsWith("valid_")) add("valid", XB.majorColumn(run), ...["best_score", "best_step"].filter((name) => run.valid.includes(name)));
    }
    if (axis === "time") {
      if (run.valid.includes("train_wall")) add("valid", "train_wall");
      else if (run.train.includes("ups")) add("train", "ups");
    }
  }

  // The curves of a metric of a run: {x, y, dashed, best}; the same ones as before while nothing has changed.
  draw(run, metric, options) {
    const version = (log) => this.files.get(`${run.id} ${log}`)?.version ?? 0;
    const { axis, training, smooth } = options;
    const stamp = [version("train"), version("valid"), axis, training, smooth, run.paces, run.ascending].join(" ");
    const key = `${run.id} ${metric}`, known = this.drawn.get(key);
    if (known?.stamp === stamp) return known.curves;
    if (this.drawn.size > 3000) this.drawn.clear();
    const curves = this.compute(run, metric, options);
    this.drawn.set(key, { stamp, curves });
    return curves;
  }

  compute(run, metric, { axis, training, smooth }) {
    const place = this.place(run, axis);
    if (!place) return [];
    const found = [];
    for (const [log, column, dashed] of XB.linesOf(run, metric, training)) {
      const steps = this.column(run.id, log, "step"), values = this.column(run.id, log, column);
      if (!steps?.length || !values) continue;
      const there = (_, i) => !Number.isNaN(values[i]);
      const whole = steps.every(there), at = whole ? steps : steps.filter(there), raw = whole ? values : values.filter(there);
      if (!at.length) continue;
      const x = axis === "steps" ? at : at.map(place);
      const y = smooth ? XB.smooth(raw, smooth) : raw;
      const best = column.startsWith("valid_") ? this.best(run, steps, values, place) : null;
      found.push({ x, y, raw: smooth ? raw : null, steps: at, dashed, best });
    }
    return found;
  }

  best(run, steps, values, place) {
    const scores = this.column(run.id, "valid", XB.majorColumn(run)), sofar = this.column(run.id, "valid", "best_score");
    const anew = this.column(run.id, "valid", "best_step");
    if (!scores) return null;
    const first = scores.findIndex(Number.isFinite), last = scores.findLastIndex(Number.isFinite);
    if (first < 0) return null;
    const upwards = run.ascending ?? scores[last] >= scores[first];
    let row = first;
    for (let i = first; i <= last; i++) {
      if (Number.isFinite(scores[i]) && (upwards ? scores[i] > scores[row] : scores[i] < scores[row])) row = i;
    }
    // A run that was resumed on other held-out data began to count anew: the row at which `best_score`, or its step,
    // changed last.
    const end = sofar?.findLastIndex(Number.isFinite) ?? -1;
    const other = (i) => sofar[i] !== sofar[end] || (anew && !Object.is(anew[i], anew[end]));
    const changed = end < 0 ? 0 : sofar.findLastIndex((value, i) => i < end && Number.isFinite(value) && other(i)) + 1;
    const since = end < 0 ? -1 : sofar.findIndex((value, i) => i >= changed && value === sofar[end]);
    if (since >= 0 && scores[since] === sofar[end]) row = since;
    return Number.isFinite(values[row]) ? { x: place(steps[row]), y: values[row], step: steps[row] } : null;
  }
};
