"use strict";
// The table of runs. Only rows in sight are elements of the page, so ten thousand runs scroll as ten do.

const ROW = 30;

XB.Table = class {
  // handlers: {colourOf, onChoose(ids, chosen), onOpen(run), onSort(key, descending)}
  constructor(host, handlers) {
    this.host = host;
    this.handlers = handlers;
    this.rows = [];
    this.columns = [];
    this.head = XB.make("div", { class: "head", role: "row" });
    this.body = XB.make("div", { class: "rows" });
    host.append(this.head, this.body);
    host.addEventListener("scroll", () => this.paint(), { passive: true });
    host.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(host);
    // A row that is replaced between press and release would never hear of the click.
    host.addEventListener("pointerdown", () => { this.held = true; });
    for (const ending of ["pointerup", "pointercancel"]) window.addEventListener(ending, () => { this.held = false; setTimeout(() => this.paint()); });
    this.at = 0;
    this.from = 0;
  }

  show(rows, columns, sort) {
    const key = `${columns.map((column) => column.key)} ${sort.key} ${sort.descending}`;
    this.rows = rows;
    this.columns = columns;
    if (key !== this.headed) {
      this.headed = key;
      const least = columns.reduce((sum, column) => sum + 10 + Number(/\d+/.exec(column.width)[0]), 34 + 12);
      this.host.style.setProperty("--least", `${least}px`);
      this.host.style.setProperty("--columns", ["34px", ...columns.map((column) => column.width)].join(" "));
      this.head.replaceChildren(XB.make("span", { role: "columnheader" }), ...columns.map((column) => this.heading(column, sort)));
    }
    this.body.style.height = `${rows.length * ROW}px`;
    this.at = Math.min(this.at, Math.max(0, rows.length - 1));
    this.paint();
  }

  heading(column, sort) {
    const bigFirst = () => (typeof column.bigFirst === "function" ? column.bigFirst() : Boolean(column.bigFirst));
    const mark = sort.key === column.key ? (sort.descending ? " ↓" : " ↑") : "";
    const button = XB.make("button", { type: "button", class: "plain", textContent: column.title + mark, title: column.about ?? column.title,
      onclick: () => this.handlers.onSort(column.key, sort.key === column.key ? !sort.descending : bigFirst()) });
    const order = mark ? (sort.descending ? "descending" : "ascending") : "none";
    return XB.make("span", { class: column.right ? "right" : "", role: "columnheader", aria_sort: order }, button);
  }

  paint() {
    if (this.held) return;
    const first = Math.max(0, Math.floor(this.host.scrollTop / ROW) - 4);
    const last = Math.min(this.rows.length, first + Math.ceil(this.host.clientHeight / ROW) + 8);
    const shown = [];
    for (let i = first; i < last; i++) shown.push(this.row(this.rows[i], i));
    this.body.replaceChildren(...shown);
  }

  row(run, place) {
    const colour = this.handlers.colourOf(run.id);
    const box = XB.make("input", { type: "checkbox", checked: Boolean(colour), tabIndex: -1, aria_label: `Draw ${run.name}` });
    if (colour) box.style.accentColor = colour;
    const cells = this.columns.map((column) => {
      const text = column.text(run);
      const cell = XB.make("span", { class: column.right ? "right" : "", role: "gridcell", title: column.title_of ? column.title_of(run) : text });
      if (column.key === "name") cell.append(XB.make("button", { type: "button", class: "plain open", textContent: text, tabIndex: -1, onclick: () => this.handlers.onOpen(run) }));
      else if (column.mark) cell.append(XB.make("i", { class: `mark ${column.mark(run)}` }), text);
      else cell.textContent = text;
      return cell;
    });
    const element = XB.make("div", { class: place === this.at ? "row at" : "row", role: "row", data: { run: run.id } }, XB.make("span", { class: "box", role: "gridcell" }, box), ...cells);
    element.style.top = `${place * ROW}px`;
    element.setAttribute("aria-selected", String(Boolean(colour)));
    element.addEventListener("click", (event) => {
      if (event.target.closest("button")) return;
      this.choose(place, event.shiftKey);
    });
    return element;
  }

  choose(place, range) {
    const [from, to] = range ? [Math.min(this.from, place), Math.max(this.from, place)] : [place, place];
    const ids = this.rows.slice(from, to + 1).map((run) => run.id);
    const chosen = range || !this.handlers.colourOf(this.rows[place].id);
    this.at = this.from = place;
    this.handlers.onChoose(ids, chosen);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.host.clientHeight / ROW) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined) this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + step));
    else if (event.key === " " && this.rows.length) this.choose(this.at, event.shiftKey);
    else if (event.key === "Enter" && event.target === this.host && this.rows.length) this.handlers.onOpen(this.rows[this.at]);
    else return;
    event.preventDefault();
    const top = this.at * ROW, seen = this.host.scrollTop, room = this.host.clientHeight - 2 * ROW;
    if (top < seen) this.host.scrollTop = top;
    else if (top > seen + room) this.host.scrollTop = top - room;
    this.paint();
  }
};
