"use strict";
// One run, looked at closely: its facts, settings, log, code, predictions and pages.

const STATES = { running: "running", finished: "finished", preempted: "interrupted, can go on", failed: "failed", silent: "says it runs, but has written nothing for ten minutes", "": "" };
const ROWS = 50;

XB.Detail = class {
  constructor(host, source, { common, onClose }) {
    this.host = host;
    this.source = source;
    this.common = common;
    this.onClose = onClose;
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !host.hidden) this.close(); });
  }

  async open(run) {
    this.run = run;
    const turn = (this.turn = Symbol("turn"));
    this.tabs = XB.make("nav", { class: "segments" });
    this.content = XB.make("div", { class: "content" });
    const close = XB.make("button", { type: "button", class: "plain icon", title: "Close (Esc)", textContent: "✕", onclick: () => this.close() });
    this.host.replaceChildren(XB.make("div", { class: "detail-head" }, XB.make("h2", { textContent: run.name }), close), this.tabs, this.content);
    this.host.hidden = false;
    close.focus();
    this.overview();
    let parts = {};
    try {
      parts = await this.source.parts(run.id);
    } catch (error) {
      this.content.prepend(this.trouble(error));
    }
    if (turn !== this.turn) return;
    const tabs = [["Overview", () => this.overview()], ["Settings", () => this.settings(parts.config ?? [])]];
    if (parts.log?.length) tabs.push(["Log", () => this.files(parts.log, (name) => this.text(name, true))]);
    if (parts.code?.length) tabs.push(["Code", () => this.files(parts.code, (name) => this.archive(name))]);
    if (parts.predictions?.length) tabs.push(["Predictions", () => this.files(parts.predictions, (name) => this.predictions(name))]);
    if (parts.pages?.length) tabs.push(["Evaluations", () => this.files(parts.pages, (name) => this.page(name))]);
    this.tabs.replaceChildren(...tabs.map(([title, show]) => XB.make("button", { type: "button", textContent: title, onclick: (event) => {
      this.turn = Symbol("turn");
      this.press(this.tabs, event.currentTarget);
      show();
    } })));
    this.press(this.tabs, this.tabs.firstChild);
  }

  close() {
    this.turn = Symbol("turn");
    clearTimeout(this.timer);
    this.host.hidden = true;
    this.host.replaceChildren();
    this.onClose();
  }

  press(group, pressed) {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button === pressed));
  }

  trouble(error) {
    return XB.make("p", { class: "trouble", textContent: error.message || String(error) });
  }

  overview() {
    const { run } = this;
    const progress = run.total ? `${XB.number(run.step ?? 0)} of ${XB.number(run.total)} (${Math.round((100 * (run.step ?? 0)) / run.total)} %)` : XB.number(run.step);
    const facts = [
      ["door", run.door], ["state", STATES[run.state] ?? run.state], ["updates", progress], ["epoch", XB.number(run.epoch)],
      [`best ${run.metric || "score"}`, XB.number(run.score, 6)], ["samples of an update", XB.number(run.samples)],
      ["last written", run.updated ? new Date(run.updated * 1000).toLocaleString() : ""], ["trouble", run.trouble],
    ].filter(([, value]) => value !== "" && value !== null);
    const list = XB.make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [XB.make("dt", { textContent: name }), XB.make("dd", { textContent: value, class: name === "trouble" ? "trouble" : "" })]));
    const rows = run.valid.map((name, i) => [name, run.last[i]]).filter(([, value]) => value !== null && value !== undefined);
    const table = rows.length ? [XB.make("h3", { textContent: "Newest evaluation" }), XB.make("table", {}, ...rows.map(([name, value]) => XB.make("tr", {}, XB.make("th", { textContent: name }), XB.make("td", { class: "right", textContent: XB.number(value, 6) }))))] : [];
    this.content.replaceChildren(list, ...table);
  }

  settings(names) {
    const keys = Object.keys(this.run.settings);
    const rows = keys.map((key) => XB.make("tr", {}, XB.make("th", { textContent: key }), XB.make("td", { textContent: this.run.settings[key] || "—" }), XB.make("td", { class: "quiet", textContent: this.common(this.run)[key] ?? "—" })));
    const head = XB.make("tr", {}, ...["setting", "here", "in the first run of this door"].map((text) => XB.make("th", { textContent: text })));
    const table = keys.length ? [XB.make("h3", { textContent: "What differs from the first run of this door" }), XB.make("table", {}, head, ...rows)] : [];
    this.content.replaceChildren(...table);
    if (names.length) this.files(names, (name) => this.text(name, false), table);
  }

  // Show a choice of files, and the one that is chosen below it.
  files(names, show, before = []) {
    const below = XB.make("div");
    const pick = XB.make("select", { aria_label: "File", onchange: () => { this.below = below; this.turn = Symbol("turn"); show(pick.value); } }, ...names.map((name) => XB.make("option", { value: name, textContent: name })));
    this.content.replaceChildren(...before, XB.make("div", { class: "tools" }, pick), below);
    this.below = below;
    show(names[0]);
  }

  async ask(promise) {
    const turn = this.turn, below = this.below;
    try {
      const answer = await promise;
      return turn === this.turn && below === this.below ? answer : null;
    } catch (error) {
      if (turn === this.turn) below.replaceChildren(this.trouble(error));
      return null;
    }
  }

  // A text: from its beginning, or (a log) its end, which is followed while it grows.
  async text(name, fromEnd) {
    clearTimeout(this.timer);
    const first = await this.ask(this.source.text(this.run.id, name, fromEnd ? -65536 : 0));
    if (!first) return;
    let { start, end } = first;
    const box = XB.make("pre", { class: "text", tabIndex: 0 });
    box.append(first.text);
    const about = XB.make("span", { class: "quiet" });
    const tell = (size) => { about.textContent = start === 0 && end === size ? XB.bytes(size) : `bytes ${start.toLocaleString("en-US")} to ${end.toLocaleString("en-US")} of ${size.toLocaleString("en-US")}`; };
    const earlier = XB.make("button", { type: "button", textContent: "Earlier", hidden: !start, onclick: async () => {
      const from = Math.max(0, start - 60000), piece = await this.ask(this.source.text(this.run.id, name, from));
      if (!piece) return;
      const bytes = new TextEncoder().encode(piece.text); // where pieces overlap, the text in front of what is there
      const high = box.scrollHeight;
      box.prepend(new TextDecoder().decode(bytes.subarray(0, start - piece.start)));
      box.scrollTop += box.scrollHeight - high;
      start = piece.start;
      earlier.hidden = !start;
      tell(piece.size);
    } });
    const more = XB.make("button", { type: "button", textContent: "More", hidden: fromEnd || end >= first.size });
    const go = async () => {
      const piece = await this.ask(this.source.text(this.run.id, name, end));
      if (!piece) return false;
      const follows = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
      if (piece.size < end) return this.text(name, fromEnd); // begun anew
      box.append(piece.text);
      end = piece.end;
      if (follows) box.scrollTop = box.scrollHeight;
      more.hidden = fromEnd || end >= piece.size;
      tell(piece.size);
      return true;
    };
    more.onclick = go;
    tell(first.size);
    this.below.replaceChildren(XB.make("div", { class: "tools slim" }, earlier, more, about), box);
    if (!fromEnd) return;
    box.scrollTop = box.scrollHeight;
    const follow = async () => { if (this.source.live && (await go()) === true) this.timer = setTimeout(follow, 1000); };
    this.timer = setTimeout(follow, 1000);
  }

  async archive(name) {
    const answer = await this.ask(this.source.zip(this.run.id, name));
    if (!answer) return;
    const box = XB.make("pre", { class: "text", tabIndex: 0 });
    const list = XB.make("select", { size: 12, class: "entries", aria_label: "File of the snapshot", onchange: async () => {
      const found = await this.ask(this.source.zip(this.run.id, name, list.value));
      if (found) box.textContent = found.text;
    } }, ...answer.entries.map((entry) => XB.make("option", { value: entry.name, textContent: `${entry.name}  (${XB.bytes(entry.size)})` })));
    const sought = XB.make("input", { type: "search", placeholder: "Find a file", oninput: () => {
      for (const option of list.options) option.hidden = !option.value.toLowerCase().includes(sought.value.toLowerCase());
    } });
    this.below.replaceChildren(XB.make("div", { class: "tools slim" }, sought), list, box);
  }

  async predictions(name, options = { start: 0, order: "errors", words: "" }) {
    const page = await this.ask(this.source.predictions(this.run.id, name, { count: ROWS, ...options }));
    if (!page) return;
    const go = (changed) => this.predictions(name, { ...options, start: 0, ...changed });
    const known = page.errors !== null;
    const order = XB.make("button", { type: "button", textContent: options.order === "errors" ? "Errors first" : "Order of the file", hidden: page.true < 0, onclick: () => go({ order: options.order === "errors" ? "file" : "errors" }) });
    const words = XB.make("input", { type: "search", placeholder: "Search texts", value: options.words, onchange: () => go({ words: words.value }) });
    const share = known && page.total ? `${page.errors.toLocaleString("en-US")} of ${page.total.toLocaleString("en-US")} rows are wrong (${((100 * page.errors) / page.total).toFixed(1)} %)` : `${page.total.toLocaleString("en-US")} rows`;
    const back = XB.make("button", { type: "button", textContent: "←", disabled: !options.start, aria_label: "Page before", onclick: () => go({ start: Math.max(0, options.start - ROWS) }) });
    const on = XB.make("button", { type: "button", textContent: "→", disabled: options.start + ROWS >= page.found, aria_label: "Next page", onclick: () => go({ start: options.start + ROWS }) });
    const span = page.found ? `${options.start + 1}–${Math.min(page.found, options.start + ROWS)} of ${page.found.toLocaleString("en-US")}` : "nothing found";
    const head = XB.make("tr", {}, XB.make("th", { textContent: "row" }), ...page.columns.map((text, i) => XB.make("th", { textContent: text, class: i === page.predicted ? "predicted" : "" })));
    const rows = page.rows.map((row) => XB.make("tr", { class: row.wrong ? "wrong" : "" }, XB.make("td", { class: "quiet", textContent: row.row }), ...row.cells.map((text, i) => XB.make("td", { textContent: text, class: i === page.predicted ? "predicted" : i === page.true ? "true" : "" }))));
    this.below.replaceChildren(XB.make("div", { class: "tools" }, order, words, XB.make("span", { class: "quiet", textContent: share }), XB.make("span", { class: "spring" }), back, XB.make("span", { class: "quiet", textContent: span }), on),
      XB.make("div", { class: "scroll" }, XB.make("table", { class: "predictions" }, head, ...rows)));
  }

  page(name) {
    const frame = XB.make("iframe", { class: "page", title: name, referrerPolicy: "no-referrer" });
    frame.setAttribute("sandbox", "");
    frame.src = this.source.html(this.run.id, name);
    this.below.replaceChildren(frame);
  }
};
