// Elements, texts, numbers, and the data of the page.
const byId = id => document.getElementById(id);

function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(c => c != null && c !== false));
  return element;
}

const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
const count = n => Math.round(n).toLocaleString("en");
function scaled(n, units, step) {
  let at = 0;
  while (n >= step && at < units.length - 1) { n /= step; at++; }
  const digits = at === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return `${n.toFixed(digits)} ${units[at]}`;
}
const bytes = n => scaled(n, ["B", "KiB", "MiB", "GiB"], 1024);
const amount = n => scaled(n, ["", "k", "M", "G", "T"], 1000).trim();
const seconds = s => s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(s >= 1e-2 ? 1 : 2)} ms` : `${(s * 1e6).toFixed(1)} µs`;
const milliseconds = ms => seconds(ms / 1e3);

let D;  // the data, as data() of page.py made it
const texts = n => D.texts[n];

async function unpack() {
  const packed = Uint8Array.from(atob(byId("data").textContent), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  D = JSON.parse(await new Response(stream).text());
  D.graphs = D.stages.filter(s => !s.code);
  let body = null;
  for (const stage of D.graphs) {
    if (stage.text) {
      body = Int32Array.from(stage.text);
      for (let i = 1; i < body.length; i++) body[i] += body[i - 1];
      stage.fresh = true;
    }
    stage.body = body;  // unchanged stages share the array
  }
  D.defines = new Int32Array(D.lines.length).fill(-1);
  D.byName = new Map(D.kernels.map(k => [k.name, k]));
  D.graphs.forEach((stage, at) => { stage.at = at; });
}

// The value that a line defines; 0 if none.
function defined(line) {
  if (D.defines[line] < 0) {
    const found = /^\s*(?:let )?%(\d+) =/.exec(D.lines[line]);
    D.defines[line] = found ? Number(found[1]) : 0;
  }
  return D.defines[line];
}

// The oldest value that a value is a copy of, and the user's name and line for it.
function root(value) {
  for (let n = 0; D.values.kin[value] && n < 100; n++) value = D.values.kin[value];
  return value;
}
function userName(value) {
  for (let n = 0; value && n < 100; n++, value = D.values.kin[value])
    if (D.values.labels[value]) return D.values.labels[value];
  return "";
}
function userPlace(value) {
  for (let n = 0; value && n < 100; n++, value = D.values.kin[value])
    if (D.values.place[value]) return D.sources.places[D.values.place[value] - 1];
  return null;
}
function sourceText(file, line) {
  for (const [first, text] of D.sources.files[file].pieces) {
    const found = text.split("\n")[line - first];
    if (line >= first && found !== undefined) return found.trim();
  }
  return "";
}
const placeLink = ([file, line]) =>
  h("a", {href: `#source/${file}/${line}`}, `${D.sources.files[file].name}:${line}`);

// ---------------------------------------------------------------- text with values to click
let selected = 0;  // the value that is followed
const TOKEN = /(%\d+)|("(?:[^"\\]|\\.)*")|(\/\/.*$)|( : [\w\[\], ?!%().*+\/-]+$)|(\b\d[\w.]*)/g;
function token(match) {
  const [text, value, string, note, type, number] = match;
  if (value) {
    const n = Number(value.slice(1)), place = userPlace(n), line = place ? `${D.sources.files[place[0]].name}:${place[1]}` : "";
    return h("span", {class: "v" + marked(n), "data-v": n, title: [userName(n), line].filter(Boolean).join("  ") || null}, text);
  }
  return h("span", {class: string ? "str" : note ? "note" : type ? "type" : number ? "num" : ""}, text);
}
const marked = n => !selected ? "" : n === selected ? " hit" : root(n) === root(selected) ? " kin" : "";

// A line of a stage: values, the op in bold, its type; then the user's name for what it defines.
function colored(text, into = []) {
  const begin = /^(\s*(?:let )?(?:%\d+ = )?)([a-z_]\w*(?:\.\w+)?)/.exec(text);
  let at = 0;
  if (begin) {
    if (begin[1]) into.push(...pieces(begin[1]));
    into.push(h("span", {class: "op"}, begin[2]));
    at = begin[0].length;
  }
  into.push(...pieces(text.slice(at)));
  return into;
}
function pieces(text) {
  const out = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > at) out.push(text.slice(at, match.index));
    out.push(token(match));
    at = match.index + match[0].length;
  }
  if (at < text.length) out.push(text.slice(at));
  return out;
}
function stageLine(line) {
  const value = defined(line), out = colored(D.lines[line]);
  const name = value ? userName(value) : "";
  if (name && !D.lines[line].includes(name)) out.push(h("span", {class: "label"}, `   ${name}`));
  return out;
}
