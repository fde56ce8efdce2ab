// The stages side by side, what one of them changed, and the value that is followed through all.
function strip(current, view) {
  return h("nav", {class: "strip", "aria-label": "stages"}, D.graphs.map(s => h("a", {
    class: s.fresh ? "" : "same", href: `#${view}/${s.name}`, "aria-current": s === current ? "true" : null,
    title: s.fresh ? `${count(s.after)} nodes, ${milliseconds(s.ms)}` : "unchanged"}, `${s.number} ${s.name}`)));
}
const stageNamed = name => D.graphs.find(s => s.name === name) ?? D.graphs[0];
function modes(stage, mode) {
  return h("div", {class: "row"}, h("h2", {}, "Stages"),
    [["stages", "Side by side"], ["diff", "Changes"]].map(([view, title]) =>
      h("button", {"aria-pressed": String(view === mode), onclick: () => { location.hash = `#${view}/${stage.name}`; }}, title)));
}

let columns = [];  // those in view: {stage, list}
function stagesView(name) {
  const now = stageNamed(name), fresh = D.graphs.filter(s => s.fresh);
  columns = fresh.map(stage => ({stage, list: stageList(stage.body, stage.name)}));
  const box = h("div", {class: "cols fill"}, columns.map(({stage, list}, n) => {
    const until = fresh[n + 1]?.at ?? D.graphs.length, same = D.graphs.slice(stage.at + 1, until);
    const mine = now === stage || same.includes(now);
    return h("section", {class: "col" + (mine ? " now" : ""), "data-stage": stage.name},
      h("h4", {title: same.length ? `unchanged by ${same.map(s => s.name).join(", ")}` : ""}, `${stage.number} ${stage.name} `,
        h("small", {}, `${count(stage.after)} nodes${same.length ? ` · unchanged by ${same.map(s => s.name).join(", ")}` : ""}`)), list.element);
  }));
  requestAnimationFrame(() => {
    box.querySelector(".now")?.scrollIntoView({inline: "center", block: "nearest"});
    showInColumns();
  });
  return h("div", {class: "body", style: "height:100%"}, modes(now, "stages"), strip(now, "stages"), box);
}

function showInColumns() {
  if (!selected) return;
  for (const {stage, list} of columns) {
    let at = stage.body.findIndex(line => defined(line) === selected);
    if (at < 0) at = stage.body.findIndex(line => defined(line) && root(defined(line)) === root(selected));
    list.show(at);
  }
}

const AROUND = 3;  // equal lines that are shown next to a change
function diffView(name) {
  const stage = stageNamed(name), before = D.graphs[stage.at - 1];
  const page = h("div", {class: "body", style: "height:100%"}, modes(stage, "diff"), strip(stage, "diff"));
  if (!before || !stage.fresh) {
    page.append(h("p", {class: "dim"}, before ? "This stage changed nothing." : "The first stage: nothing came before it."));
    return page;
  }
  const rows = folded(interleaved(before.body, stage.body, defined));
  const changed = sign => rows.filter(r => r.sign === sign).length;
  page.append(h("p", {class: "dim"}, `${before.name} → ${stage.name}:  ${plural(changed("+"), "line")} new, ${plural(changed("-"), "line")} gone; ${milliseconds(stage.ms)}.  `,
    h("a", {href: `#rewrites/${stage.name}`}, "What the pass did")));
  const list = new List(rows.length, i => diffRow(rows, i, () => list), {label: "changes", enter: i => { if (rows[i].hidden) unfold(rows, i, list); }});
  page.append(h("div", {class: "fill"}, list.element));
  return page;
}
function folded(rows) {
  const near = new Uint8Array(rows.length);
  rows.forEach((r, i) => { if (r.sign !== " ") near.fill(1, Math.max(0, i - AROUND), i + AROUND + 1); });
  const out = [];
  for (let i = 0; i < rows.length;) {
    if (near[i]) { out.push(rows[i++]); continue; }
    const hidden = [];
    while (i < rows.length && !near[i]) hidden.push(rows[i++]);
    if (hidden.length > 1) out.push({hidden, sign: " "}); else out.push(...hidden);
  }
  return out;
}
function unfold(rows, i, list) { const {hidden} = rows[i]; rows.splice(i, 1, ...hidden); list.resize(rows.length); }
function diffRow(rows, i, list) {
  const row = rows[i];
  if (row.hidden) return h("div", {class: "line fold", onclick: () => unfold(rows, rows.indexOf(row), list())}, `⋯  ${plural(row.hidden.length, "equal line")}`);
  const kind = {"+": " add", "-": " del", " ": ""}[row.sign];
  const words = row.other === undefined ? stageLine(row.line)
    : changedWords(D.lines[row.line], D.lines[row.other]).map(([word, fresh], n, words) => {
      const shown = /^%\d+$/.test(word) ? token([word, word])
        : n > 1 && words[n - 2][0] === "=" && words[n - 3]?.[0] === " " ? h("span", {class: "op"}, word) : word;
      return fresh && word.trim() ? h("b", {}, shown) : shown;
    });
  return h("div", {class: "line" + kind}, h("span", {class: "sign"}, row.sign === "-" ? "−" : row.sign), words);
}

// ---------------------------------------------------------------- following a value
function follow(value) {
  selected = value === selected ? 0 : value;
  const base = location.hash.replace(/~\d+$/, "") || "#overview";
  history.replaceState(null, "", selected ? `${base}~${selected}` : base);
  showSelected();
}
function showSelected() {
  for (const v of document.querySelectorAll(".v")) v.className = "v" + marked(Number(v.dataset.v));
  List.redraw();
  showInColumns();
  showValue();
}
function showValue() {
  const panel = byId("value");
  panel.hidden = !selected;
  if (!selected) return;
  const old = root(selected), place = userPlace(selected), name = userName(selected);
  const rows = [];
  for (const stage of D.graphs.filter(s => s.fresh)) {
    let own = -1, kin = 0;
    for (const line of stage.body) {
      const value = defined(line);
      if (value === selected && own < 0) own = line;
      else if (value && value !== selected && root(value) === old) kin++;
    }
    rows.push(h("tr", {}, h("td", {}, h("a", {href: `#stages/${stage.name}~${selected}`}, stage.name)),
      h("td", {class: "mono"}, own < 0 ? h("span", {class: "dim"}, "—") : colored(D.lines[own].trim())),
      h("td", {class: "dim"}, kin ? `and ${count(kin)} related` : "")));
  }
  panel.replaceChildren(
    h("button", {class: "close", onclick: () => follow(selected), title: "close ( Esc )"}, "×"),
    h("div", {class: "row"}, h("h2", {class: "mono"}, `%${selected}`), name ? h("span", {class: "label"}, name) : null,
      old !== selected ? h("span", {class: "dim"}, "a copy of ", token([`%${old}`, `%${old}`])) : null,
      place ? placeLink(place) : null, place ? h("code", {}, python(sourceText(...place))) : null),
    h("table", {}, rows));
}
