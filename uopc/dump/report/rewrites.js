// Every rewrite of a stage, in order: the rule, and a drawing of the graph before and after it.
const LABEL_WIDTH = 6.7, ROW_HEIGHT = 52, BOX_HEIGHT = 22;

// The nodes of `graph` to a depth below a root, in rows: users above their operands, no box over another.
function layout(graph, root, depth) {
  const level = new Map();
  const visit = (n, at) => {
    if (at > depth || (level.get(n) ?? -1) >= at) return;
    level.set(n, at);
    for (const s of graph.sources[n] ?? []) visit(s, at + 1);
  };
  visit(root, 0);
  const rows = [];
  for (const [n, at] of level) (rows[at] ??= []).push({n, width: 16 + LABEL_WIDTH * graph.names[n].length, cut: graph.sources[n] === null || (graph.sources[n].length > 0 && !graph.sources[n].every(s => level.has(s)))});
  const widths = rows.map(row => row.reduce((sum, box) => sum + box.width + 14, -14)), width = Math.max(...widths);
  const boxes = new Map();
  rows.forEach((row, at) => {
    let x = (width - widths[at]) / 2;
    for (const box of row) { boxes.set(box.n, {...box, x, y: at * ROW_HEIGHT}); x += box.width + 14; }
  });
  const lines = [...boxes.values()].flatMap(box => (graph.sources[box.n] ?? []).filter(s => boxes.has(s)).map(s => [box, boxes.get(s)]));
  return {boxes: [...boxes.values()], lines, width, height: (rows.length - 1) * ROW_HEIGHT + BOX_HEIGHT};
}

const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
// A drawing as SVG; boxes of nodes that `other` has as well are plain, those of one side alone are marked.
function drawn(graph, root, other, depth = 4) {
  const {boxes, lines, width, height} = layout(graph, root, depth);
  const kept = new Set(layout(graph, other, depth).boxes.map(box => box.n));
  const edge = ([a, b]) => `<path d="M${a.x + a.width / 2} ${a.y + BOX_HEIGHT} C${a.x + a.width / 2} ${a.y + 40} ${b.x + b.width / 2} ${b.y - 18} ${b.x + b.width / 2} ${b.y}"/>`;
  const node = b => `<g class="${kept.has(b.n) ? "kept" : "own"}"><rect x="${b.x}" y="${b.y}" width="${b.width}" height="${BOX_HEIGHT}" rx="5"/>` +
    `<text x="${b.x + 8}" y="${b.y + 15}">${escaped(graph.names[b.n])}</text>${b.cut ? `<text x="${b.x + b.width / 2 - 5}" y="${b.y + BOX_HEIGHT + 9}">…</text>` : ""}</g>`;
  return `<svg class="graph" role="img" viewBox="-2 -2 ${width + 4} ${height + 14}" width="${width + 4}" height="${height + 14}">${lines.map(edge).join("")}${boxes.map(node).join("")}</svg>`;
}

function everyRewrite(stage) {
  D.graph.names ??= D.graph.labels.map(texts);
  const names = D.graph.names, all = stage.all, length = all.length / 3;
  const shown = h("div", {class: "drawings"});
  const draw = i => {
    const [rule, before, after] = all.slice(3 * i, 3 * i + 3);
    const side = (title, root, other) => {
      const box = h("figure", {}, h("figcaption", {class: "dim"}, title));
      box.insertAdjacentHTML("beforeend", drawn(D.graph, root, other));
      return box;
    };
    shown.replaceChildren(h("p", {}, `${count(i + 1)} of ${count(length)}: `, h("code", {}, texts(rule))), side("before", before, after), side("after", after, before));
    list.cursor = i;
    list.later(true);
  };
  const list = new List(length, i => h("div", {class: "line", onclick: () => draw(i)}, h("span", {class: "n"}, count(i + 1)), "  ",
    (LABEL.exec(texts(all[3 * i])) ?? [null, texts(all[3 * i])])[1], h("span", {class: "dim"}, `   ${names[all[3 * i + 1]]}  →  ${names[all[3 * i + 2]]}`)), {label: "rewrites in order", enter: draw});
  list.element.style.height = `${Math.min(length * 18 + 10, 260)}px`;
  draw(0);
  return [h("h3", {}, "Every rewrite, in order"), list.element, shown];
}
if (typeof module !== "undefined") module.exports = {layout, drawn};
