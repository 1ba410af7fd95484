"use strict";
// Where the page takes its data from: a server, or what was written into the file.

XB.unpack = (buffer) => {
  const length = new DataView(buffer).getUint32(0, true);
  const heads = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let place = 4 + length;
  return heads.map((head) => {
    const columns = {};
    for (const name of head.columns) {
      columns[name] = new Float64Array(buffer, place, head.length);
      place += 8 * head.length;
    }
    return { mark: head.mark, at: head.at, anew: head.anew, columns };
  });
};

XB.HttpSource = class {
  live = true;

  async get(path, parameters = {}) {
    const answer = await fetch(`api/${path}?${new URLSearchParams(parameters)}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  runs(since) {
    return this.get("runs", { since });
  }

  // Rows that were added to logs; waits up to `wait` seconds for some.
  async rows(files, wait, signal) {
    const body = JSON.stringify({ files, wait });
    const answer = await fetch("api/rows", { method: "POST", body, signal });
    if (!answer.ok) throw new Error(await answer.text());
    return XB.unpack(await answer.arrayBuffer());
  }

  epochs(run) {
    return this.get("epochs", { run });
  }

  parts(run) {
    return this.get("parts", { run });
  }

  text(run, name, offset) {
    return this.get("text", { run, name, offset });
  }

  zip(run, name, entry) {
    return this.get("zip", entry === undefined ? { run, name } : { run, name, entry });
  }

  predictions(run, name, options) {
    return this.get("predictions", { run, name, ...options });
  }

  html(run, name) {
    return `api/html?${new URLSearchParams({ run, name })}`;
  }
};

XB.EmbeddedSource = class {
  live = false;

  constructor(data) {
    this.data = data;
  }

  async runs(since) {
    return since ? { ...this.data.runs, rows: [] } : this.data.runs;
  }

  async rows(files, wait, signal) {
    const found = [];
    files.forEach((file, mark) => {
      const columns = this.data.logs[file.run]?.[file.log];
      if (file.at || !columns) return;
      const wanted = ["epoch", "step", ...file.columns].filter((name) => name in columns);
      found.push({ mark, at: "whole", anew: true, columns: Object.fromEntries(wanted.map((name) => [name, this.decoded(columns[name])])) });
    });
    if (found.length || !wait) return found;
    return new Promise((resolve, reject) => signal.addEventListener("abort", () => reject(new DOMException("", "AbortError"))));
  }

  decoded([kind, text]) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return Float64Array.from(kind === 4 ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer));
  }

  async epochs(run) {
    return { borders: this.data.borders[run] ?? [] };
  }

  async parts(run) {
    return this.data.parts[run];
  }

  async text(run, name) {
    return this.data.texts[run][name];
  }

  async predictions(run, name, { start, count, order, words }) {
    const page = this.data.predictions[run][name];
    const sought = (words ?? "").toLowerCase();
    let rows = page.rows.filter((row) => !sought || row.cells.some((cell) => cell.toLowerCase().includes(sought)));
    if (order !== "errors") rows = [...rows].sort((a, b) => a.row - b.row);
    return { ...page, start, found: rows.length, rows: rows.slice(start, start + count) };
  }
};
