// Views by address, keys, the theme, and the start.
const VIEWS = {
  overview: ["Overview", overview], kernel: ["Kernels", kernelView], stages: ["Stages", stagesView], diff: [null, diffView],
  placement: ["Placement", placementView], rewrites: ["Rewrites", rewritesView], timeline: ["Timeline", timelineView],
  memory: ["Memory", memoryView], source: ["Source", sourceView], search: [null, searchView],
};
const shownAs = {diff: "stages", search: null};

// The address is #view/part/part~value. It is all that a link needs.
function address() {
  const [, path, value] = /^#?(.*?)(?:~(\d+))?$/.exec(location.hash);
  const [view, ...parts] = path.split("/").map(p => { try { return decodeURIComponent(p); } catch { return p; } });
  const named = VIEWS[view] ? view : Object.keys(VIEWS).find(name => VIEWS[name][0]?.toLowerCase() === view.toLowerCase());
  return {view: named ?? "overview", unknown: view && !named ? view : "", parts: parts.filter((p, i) => p !== "" || i < parts.length - 1), value: Number(value) || 0};
}

let shownPath = null;
function route() {
  const {view, unknown, parts, value} = address(), path = [view, unknown, ...parts].join("/");
  selected = value && value < D.values.kin.length ? value : 0;
  if (path !== shownPath) {
    shownPath = path;
    columns = [];
    const current = view in shownAs ? shownAs[view] : view;
    byId("views").replaceChildren(...Object.entries(VIEWS).filter(([, [title]]) => title).map(([name, [title]]) =>
      h("a", {href: `#${name}`, "aria-current": name === current ? "page" : null}, title)));
    byId("main").replaceChildren(...(unknown ? [h("p", {class: "dim"}, `There is no view #${unknown} on this page.`)] : []), VIEWS[view][1](...parts));
    document.title = `uopc: ${D.source} · ${[VIEWS[view][0] ?? view, ...parts].join(" ")}`;
    if (view === "search" && document.activeElement !== byId("search")) byId("search").value = parts[0] ?? "";
  }
  showSelected();
}

// ---------------------------------------------------------------- theme
const THEMES = ["auto", "light", "dark"];
function stored(name, value) {
  try { if (value === undefined) return localStorage.getItem(name); localStorage.setItem(name, value); } catch { /* a file may have no storage */ }
  return null;
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = {auto: "◐", light: "☀", dark: "☾"}[theme];
  byId("theme").setAttribute("aria-label", `theme: ${theme}`);
}
function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  setTheme(theme);
  stored("uopc-theme", theme);
}

// ---------------------------------------------------------------- keys
const KEYS = [
  ["/", "search everything"], ["Esc", "let go of the value, leave the search"], ["1 … 8", "a view"],
  ["[  ]", "the stage, kernel or Opt before, and after"], ["↑ ↓ Page Home End", "a line of the list that has the focus"],
  ["Enter", "follow the value of that line"], ["t", "light or dark"], ["?", "these keys"],
];
function neighbour(step) {
  const {view, parts} = address();
  const moved = (list, now) => list[Math.min(list.length - 1, Math.max(0, list.indexOf(now) + step))];
  if (view === "kernel" && parts[1] === "opts") {
    const kernel = D.byName.get(parts[0]), last = kernel?.steps?.opts.length ?? 0;
    location.hash = `${kernelLink(D.kernels.indexOf(kernel))}/opts/${Math.min(last, Math.max(0, (Number(parts[2]) || 0) + step))}`;
  } else if (view === "kernel") {
    const kernel = moved(D.kernels, D.byName.get(parts[0]) ?? D.kernels[0]);
    if (kernel) location.hash = kernelLink(D.kernels.indexOf(kernel)) + (parts[1] ? `/${parts[1]}` : "");
  } else if (["stages", "diff", "rewrites"].includes(view)) location.hash = `#${view}/${moved(D.graphs, stageNamed(parts[0])).name}`;
}
function onKey(event) {
  const typing = /^(INPUT|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (selected) follow(selected);
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const tabs = Object.keys(VIEWS).filter(name => VIEWS[name][0]);
  if (event.key === "/") { byId("search").focus(); byId("search").select(); event.preventDefault(); }
  else if (event.key === "?") byId("help").showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "[" || event.key === "]") neighbour(event.key === "]" ? 1 : -1);
  else if (/^[1-9]$/.test(event.key) && tabs[event.key - 1]) location.hash = `#${tabs[event.key - 1]}`;
}

(async () => {
  setTheme(stored("uopc-theme") ?? "auto");
  await unpack();
  byId("help").append(h("div", {class: "row"}, h("h2", {}, "Keys")), h("table", {}, KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what)))),
    h("p", {class: "dim"}, "Click a value such as %12 to follow it through all stages. The address of the page is a permanent link to what it shows."),
    h("form", {method: "dialog"}, h("button", {}, "Close")));
  byId("theme").addEventListener("click", nextTheme);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  document.addEventListener("click", event => {
    const value = event.target.closest?.(".v");
    if (value) { event.preventDefault(); follow(Number(value.dataset.v)); }
  });
  document.addEventListener("keydown", onKey);
  let waiting = 0;
  byId("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { location.hash = `#search/${encodeURIComponent(byId("search").value)}`; }, 120);
  });
  addEventListener("hashchange", route);
  route();
  document.body.dataset.ready = "yes";
})();
