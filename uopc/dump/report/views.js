// Placement, rewrites, timeline, memory, source, and the results of a search.
const MOST_READERS = 16;  // of a value that its row shows, after their number
function placementView(filter = "") {
  const yes = row => row[5] ? "stored" : texts(row[6]) === "is storage" ? "storage" : "fused";
  const columns = [
    {title: "value", width: "5rem", text: r => `%${r[0]}`, key: r => r[0], cell: r => token([`%${r[0]}`, `%${r[0]}`])},
    {title: "op", width: "8rem", text: r => texts(r[1])},
    {title: "shape", width: "10rem", text: r => texts(r[3])},
    {title: "", width: "4rem", text: yes, cell: r => h("span", {class: r[5] ? "yes" : "dim"}, yes(r))},
    {title: "reason", width: "minmax(24rem, 4fr)", text: r => texts(r[6]), wraps: true},
    {title: "readers", width: "minmax(6rem, 1fr)", text: r => r[2].slice(0, MOST_READERS).join(" "), key: r => r[2].length,
      cell: r => h("span", {}, r[2].length > MOST_READERS ? `${count(r[2].length)}: ` : "", r[2].slice(0, MOST_READERS).map(name => [name[0] === "%" ? token([name, name]) : name, " "]))},
    {title: "read at", width: "minmax(8rem, 1fr)", text: r => r[4].map(texts).join(" "), key: r => r[4].length},
    {title: "line", width: "9rem", text: r => { const p = userPlace(r[0]); return p ? `${D.sources.files[p[0]].name}:${p[1]}` : ""; }, cell: r => { const p = userPlace(r[0]); return p ? placeLink(p) : ""; }},
  ];
  const page = h("div", {class: "body", style: "height:100%"}, h("div", {class: "row"}, h("h2", {}, "Placement"),
    h("span", {class: "dim"}, "why each value is stored, or computed where it is read")));
  if (!D.placement.length) { page.append(h("p", {class: "dim"}, "This run began after place-stages, or had nothing to place.")); return page; }
  const table = sortedTable(columns, D.placement, "decisions", 36);
  const reasons = new Map();
  for (const r of D.placement) { const k = `${yes(r)}: ${texts(r[6])}`; reasons.set(k, (reasons.get(k) ?? 0) + 1); }
  const input = h("input", {type: "search", placeholder: "Filter by words", "aria-label": "filter", value: filter, id: "placement-filter"});
  const select = h("select", {"aria-label": "reason", id: "placement-reason"}, h("option", {value: ""}, "every reason"),
    [...reasons].sort((a, b) => b[1] - a[1]).map(([k, n]) => h("option", {value: k}, `${k} (${count(n)})`)));
  const shown = h("span", {class: "dim", id: "placement-shown"});
  const update = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = table.filter(r => (!select.value || select.value === `${yes(r)}: ${texts(r[6])}`)
      && words.every(w => columns.some(c => c.text(r).toLowerCase().includes(w))));
    shown.textContent = `${count(kept)} of ${count(D.placement.length)} values`;
    const base = input.value ? `#placement/${encodeURIComponent(input.value)}` : "#placement";
    history.replaceState(null, "", selected ? `${base}~${selected}` : base);
  };
  input.addEventListener("input", update); select.addEventListener("change", update);
  page.append(h("div", {class: "row"}, input, select, shown), table.element);
  update();
  return page;
}

// ---------------------------------------------------------------- rewrites
const LABEL = /^(.*?) \((.*:\d+)\)$/;
function rewritesView(name) {
  const stage = D.graphs.find(s => s.name === name) ?? D.graphs.find(s => s.total) ?? D.graphs[0];
  const side = h("nav", {class: "side", "aria-label": "stages"}, D.graphs.map(s => h("a", {
    href: `#rewrites/${s.name}`, class: s.fresh || s.total ? "" : "same", "aria-current": s === stage ? "true" : null},
    h("span", {}, s.name), h("small", {}, s.total ? count(s.total) : s.gone + s.made ? "±" : ""))));
  const page = h("div", {class: "page"}, h("div", {class: "row"}, h("h2", {}, stage.name),
    h("span", {class: "dim"}, `${plural(stage.total, "rewrite")} by ${plural(stage.rules.length, "rule")}; ${plural(stage.gone, "node")} gone, ${plural(stage.made, "node")} new`),
    stage.fresh && stage.at ? h("a", {href: `#diff/${stage.name}`}, "Changes") : null));
  if (!stage.total) page.append(h("p", {class: "dim"}, stage.gone + stage.made
    ? "This pass builds its result in one walk without rules. Its nodes by op, and the differences, show its work." : "This pass changed nothing."));
  const most = stage.rules[0]?.[1] ?? 1;
  if (stage.total) page.append(h("h3", {}, "By rule"));
  for (const [label, n, examples] of stage.rules) {
    const [, rule, where] = LABEL.exec(texts(label)) ?? [null, texts(label), ""];
    const box = h("details", {}, h("summary", {}, h("span", {class: "n"}, count(n)), h("span", {class: "bar"}, h("i", {style: `width:${100 * n / most}%`})),
      h("code", {}, rule), h("small", {class: "dim"}, where)));
    box.addEventListener("toggle", () => {
      if (box.children.length > 1) return;
      if (examples.length < n) box.append(h("p", {class: "dim", style: "padding-left:6.2rem"}, `The first ${examples.length} of ${count(n)}.`));
      box.append(h("div", {class: "examples"}, examples.flatMap(([a, b]) => [h("span", {}, pieces(texts(a))), h("span", {class: "arrow"}, "→"), h("span", {}, pieces(texts(b)))])));
    });
    page.append(box);
  }
  if (stage.all.length) page.append(...everyRewrite(stage));
  if (stage.ops.length) page.append(h("h3", {}, "Nodes by op"), h("table", {}, h("tr", {}, h("th", {}, "op"), h("th", {class: "n"}, "before"), h("th", {class: "n"}, "after"), h("th", {class: "n"}, "change")),
    [...stage.ops].sort((a, b) => Math.abs(b[2] - b[1]) - Math.abs(a[2] - a[1])).map(([op, a, b]) =>
      h("tr", {}, h("td", {}, h("code", {}, op)), h("td", {class: "n"}, count(a)), h("td", {class: "n"}, count(b)), h("td", {class: "n"}, (b > a ? "+" : "−") + count(Math.abs(b - a)))))));
  return h("div", {class: "split"}, side, page);
}

// ---------------------------------------------------------------- timeline
function timelineView() {
  const bars = [];
  let end = 0;
  for (const s of D.graphs.slice(1)) { bars.push({name: s.name, begin: s.begin, ms: s.ms, link: `#diff/${s.name}`, note: s.fresh ? `${count(s.before)} → ${count(s.after)} nodes` : "unchanged"}); end = Math.max(end, s.begin + s.ms); }
  const passes = bars.reduce((t, b) => t + b.ms, 0);
  for (const [key, title] of [["llvm", "LLVM IR"], ["asm", "machine code by LLVM"]]) {
    const stage = D.stages.find(s => s.name === key);
    if (!stage) continue;
    const parts = D.kernels.map(k => ({name: k.name, ms: (k.seconds[key] ?? 0) * 1e3}));
    bars.push({name: title, begin: end, ms: stage.ms, code: true, parts, note: `${count(stage.after)} lines`});
    end += stage.ms;
  }
  const total = Math.max(end, 1e-9), sum = bars.reduce((t, b) => t + b.ms, 0) || 1;
  const place = (begin, ms) => `left:${100 * begin / total}%;width:${100 * ms / total}%`;
  const track = b => h("div", {class: "track"}, b.parts
    ? b.parts.reduce(([at, out], p) => [at + p.ms, [...out, h("i", {class: "code", style: place(at, p.ms), title: `${p.name}: ${milliseconds(p.ms)}`})]], [b.begin, []])[1]
    : h("i", {style: place(b.begin, b.ms), title: `${b.name}: ${milliseconds(b.ms)}`}));
  return h("div", {class: "page"}, h("div", {class: "row"}, h("h2", {}, "Timeline"),
    h("span", {class: "dim"}, `${milliseconds(passes)} in passes, ${milliseconds(sum - passes)} in code and LLVM. The passes were watched for this page, so they took a little longer than usual.`)),
    h("h3", {}, "Passes, then code, kernel by kernel"),
    h("div", {class: "time"}, bars.flatMap(b => [
      h("span", {title: b.note}, b.link ? h("a", {href: b.link}, b.name) : b.name),
      h("span", {class: "right", style: "font-variant-numeric:tabular-nums"}, `${milliseconds(b.ms)}`, h("small", {class: "dim"}, `  ${(100 * b.ms / sum).toFixed(0)} %`)), track(b)])),
    h("div", {class: "axis", style: "margin-left:22rem"}, h("span", {}, "0"), h("span", {}, milliseconds(total / 2)), h("span", {}, milliseconds(total))));
}

// ---------------------------------------------------------------- memory
const BLOCK_COLORS = ["#3f6fd8", "#1c8549", "#b86a00", "#6b4bd0", "#0a7f86", "#b93874", "#5b6b82"];
function memoryView(name) {
  const page = h("div", {class: "page"}, h("div", {class: "row"}, h("h2", {}, "Memory")));
  const {memory} = D;
  if (!memory) { page.append(h("p", {class: "dim"}, "This run began at a stage file, which has no memory plan.")); return page; }
  if (!memory.blocks.length) { page.append(h("p", {class: "dim"}, "No intermediate is kept in memory: the kernels read arguments and write results.")); return page; }
  const launches = D.launches.length ? Math.max(...D.launches.map(l => l[0])) + 1 : 1, sum = memory.blocks.reduce((t, b) => t + b[1], 0);
  const info = h("p", {class: "mono", id: "memory-info"}, "\u00a0");
  const tell = ([label, size, offset, first, last]) => {
    info.textContent = `${label}: ${bytes(size)} at ${count(offset)}, written in launch ${first}, last used in launch ${last}`; };
  const drawn = memory.blocks.slice(0, 4000);
  const blocks = drawn.map((b, n) => h("button", {
    title: `${b[0]}: ${bytes(b[1])}`, "data-block": b[0], class: b[0] === name ? "hit" : "", "aria-label": `${b[0]}, ${bytes(b[1])}, launches ${b[3]} to ${b[4]}`,
    style: `left:${100 * b[3] / launches}%;width:${100 * (b[4] - b[3] + 1) / launches}%;bottom:${100 * b[2] / memory.bytes}%;height:${100 * b[1] / memory.bytes}%;background:${BLOCK_COLORS[n % BLOCK_COLORS.length]}`,
    onmouseenter: () => tell(b), onfocus: () => tell(b), onclick: () => { location.hash = `#memory/${encodeURIComponent(b[0])}`; }}, b[0]));
  page.append(
    h("p", {class: "dim"}, `${plural(memory.blocks.length, "intermediate")} of ${bytes(sum)} together share ${bytes(memory.bytes)}: those that are alive at different times lie in the same place.`),
    h("h3", {}, "The arena over the launches"),
    h("div", {class: "axis"}, h("span", {}, bytes(memory.bytes)), h("span", {}, drawn.length < memory.blocks.length ? `the first ${count(drawn.length)} intermediates; all are in the table` : "")),
    h("div", {class: "arena", role: "group", "aria-label": "arena"}, blocks),
    h("div", {class: "axis"}, h("span", {}, "launch 0"), h("span", {}, `launch ${launches - 1}`)), info);
  const table = sortedTable([
    {title: "storage", width: "minmax(8rem, 14rem)", text: b => b[0]},
    {title: "bytes", width: "8rem", text: b => bytes(b[1]), key: b => b[1]}, {title: "offset", width: "9rem", text: b => count(b[2]), key: b => b[2]},
    {title: "first launch", width: "7rem", text: b => String(b[3]), key: b => b[3]}, {title: "last launch", width: "7rem", text: b => String(b[4]), key: b => b[4]},
  ], memory.blocks, "intermediates");
  table.element.style.height = `${Math.min(memory.blocks.length * 24 + 44, 420)}px`;
  page.append(h("h3", {}, "Intermediates"), table.element);
  const hit = memory.blocks.find(b => b[0] === name);
  if (hit) tell(hit);
  return page;
}

// ---------------------------------------------------------------- source
function sourceView(file = "0", line = "0") {
  const at = Number(file), number = Number(line), shown = D.sources.files[at];
  if (!shown) return h("div", {class: "page"}, h("h2", {}, "Source"), h("p", {class: "dim"}, "No source line is known: the graph came from text, or the option origins is off."));
  const kernels = new Map();  // line → numbers of kernels
  D.kernels.forEach((k, n) => k.places.forEach(p => {
    const [f, l] = D.sources.places[p - 1];
    if (f === at) kernels.set(l, [...(kernels.get(l) ?? []), n]);
  }));
  const more = l => (kernels.get(l) ?? []).slice(0, 6).map(n => [h("span", {}, "   "), h("a", {class: "chip", href: kernelLink(n)}, D.kernels[n].name)])
    .concat((kernels.get(l)?.length ?? 0) > 6 ? [h("span", {class: "dim"}, `  and ${kernels.get(l).length - 6} more kernels`)] : []).flat();
  const list = sourceList(at, new Set(number ? [number] : []), number, more);
  const side = h("nav", {class: "side", "aria-label": "files"}, D.sources.files.map((f, n) =>
    h("a", {href: `#source/${n}`, "aria-current": n === at ? "true" : null, title: f.path}, h("span", {}, f.name), h("small", {}, count(f.lines)))));
  const body = h("div", {class: "body"}, h("div", {class: "row"}, h("h2", {}, shown.name), h("span", {class: "dim"}, shown.path)));
  if (!shown.lines) body.append(h("p", {class: "dim"}, "The text of this file could not be read."));
  if (number) {
    const values = D.graphs[0].body.map(l => defined(l)).filter(v => { const p = v && userPlace(v); return p && p[0] === at && p[1] === number; });
    body.append(h("div", {class: "row"}, h("span", {class: "dim"}, `Line ${number} makes`), [...values].slice(0, 40).map(v => h("code", {}, token([`%${v}`, `%${v}`]))), values.length > 40 ? h("span", {class: "dim"}, `and ${count(values.length - 40)} more`) : null));
  }
  body.append(h("div", {class: "fill"}, list.element));
  return h("div", {class: "split"}, side, body);
}

// ---------------------------------------------------------------- search
const MOST_FOUND = 200;  // of each kind
function searchView(wanted = "") {
  const needle = wanted.trim().toLowerCase(), page = h("div", {class: "page"}, h("div", {class: "row"}, h("h2", {}, `Search: ${wanted}`)));
  if (!needle) { page.append(h("p", {class: "dim"}, "Type a name, an op, a value such as %12, a rule, or a line of the source.")); return page; }
  const has = text => text.toLowerCase().includes(needle);
  const groups = [];
  const group = (title, found, row) => { if (found.length) groups.push([title, found, row]); };
  group("Kernels", D.kernels.filter(k => has(`${k.name} ${k.opts.join(" ")}`)), k => h("div", {}, h("a", {href: kernelLink(D.kernels.indexOf(k))}, k.name), " ", h("span", {class: "dim mono"}, k.opts.join(" "))));
  group("Stages", D.graphs.filter(s => has(s.name)), s => h("div", {}, h("a", {href: `#stages/${s.name}`}, s.name)));
  group("Source", D.sources.files.flatMap((f, n) => sourceRows(n).filter(r => r[0] && has(r[1])).map(r => [n, ...r])), ([f, l, text]) => h("div", {class: "mono"}, placeLink([f, l]), "  ", python(text.trim())));
  group("Decisions", D.placement.filter(r => has(`%${r[0]} ${texts(r[1])} ${texts(r[6])}`)), r => h("div", {class: "mono"}, token([`%${r[0]}`, `%${r[0]}`]), ` ${texts(r[1])}: ${texts(r[6])}`));
  group("Rules", D.graphs.flatMap(s => s.rules.filter(([label]) => has(texts(label))).map(r => [s, r])), ([s, [label, n]]) => h("div", {}, h("a", {href: `#rewrites/${s.name}`}, s.name), " ", h("code", {}, texts(label)), h("span", {class: "dim"}, ` ${plural(n, "rewrite")}`)));
  const lines = new Set();
  D.lines.forEach((text, n) => { if (has(text)) lines.add(n); });
  for (const s of D.graphs.filter(g => g.fresh)) {
    group(`Stage ${s.name}`, [...s.body].filter(l => lines.has(l)), l => {
      const value = defined(l);
      return h("div", {class: "mono"}, value ? h("a", {href: `#stages/${s.name}~${value}`}, "→ ") : "  ", colored(D.lines[l].trim()));
    });
  }
  for (const [key, title] of [["llvm", "LLVM IR"], ["asm", "Assembly"], ["c", "C"]])
    group(title, D.kernels.filter(k => k[key] && has(k[key])), k => h("div", {}, h("a", {href: `${kernelLink(D.kernels.indexOf(k))}/${key}`}, k.name)));
  if (!groups.length) page.append(h("p", {class: "dim"}, "Nothing found."));
  for (const [title, found, row] of groups) {
    page.append(h("h3", {}, `${title}: ${count(found.length)}`), ...found.slice(0, MOST_FOUND).map(row));
    if (found.length > MOST_FOUND) page.append(h("p", {class: "dim"}, `and ${count(found.length - MOST_FOUND)} more: search for more letters`));
  }
  return h("div", {style: "height:100%"}, page);
}
