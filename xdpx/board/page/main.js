"use strict";
// The page: what is chosen, what is shown, and what the address remembers of it.

const $ = (id) => document.getElementById(id);
const embedded = $("data");
const source = embedded ? new XB.EmbeddedSource(JSON.parse(embedded.textContent)) : new XB.HttpSource();
const MOST_CHOSEN = 300;
const PAUSE = 1500; // milliseconds between two looks at the table

const state = {
  runs: new Map(), common: {}, lower: new Set(), version: 0, whole: false, total: 0,
  chosen: [], colours: new Map(), metrics: null, charts: new Map(), wide: new Set(), borders: [],
  shown: [], view: "curves", axis: "steps", smooth: 0, log: false, outliers: true, training: true, epochs: true,
  sort: { key: "updated", descending: true }, columns: null, filter: "",
};

// ---- what the address remembers

const KEPT = ["view", "axis", "smooth", "log", "outliers", "training", "epochs", "filter"];

function remember() {
  const kept = { chosen: state.chosen, metrics: state.metrics, columns: state.columns, sort: state.sort };
  for (const name of KEPT) kept[name] = state[name];
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(kept))}`);
}

function recall() {
  try {
    const kept = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const name of KEPT) if (typeof kept[name] === typeof state[name]) state[name] = kept[name];
    if (Array.isArray(kept.chosen)) kept.chosen.slice(0, MOST_CHOSEN).forEach(String).forEach(take);
    for (const name of ["metrics", "columns"]) if (Array.isArray(kept[name])) state[name] = kept[name].map(String);
    if (typeof kept.sort?.key === "string") state.sort = { key: kept.sort.key, descending: Boolean(kept.sort.descending) };
  } catch {
    // an address that somebody cut short: begin as if there were none
  }
}

// ---- choosing runs

function take(id) {
  if (state.colours.has(id) || state.chosen.length >= MOST_CHOSEN) return;
  const used = new Set(state.colours.values());
  let n = 0;
  while (used.has(XB.colour(n))) n += 1;
  state.colours.set(id, XB.colour(n));
  state.chosen.push(id);
}

function choose(ids, chosen) {
  for (const id of ids) {
    if (chosen) take(id);
    else {
      state.colours.delete(id);
      state.chosen = state.chosen.filter((each) => each !== id);
    }
  }
  remember();
  table.paint();
  showChosen();
}

const chosenRuns = () => state.chosen.map((id) => state.runs.get(id)).filter(Boolean);

// ---- the table

const fixed = [
  { key: "name", title: "run", width: "minmax(196px, 2fr)", text: (run) => run.name, value: (run) => run.name },
  { key: "state", title: "state", width: "90px", text: (run) => run.state, value: (run) => run.state, mark: (run) => (run.trouble ? "damaged" : run.state), title_of: (run) => run.trouble || run.state },
  { key: "score", title: "best", width: "70px", right: true, bigFirst: () => state.shown.some((run) => run.ascending !== false), text: (run) => XB.number(run.score), value: (run) => run.score, title_of: (run) => (run.score === null ? "" : `${run.metric || "best score"} ${run.score}`), about: "The best score so far, of the metric that decides" },
  { key: "step", title: "step", width: "62px", right: true, bigFirst: true, text: (run) => XB.number(run.step), value: (run) => run.step, title_of: (run) => (run.total ? `${run.step ?? 0} of ${run.total}` : "") },
  { key: "updated", title: "written", width: "64px", right: true, bigFirst: true, text: (run) => XB.ago(run.updated), value: (run) => run.updated, title_of: (run) => (run.updated ? new Date(run.updated * 1000).toLocaleString() : "") },
];
const optional = [
  { key: "door", title: "door", width: "76px", text: (run) => run.door, value: (run) => run.door },
  { key: "metric", title: "metric", width: "90px", text: (run) => run.metric, value: (run) => run.metric },
  { key: "epoch", title: "epoch", width: "64px", right: true, text: (run) => XB.number(run.epoch), value: (run) => run.epoch },
  { key: "progress", title: "done", width: "64px", right: true, bigFirst: true, text: (run) => (run.total ? `${Math.round((100 * (run.step ?? 0)) / run.total)} %` : ""), value: (run) => (run.total ? (run.step ?? 0) / run.total : null) },
];
const known = new Map([...fixed, ...optional].map((column) => [column.key, column]));

const commonOf = (run) => state.common[run.door] ?? {};
const settingOf = (run, key) => (run.has_settings ? XB.plain(key in run.settings ? run.settings[key] : commonOf(run)[key]) : "");

function lastOf(run, name) {
  const place = run.valid.indexOf(name);
  return place < 0 ? null : run.last[place];
}

// Whether the best value of a metric is its highest: as the runs that it decides say, else by its name.
function highestIsBest(name) {
  const decided = state.shown.find((run) => `valid_${run.metric}` === name && typeof run.ascending === "boolean");
  return decided ? decided.ascending : !state.lower.has(name);
}

// A column by its key: one of the run, `last:NAME` of its newest evaluation, else a setting.
function columnOf(key) {
  if (known.has(key)) return known.get(key);
  if (key.startsWith("last:")) {
    const name = key.slice(5);
    return { key, title: name, width: "96px", right: true, bigFirst: () => highestIsBest(name), text: (run) => XB.number(lastOf(run, name)), value: (run) => lastOf(run, name) };
  }
  const text = (run) => { const value = settingOf(run, key); return typeof value === "number" ? `${value}` : value; };
  return { key, title: key, width: `${Math.min(150, Math.max(64, 14 + 7 * key.length))}px`, text, value: (run) => settingOf(run, key), right: areNumbers(key) };
}

// Whether a setting is a number in the first runs: such a column stands to the right.
function areNumbers(key) {
  const values = [...state.runs.values()].slice(0, 20).map((run) => settingOf(run, key)).filter((value) => value !== "");
  return values.length > 0 && values.every((value) => typeof value === "number");
}

function valueOf(run, key) {
  if (known.has(key)) return known.get(key).value(run);
  const last = lastOf(run, key) ?? lastOf(run, `valid_${key}`);
  return last ?? settingOf(run, key);
}

// Settings of which not all runs have the same value, those that take the fewest values first.
function differing() {
  if (state.differing?.version === state.version) return state.differing.keys;
  const values = new Map();
  for (const run of state.runs.values()) {
    for (const [key, value] of Object.entries(run.settings)) {
      if (!values.has(key)) values.set(key, new Set([commonOf(run)[key]]));
      values.get(key).add(value);
    }
  }
  const keys = [...values].filter(([, found]) => found.size > 1).sort((a, b) => a[1].size - b[1].size).map(([key]) => key);
  state.differing = { version: state.version, keys };
  return keys;
}

function shownColumns() {
  const more = state.columns ?? differing().filter((key) => key !== "seed" && !key.endsWith("_dir")).slice(0, 3);
  return [...fixed.slice(0, -1), ...more.map(columnOf), fixed[fixed.length - 1]];
}

const table = new XB.Table($("table"), {
  colourOf: (id) => state.colours.get(id),
  onChoose: choose,
  onOpen: (run) => detail.open(run),
  onSort: (key, descending) => { state.sort = { key, descending }; remember(); showTable(); },
});

function showTable() {
  const accepts = XB.filter(state.filter, valueOf);
  const rows = [...state.runs.values()].filter(accepts);
  const column = columnOf(state.sort.key), { descending } = state.sort;
  const keyed = rows.map((run) => [column.value(run), run]);
  keyed.sort((a, b) => XB.compare(a[0], b[0], descending) || XB.compare(a[1].name, b[1].name, false));
  state.shown = keyed.map(([, run]) => run);
  table.show(state.shown, shownColumns(), state.sort);
  const all = state.runs.size, found = state.shown.length;
  const looking = state.whole ? "" : ", looking for more …";
  $("count").textContent = !all ? (state.whole ? "There are no runs below this folder." : "Looking for runs …")
    : `${found === all ? "" : `${found.toLocaleString("en-US")} of `}${all.toLocaleString("en-US")} run${all === 1 ? "" : "s"}${looking}`;
  $("choose").disabled = !found || found > MOST_CHOSEN;
  $("choose").title = found > MOST_CHOSEN ? `At most ${MOST_CHOSEN} runs are drawn at a time: filter first.` : "";
}

async function follow() {
  for (;;) {
    try {
      const answer = await source.runs(state.version);
      state.common = answer.common;
      for (const name of answer.lower) state.lower.add(name);
      const changed = answer.rows.length || state.whole !== answer.whole;
      for (const run of answer.rows) {
        if (run.gone) state.runs.delete(run.id);
        else state.runs.set(run.id, { ...run, train: answer.headers[run.train], valid: answer.headers[run.valid] });
      }
      state.version = answer.version;
      state.whole = answer.whole;
      $("root").textContent = answer.root;
      online("");
      if (!source.live && !state.chosen.length && state.runs.size <= XB.COLOURS.length) answer.rows.forEach((run) => take(run.id));
      if (changed && (!answer.more || !state.shown.length)) {
        showTable();
        if (answer.rows.some((run) => state.colours.has(run.id))) showChosen();
      }
      if (answer.more) continue;
    } catch (error) {
      online(error.message || "no answer");
    }
    if (!source.live) return;
    await new Promise((resolve) => setTimeout(resolve, state.whole ? PAUSE : 250));
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

function online(trouble) {
  $("live").className = trouble ? "live off" : source.live ? "live" : "live still";
  $("live").textContent = !source.live ? "a file, made once" : trouble ? "x-board does not answer" : "live";
  $("live").title = trouble;
}

// ---- curves

const logs = new XB.Logs(source, () => schedule(), online);
let due = false;

function schedule() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

function metricsOfChosen() {
  const groups = { Scores: new Set(), Training: new Set(), System: new Set() };
  for (const run of chosenRuns()) for (const [metric, group] of XB.metricsOf(run)) groups[group].add(metric);
  for (const metric of groups.Scores) groups.Training.delete(metric);
  return groups;
}

function shownMetrics(groups) {
  const there = new Set([...groups.Scores, ...groups.Training, ...groups.System]);
  if (state.metrics) return state.metrics.filter((metric) => there.has(metric));
  const major = chosenRuns().map((run) => run.metric).find((metric) => there.has(metric));
  return [...new Set([major, "loss"])].filter((metric) => there.has(metric));
}

function showChosen() {
  const runs = chosenRuns();
  document.body.classList.toggle("differences", state.view === "differences");
  $("legend").replaceChildren(...runs.slice(0, 40).map((run) => {
    const chip = XB.make("button", { type: "button", class: "chip", title: `${run.name}: do not draw`, onclick: () => choose([run.id], false) }, XB.make("i", { class: "swatch" }), XB.make("span", { textContent: run.name }), " ✕");
    chip.firstChild.style.borderColor = state.colours.get(run.id);
    return chip;
  }), ...(runs.length > 40 ? [XB.make("span", { class: "quiet", textContent: `and ${runs.length - 40} more` })] : []));
  const groups = metricsOfChosen(), metrics = shownMetrics(groups);
  $("metrics").replaceChildren(...Object.entries(groups).filter(([, names]) => names.size).map(([group, names]) => XB.make("div", { class: "group" }, XB.make("span", { class: "quiet", textContent: group }),
    ...[...names].sort((a, b) => XB.compare(a, b)).map((metric) => XB.make("button", { type: "button", class: "chip", textContent: metric, aria_pressed: String(metrics.includes(metric)), onclick: () => {
      state.metrics = metrics.includes(metric) ? metrics.filter((each) => each !== metric) : [...metrics, metric];
      remember();
      showChosen();
    } })))));
  const wanted = new Map();
  for (const run of state.view === "curves" ? runs : []) for (const metric of metrics) logs.needs(run, metric, state, wanted);
  logs.want(wanted);
  askEpochs(runs[0]);
  if (state.view === "curves") showCharts(metrics);
  else showDifferences(runs);
}

function showCharts(metrics) {
  for (const [metric, chart] of state.charts) {
    if (metrics.includes(metric)) continue;
    chart.remove();
    state.charts.delete(metric);
  }
  if (!metrics.length) {
    const hint = state.chosen.length ? "Choose above what is to be drawn." : "Choose runs in the table, and their curves appear here. Nothing is drawn before.";
    $("grid").replaceChildren(XB.make("p", { class: "hint", textContent: hint }));
    return;
  }
  for (const metric of metrics) {
    if (state.charts.has(metric)) continue;
    state.charts.set(metric, new XB.Chart(metric, {
      onClose: () => { state.metrics = metrics.filter((each) => each !== metric); remember(); showChosen(); },
      onWide: (chart) => { chart.card.classList.toggle("wide"); chart.resize(); },
    }));
  }
  const cards = metrics.map((metric) => state.charts.get(metric).card);
  const there = [...$("grid").children];
  if (cards.length !== there.length || cards.some((card, i) => card !== there[i])) {
    $("grid").replaceChildren(...cards);
    for (const chart of state.charts.values()) chart.resize();
  }
  schedule();
}

function draw() {
  if (state.view !== "curves") return;
  const runs = chosenRuns();
  const place = runs[0] && logs.place(runs[0], state.axis);
  const epochs = state.epochs && place ? state.borders.map(place) : [];
  const placeless = runs.filter((run) => !logs.place(run, state.axis)).length;
  const empty = placeless && state.axis === "samples" ? "No run tells how many samples an update has." : placeless ? "No run tells its training time yet." : "Reading …";
  for (const [metric, chart] of state.charts) {
    const curves = runs.flatMap((run) => logs.draw(run, metric, state).map((curve) => ({ ...curve, label: run.name, colour: state.colours.get(run.id) })));
    chart.show(curves, { axis: state.axis, log: state.log, outliers: state.outliers, epochs, empty });
  }
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
}

async function askEpochs(run) {
  const key = run ? `${run.id} ${run.epoch}` : "";
  if (key === state.bordersOf) return;
  state.bordersOf = key;
  state.borders = [];
  if (!run) return;
  try {
    const { borders } = await source.epochs(run.id);
    if (state.bordersOf === key) state.borders = borders;
    schedule();
  } catch {
    // the curves stand without lines
  }
}

function showDifferences(runs) {
  for (const chart of state.charts.values()) chart.remove();
  state.charts.clear();
  if (runs.length < 2) {
    $("grid").replaceChildren(XB.make("p", { class: "hint", textContent: "Choose two runs or more, and the settings in which they differ stand here." }));
    return;
  }
  const shown = runs.slice(0, 30);
  const keys = new Set(shown.flatMap((run) => Object.keys(run.settings)));
  const rows = [...keys].map((key) => [key, shown.map((run) => settingOf(run, key))]).filter(([, values]) => new Set(values).size > 1).sort((a, b) => XB.compare(a[0], b[0]));
  const head = XB.make("tr", {}, XB.make("th", { textContent: "setting" }), ...shown.map((run) => { const cell = XB.make("th", { textContent: run.name }); cell.style.borderTopColor = state.colours.get(run.id); return cell; }));
  const scores = XB.make("tr", { class: "scores" }, XB.make("th", { textContent: "best score" }), ...shown.map((run) => XB.make("td", { textContent: XB.number(run.score), title: run.metric })));
  const body = rows.map(([key, values]) => XB.make("tr", {}, XB.make("th", { textContent: key }), ...values.map((value) => XB.make("td", { textContent: value === "" ? "—" : String(value) }))));
  const note = rows.length ? (runs.length > shown.length ? `the first ${shown.length} of ${runs.length} runs` : "") : "All settings are the same.";
  $("grid").replaceChildren(XB.make("div", { class: "scroll whole" }, XB.make("table", { class: "differences" }, head, scores, ...body), XB.make("p", { class: "quiet", textContent: note })));
}

// ---- controls

const detail = new XB.Detail($("detail"), source, { common: commonOf, onClose: () => $("table").focus() });

function segments(id, name, then) {
  const press = () => { for (const button of $(id).children) button.setAttribute("aria-pressed", String(button.dataset.value === state[name])); };
  for (const button of $(id).children) {
    button.onclick = () => {
      state[name] = button.dataset.value;
      press();
      remember();
      then();
    };
  }
  press();
}

function ticks(name) {
  $(name).checked = state[name];
  $(name).onchange = () => {
    state[name] = $(name).checked;
    remember();
    showChosen();
  };
}

function pickColumns() {
  const open = document.querySelector(".popover");
  if (open) {
    open.remove();
    return;
  }
  const shown = new Set(shownColumns().map((column) => column.key));
  const lasts = new Set();
  for (const run of [...state.runs.values()].slice(0, 500)) for (const name of run.valid) if (name !== "epoch" && name !== "step") lasts.add(`last:${name}`);
  const groups = [["Run", optional.map((column) => column.key)], ["Settings that differ", differing()], ["Newest evaluation", [...lasts]]];
  const sought = XB.make("input", { type: "search", placeholder: "Find a column", oninput: () => {
    for (const label of box.querySelectorAll("label")) label.hidden = !label.textContent.toLowerCase().includes(sought.value.toLowerCase());
  } });
  const box = XB.make("div", { class: "popover" }, sought, ...groups.filter(([, keys]) => keys.length).flatMap(([title, keys]) => [XB.make("h4", { textContent: title }),
    ...keys.map((key) => XB.make("label", {}, XB.make("input", { type: "checkbox", checked: shown.has(key), onchange: (event) => {
      const now = shownColumns().map((column) => column.key).filter((each) => !fixed.some((column) => column.key === each));
      state.columns = event.target.checked ? [...now, key] : now.filter((each) => each !== key);
      remember();
      showTable();
    } }), key.replace(/^last:/, "")))]));
  $("columns").after(box);
  sought.focus();
}

function controls() {
  $("filter").value = state.filter;
  $("filter").oninput = () => { state.filter = $("filter").value; remember(); showTable(); };
  $("columns").onclick = pickColumns;
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".popover, #columns")) document.querySelector(".popover")?.remove();
  });
  $("choose").onclick = () => choose(state.shown.map((run) => run.id), true);
  $("clear").onclick = () => choose([...state.chosen], false);
  segments("view", "view", showChosen);
  segments("axis", "axis", showChosen);
  for (const name of ["log", "outliers", "training", "epochs"]) ticks(name);
  $("smooth").value = state.smooth;
  $("smooth").oninput = () => { state.smooth = Number($("smooth").value); $("smooth-value").textContent = state.smooth; remember(); schedule(); };
  $("smooth-value").textContent = state.smooth;
  $("theme").onclick = () => {
    const order = ["", "light", "dark"], next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % 3];
    theme(next);
    for (const chart of state.charts.values()) chart.build();
  };
  theme(kept("theme"));
  divide();
  new ResizeObserver(() => { for (const chart of state.charts.values()) chart.resize(); }).observe($("grid"));
}

// What the browser keeps for the next time; a file that is opened from a disk may not be allowed to.
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(`xdpx-board-${name}`, value);
    return localStorage.getItem(`xdpx-board-${name}`) ?? "";
  } catch {
    return "";
  }
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = { light: "Light", dark: "Dark" }[name] ?? "Auto";
  kept("theme", name);
}

function divide() {
  const place = (share) => {
    const width = Math.min(80, Math.max(18, share));
    $("panes").style.setProperty("--left", `${width}%`);
    kept("left", String(width));
  };
  if (Number(kept("left"))) place(Number(kept("left")));
  $("divider").onpointerdown = (event) => {
    $("divider").setPointerCapture(event.pointerId);
    $("divider").onpointermove = (moved) => place((100 * moved.clientX) / window.innerWidth);
    $("divider").onpointerup = () => { $("divider").onpointermove = null; };
  };
  $("divider").onkeydown = (event) => {
    const step = { ArrowLeft: -3, ArrowRight: 3 }[event.key];
    if (step) place((100 * $("runs").offsetWidth) / window.innerWidth + step);
  };
}

recall();
controls();
showTable();
showChosen();
follow();
setInterval(() => table.paint(), 30000); // how long ago something was written
