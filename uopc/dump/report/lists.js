// A list of any length: rows have one height, and only those in view are in the document.
class List {
  constructor(length, row, {height = 18, enter = null, label = "", link = null} = {}) {
    this.length = length; this.row = row; this.height = height; this.enter = enter; this.cursor = -1;
    this.rows = h("div");
    this.space = h("div", {}, this.rows);
    this.element = h("div", {class: "list", tabindex: 0, role: "list", "aria-label": label}, this.space);
    this.element.addEventListener("scroll", () => this.later());
    this.element.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.resize(length);
    List.all.add(this);
  }
  resize(length) { this.length = length; this.space.style.height = `${length * this.height + 8}px`; this.later(true); }
  later(force = false) {
    this.force ||= force;
    this.waiting ??= requestAnimationFrame(() => { this.waiting = null; this.draw(this.force); this.force = false; });
  }
  draw(force = true) {
    if (!this.element.isConnected) { List.all.delete(this); return; }
    List.all.add(this);
    const top = this.element.scrollTop, high = this.element.clientHeight;
    const first = Math.max(0, Math.floor(top / this.height) - 8);
    const last = Math.min(this.length, Math.ceil((top + high) / this.height) + 8);
    if (!force && first === this.first && last === this.last) return;
    this.first = first; this.last = last;
    const shown = [];
    for (let i = first; i < last; i++) {
      const element = this.row(i);
      element.style.height = element.style.lineHeight = `${this.height}px`;
      if (i === this.cursor) element.classList.add("cursor");
      shown.push(element);
    }
    this.rows.style.top = `${first * this.height}px`;
    this.rows.replaceChildren(...shown);
  }
  show(i) {  // in the middle, unless it is in view
    if (i < 0) return;
    const top = this.element.scrollTop, high = this.element.clientHeight, at = i * this.height;
    if (at < top || at + this.height > top + high) this.element.scrollTop = at - high / 2;
    this.later(true);
  }
  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.length, End: this.length}[event.key];
    if (step !== undefined) {
      this.cursor = Math.min(this.length - 1, Math.max(0, this.cursor + step));
      this.show(this.cursor);
      event.preventDefault();
    } else if (event.key === "Enter" && this.enter && this.cursor >= 0) this.enter(this.cursor);
  }
  static all = new Set();
  static redraw() { for (const list of List.all) list.draw(true); }
}

// Lines of a text with numbers, such as LLVM IR.
function textList(text, label) {
  const lines = text.split("\n");
  return new List(lines.length, i => h("div", {class: "line"}, h("span", {class: "no"}, String(i + 1)), lines[i]), {label});
}

// The lines of a stage.
function stageList(body, label) {
  const row = i => h("div", {class: "line" + lineMark(body[i])}, ...stageLine(body[i]));
  return new List(body.length, row, {label, enter: i => { if (defined(body[i])) follow(defined(body[i])); }});
}
const lineMark = line => selected && defined(line) === selected ? " hit" : "";

// A table of many rows that filters and sorts. columns: {title, width, text(row), cell?(row), key?(row)}
// The rows of a column that `wraps` have as many lines as their height allows.
function sortedTable(columns, all, label, height = 24) {
  let rows = all, by = -1, down = false;
  const template = columns.map(c => c.width).join(" ");
  const cells = row => columns.map(c => h("span", {title: c.text(row), class: c.wraps ? "wraps" : null}, c.cell ? c.cell(row) : c.text(row)));
  const list = new List(rows.length, i => h("div", {class: "cells line", style: `grid-template-columns:${template}`}, cells(rows[i])), {height, label});
  const key = (row, c) => c.key ? c.key(row) : c.text(row);
  const heads = columns.map((c, n) => h("button", {onclick: () => { down = by === n && !down; by = n; sort(); }}, c.title));
  const head = h("div", {class: "head", style: `grid-template-columns:${template}`}, heads);
  function sort() {
    heads.forEach((b, n) => {
      b.textContent = columns[n].title + (n === by ? (down ? " ↓" : " ↑") : "");
      b.setAttribute("aria-sort", n === by ? (down ? "descending" : "ascending") : "none");
    });
    if (by >= 0) {
      const keys = new Map(rows.map(r => [r, key(r, columns[by])]));
      rows = [...rows].sort((a, b) => { const x = keys.get(a), y = keys.get(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    }
    list.resize(rows.length);
  }
  const filter = keep => { rows = all.filter(keep); sort(); return rows.length; };
  return {element: h("div", {class: "table fill"}, head, list.element), filter};
}
