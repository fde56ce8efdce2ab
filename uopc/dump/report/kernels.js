// Overview, and the view of a kernel: its loop nest, its Opts one by one, its code and source lines.
const KINDS = {
  loop: "serial", reduce: "reduce", thread: "thread", lane: "vector", upcast: "unrolled", unroll: "unrolled",
  global: "GPU grid", local: "GPU block", group: "GPU group", grouptop: "GPU group", warp: "GPU warp",
};
const MEANING = {
  serial: "runs one after the other", reduce: "combines its iterations", thread: "runs in parallel on threads",
  vector: "the lanes of a vector", unrolled: "spelled out as copies", "GPU grid": "blocks of the grid",
  "GPU block": "threads of a block", "GPU group": "threads that reduce together", "GPU warp": "threads of a warp",
};

function legend(nests) {
  const kinds = new Set(nests.flat().map(([, kind]) => kind).filter(k => KINDS[k]));
  const shown = new Map([...kinds].map(k => [KINDS[k], k]));
  return h("div", {class: "legend"}, [...shown].map(([name, kind]) =>
    h("span", {class: `k-${kind}`, title: MEANING[name]}, h("i"), name)));
}

// The lines of a nest; `rows` are those of a difference with another nest, if one is given.
function nestView(nest, rows = null) {
  const box = h("div", {class: "nest", tabindex: 0, "aria-label": "loop nest"});
  const shown = rows ?? nest.map((line, j) => ({sign: " ", line: j}));
  const stack = {now: [], old: []};
  for (const {sign, text} of shown.map(r => ({...r, text: rows ? r.line : nest[r.line]}))) {
    const [depth, kind, words] = text;
    const around = sign === "-" ? stack.old : stack.now;
    around.length = depth;
    const line = h("div", {class: `line ${sign === "+" ? "add" : sign === "-" ? "del" : ""} ${KINDS[kind] ? `k-${kind}` : ""}`});
    if (rows) line.append(h("span", {class: "sign"}, sign === "-" ? "−" : sign));
    for (const k of around) line.append(h("span", {class: `guide k-${k}`}));
    if (KINDS[kind]) {
      line.append(h("span", {class: "stmt for"}, D.lines[words]), h("span", {class: "pill", title: MEANING[KINDS[kind]]}, KINDS[kind]));
      around[depth] = kind;
    } else if (kind === "note") line.append(h("span", {class: "stmt note"}, `… ${D.lines[words]}`));
    else line.append(h("span", {class: "stmt"}, pieces(D.lines[words])));
    if (sign === " ") { stack.old.length = 0; stack.old.push(...stack.now); }
    box.append(line);
  }
  return box;
}

function overview() {
  const last = D.graphs[D.graphs.length - 1], llvm = D.kernels.reduce((s, k) => s + (k.seconds.llvm ?? 0) + (k.seconds.asm ?? 0), 0);
  const passes = D.graphs.reduce((s, g) => s + g.ms, 0), rewrites = D.graphs.reduce((s, g) => s + g.total, 0);
  const tile = (value, name, link) => h("div", {class: "tile"}, h("b", {}, value), link ? h("a", {href: link}, name) : h("span", {}, name));
  const page = h("div", {class: "page"},
    h("h2", {}, D.source),
    h("p", {class: "dim"}, `${D.facts.device} ${D.facts.cpu}, ${plural(D.facts.threads, "thread")}${D.facts.optimize ? "" : ", not optimised"}`),
    h("div", {class: "tiles"},
      tile(count(D.graphs[0].after), "nodes", `#stages/${D.graphs[0].name}`),
      tile(count(D.kernels.length), D.kernels.length === 1 ? "kernel" : "kernels"),
      tile(count(D.launches.length), D.launches.length === 1 ? "launch" : "launches"),
      tile(milliseconds(passes), "in passes", "#timeline"),
      llvm ? tile(seconds(llvm), "in code and LLVM", "#timeline") : null,
      tile(count(rewrites), "rewrites reported", "#rewrites"),
      D.memory ? tile(bytes(D.memory.bytes), "for intermediates", "#memory") : null,
      D.times ? tile(seconds(D.times.total), "a call", null) : null));
  page.append(h("h3", {}, "Launches in order"), launchTable());
  const small = D.kernels.filter(k => k.whole && k.nest.length <= 40).slice(0, 6);
  if (small.length) page.append(h("h3", {}, small.length < D.kernels.length ? `Kernels: ${small.length} of ${D.kernels.length}` : "Kernels"), legend(small.map(k => k.nest)),
    h("div", {class: "cards"}, small.map(k => h("section", {class: "card"}, h("h4", {}, h("a", {href: kernelLink(D.kernels.indexOf(k))}, k.name)), nestView(k.nest)))));
  if (D.times && Object.keys(D.times.values).length) page.append(h("p", {class: "dim"}, `Timed on random arrays with ${Object.entries(D.times.values).map(([k, v]) => `${k} = ${v}`).join(", ")}.`));
  if (D.times && typeof D.times.events === "string") page.append(h("p", {class: "dim"}, `Hardware counters: not available: ${D.times.events}.`));
  if (!D.times) page.append(h("p", {class: "dim"}, "Not run: ", h("code", {}, "uopc dump FILE --html PAGE --run"), " adds measured times and the share of the roofline."));
  return page;
}

function launchTable() {
  const widths = ["3.5rem", "minmax(9rem, 18rem)", "minmax(14rem, 1fr)", "7rem", "7rem"];
  const columns = [
    {title: "#", width: widths[0], text: ([at]) => String(at), key: ([at]) => at},
    {title: "kernel", width: widths[1], text: ([, k]) => D.kernels[k].name, cell: ([at, k]) => h("span", {}, h("a", {href: kernelLink(k)}, D.kernels[k].name), rounds(at) === 1 ? "" : `  ${rounds(at)}×`)},
    {title: "storage and variables", width: widths[2], text: ([, , a]) => a.map(argumentText).join(", "), cell: ([, k, a]) => h("span", {}, chips(k, a))},
    {title: "operations", width: widths[3], text: ([, k]) => work(k, "operations", amount), key: ([, k]) => D.kernels[k].work?.operations ?? 0},
    {title: "bytes", width: widths[4], text: ([, k]) => work(k, "nbytes", bytes), key: ([, k]) => D.kernels[k].work?.nbytes ?? 0},
  ];
  if (D.times) columns.push(
    {title: "time", width: "6rem", text: ([at]) => seconds(D.times.launches[at]), key: ([at]) => D.times.launches[at]},
    {title: "share of the roofline", width: "16rem", text: ([at]) => percent(roofline(at)), key: ([at]) => roofline(at) ?? 0,
      cell: ([at]) => h("span", {title: `bound by ${D.times.bounds[at]}`}, bar(roofline(at)), `${percent(roofline(at))}  ${D.times.bounds[at]}`)});
  const table = sortedTable(columns, D.launches, "launches");
  table.element.style.height = `${Math.min(D.launches.length * 24 + 44, 560)}px`;
  return table.element;
}
const kernelLink = k => `#kernel/${encodeURIComponent(D.kernels[k].name)}`;
const work = (k, what, shown) => D.kernels[k].work ? (D.kernels[k].work.exact ? "" : "≤ ") + shown(D.kernels[k].work[what]) : "";
const percent = x => x == null ? "" : `${(x * 100).toFixed(x < .1 ? 1 : 0)} %`;
const bar = x => x == null ? "" : h("span", {class: "bar"}, h("i", {style: `width:${Math.min(100, x * 100)}%`}));
const rounds = at => D.times ? D.times.rounds[at] : 1;  // of a loop of launches
const roofline = at => D.times ? D.times.least[at] / D.times.launches[at] : null;
const argumentText = ([name, begin]) => begin ? `${name}+${begin}` : name;
const chips = (k, args) => args.map((a, slot) =>
  h("span", {class: "chip" + (D.kernels[k].written.includes(slot) ? " written" : ""),
    title: `${a[2]}${D.kernels[k].written.includes(slot) ? ", written" : ""}`}, argumentText(a)));

function kernelView(name, tab = "loops", step = "0") {
  const kernel = D.byName.get(name) ?? D.kernels[0];
  if (!kernel) return h("div", {class: "page"}, h("p", {}, "This run has no kernel."));
  const at = D.kernels.indexOf(kernel), here = kernelLink(at);
  const launches = D.launches.filter(l => l[1] === at);
  const side = new List(D.kernels.length, i => {
    const k = D.kernels[i];
    return h("a", {class: "line", href: kernelLink(i), "aria-current": k === kernel ? "true" : null},
      h("span", {title: k.name}, k.name), h("small", {}, k.launches > 1 ? `${k.launches}×` : ""));
  }, {height: 26, label: "kernels", enter: i => { location.hash = kernelLink(i); }});
  requestAnimationFrame(() => side.show(at));
  const tabs = [["loops", "Loop nest"], ["opts", "Opts step by step"], ["why", "Why"], ["uops", "UOps"],
    ...(kernel.llvm ? [["llvm", "LLVM IR"]] : []), ...(kernel.asm ? [["asm", D.facts.device === "cpu" ? "Assembly" : "PTX"]] : []),
    ...(kernel.c ? [["c", "C"]] : [])];
  const body = h("div", {class: "body"},
    h("div", {class: "row"}, h("h2", {}, kernel.name), legend([kernel.nest])),
    h("div", {class: "row dim"}, kernelFacts(kernel, launches).join("   ·   ")),
    h("div", {class: "row"}, launches.slice(0, 3).map(l => h("span", {}, chips(at, l[2]))),
      launches.length > 3 ? h("a", {href: "#overview"}, `and ${launches.length - 3} more launches`) : null),
    h("div", {class: "row", role: "tablist"}, tabs.map(([key, title]) =>
      h("button", {"aria-pressed": String(key === tab), onclick: () => { location.hash = `${here}/${key}`; }}, title))),
    kernelTab(kernel, tab, step));
  return h("div", {class: "split source"}, h("nav", {class: "side", "aria-label": "kernels", style: "padding:.4rem"}, side.element), body, sourcePane(kernel.places));
}

// The mean events of a launch: instructions per cycle, and what missed.
function eventFacts(events) {
  const mean = name => events.reduce((s, e) => s + (e[name] ?? 0), 0) / events.length;
  const facts = Object.keys(events[0] ?? {}).map(name => `${amount(mean(name))} ${name.replace("_", " ")}`);
  if (mean("cycles")) facts.push(`${(mean("instructions") / mean("cycles")).toFixed(2)} instructions per cycle`);
  return facts;
}

function kernelFacts(kernel, launches) {
  const facts = [plural(launches.length, "launch", "launches"), plural(kernel.nodes, "UOp")];
  if (kernel.work) {
    const most = kernel.work.exact ? "" : "at most ";
    facts.push(`${most}${amount(kernel.work.operations)} ${kernel.work.floats ? "FLOP" : "operations"}`, `${most}${bytes(kernel.work.nbytes)}`);
    if (kernel.work.nbytes) facts.push(`${(kernel.work.operations / kernel.work.nbytes).toFixed(2)} per byte`);
  }
  if (D.times && launches.length) {
    const time = launches.reduce((s, l) => s + D.times.launches[l[0]], 0) / launches.reduce((s, l) => s + rounds(l[0]), 0);
    facts.push(`${seconds(time)} a launch`);
    if (kernel.work) facts.push(`${(kernel.work.operations / time / 1e9).toFixed(1)} G${kernel.work.floats ? "FLOP" : "op"}/s`, `${(kernel.work.nbytes / time / 1e9).toFixed(1)} GB/s`);
    const share = roofline(launches[0][0]);
    if (share != null) facts.push(`${percent(share)} of the roofline (${D.times.bounds[launches[0][0]]})`);
    if (typeof D.times.events !== "string") facts.push(...eventFacts(launches.map(l => D.times.events[l[0]])));
  }
  return facts;
}

function kernelTab(kernel, tab, step) {
  if (tab === "why") return h("div", {class: "fill"}, h("p", {class: "dim"}, "The schedules that were compared, by predicted cycles of one thread, and the kernels to which this one is not joined."),
    h("ul", {}, kernel.why.map(line => h("li", {}, line))));
  if (tab === "opts") return optSteps(kernel, Number(step) || 0);
  if (["llvm", "asm", "c"].includes(tab)) return h("div", {class: "fill"}, textList(kernel[tab] ?? "", tab).element);
  if (tab === "uops") {
    const last = D.graphs[D.graphs.length - 1], begin = last.body.findIndex(l => new RegExp(`linear name=${kernel.name.replace(/\W/g, "\\$&")}(?= |$)`).test(D.lines[l]));
    const list = stageList(last.body, "UOps in the order of execution");
    requestAnimationFrame(() => { list.element.scrollTop = Math.max(0, begin) * list.height; });
    return h("div", {class: "fill"}, list.element);
  }
  const box = nestView(kernel.nest);
  box.classList.add("fill");
  if (!kernel.whole) box.prepend(h("p", {class: "dim"}, `Of this kernel's ${count(kernel.nodes)} UOps only the loops are shown: the tab UOps has all.`));
  return box;
}

function optSteps(kernel, step) {
  const {steps} = kernel;
  if (!steps) return h("p", {class: "dim"}, "This run began after the pass that applies Opts.");
  if (!steps.opts.length) return h("p", {class: "dim"}, "No Opt was applied to this kernel.");
  const choices = [["as scheduled", "the kernel before any Opt"], ...steps.opts];
  const here = kernelLink(D.kernels.indexOf(kernel));
  const list = h("ol", {}, choices.map(([name, meaning], n) => h("li", {}, h("button", {
    "aria-pressed": String(n === step), onclick: () => { location.hash = `${here}/opts/${n}`; }},
    h("code", {}, `${n}  ${name}`), h("small", {}, meaning)))));
  let shown;
  if (!steps.nests) shown = h("p", {class: "dim"}, `Left out: ${count(steps.nodes)} nodes and ${plural(steps.opts.length, "Opt")} are too many to replay on this page. `, h("code", {}, `uopc dump FILE --html PAGE --kernel ${kernel.name}`), " replays this kernel alone.");
  else if (!steps.nests[step]) shown = h("p", {class: "dim"}, "The schedule applied this Opt to another form of the kernel, so it cannot be shown alone.");
  else if (!steps.nests[step].length) shown = h("p", {class: "dim"}, "The kernel is too large after this Opt to be drawn as a loop nest.");
  else if (!step) shown = nestView(steps.nests[0]);
  else shown = nestView(steps.nests[step], nestDifference(steps.nests[step - 1], steps.nests[step]));
  return h("div", {class: "steps fill"}, list, shown);
}

function nestDifference(before, after) {
  const known = new Map(), number = line => { const k = line.join("\n"); if (!known.has(k)) known.set(k, known.size); return known.get(k); };
  const a = before.map(number), b = after.map(number), lines = [];
  before.forEach((l, i) => { lines[a[i]] = l; }); after.forEach((l, i) => { lines[b[i]] = l; });
  return interleaved(a, b, () => 0).map(r => ({...r, line: lines[r.line]}));
}

// ---------------------------------------------------------------- source lines
function sourcePane(places) {
  const files = [...new Set(places.map(p => D.sources.places[p - 1][0]))];
  if (!files.length) return h("div", {class: "pane"}, h("h3", {}, "Source"), h("p", {class: "dim", style: "padding:0 1rem"}, "No source line is known for this kernel."));
  const pane = h("div", {class: "pane"});
  for (const file of files) {
    const lines = places.map(p => D.sources.places[p - 1]).filter(([f]) => f === file).map(([, l]) => l);
    pane.append(h("h3", {}, h("a", {href: `#source/${file}`}, D.sources.files[file].name)), h("div", {style: "flex:1;min-height:0"}, sourceList(file, new Set(lines), Math.min(...lines)).element));
  }
  return pane;
}
function sourceRows(file) {
  const rows = [];
  let expected = 1;
  for (const [first, text] of D.sources.files[file].pieces) {
    if (first > expected) rows.push([0, `… ${plural(first - expected, "line")} left out`]);
    let quoted = false;  // inside of a text of several lines
    text.split("\n").forEach((line, n) => {
      const turns = (line.match(/"""/g) ?? []).length % 2 === 1;
      rows.push([first + n, line, quoted || turns]);
      if (turns) quoted = !quoted;
    });
    expected = rows[rows.length - 1][0] + 1;
  }
  if (D.sources.files[file].lines >= expected) rows.push([0, `… ${plural(D.sources.files[file].lines - expected + 1, "line")} left out`]);
  return rows;
}
function sourceList(file, lines, first, more = () => null) {
  const rows = sourceRows(file);
  const list = new List(rows.length, i => {
    const [number, text, quoted] = rows[i];
    return h("div", {class: "line" + (lines.has(number) ? " hit" : "") + (number ? "" : " note")},
      h("span", {class: "no"}, number || ""), quoted ? h("span", {class: "str"}, text) : python(text), number ? more(number) : null);
  }, {label: D.sources.files[file].name, enter: i => { if (rows[i][0]) location.hash = `#source/${file}/${rows[i][0]}`; }});
  requestAnimationFrame(() => list.show(rows.findIndex(r => r[0] === first)));
  return list;
}
const PYTHON = /("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(#.*$)|\b(and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b|(\b\d[\w.]*)/g;
function python(text) {
  const out = [];
  let at = 0;
  for (const m of text.matchAll(PYTHON)) {
    if (m.index > at) out.push(text.slice(at, m.index));
    out.push(h("span", {class: m[1] ? "str" : m[2] ? "note" : m[3] ? "op" : "num"}, m[0]));
    at = m.index + m[0].length;
  }
  out.push(text.slice(at));
  return out;
}
