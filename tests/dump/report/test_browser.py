"""The page of a report in a headless Chromium: each view, without an error on the console."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time

import pytest

import uopc
from tests import ROOT
from tests.dump.report import browser as devtools
from tests.dump.report.test_page import FIRST, ODD_LINKS, SECOND, VIEWS
from uopc import config
from uopc.backends import detect
from uopc.dump import stages as dump
from uopc.dump.report import page
from uopc.dump.stages import STAGES
from uopc.ir.core import arena
from uopc.passes.pass_manager import Lowering
from uopc.program.reports import page as program_page
from uopc.program.request import make_context, prepare

# ---------------------------------------------------------------- the page in a browser
_with_browser = pytest.mark.skipif(
    devtools.executable() is None, reason="no Chromium: set UOPC_TEST_BROWSER, or install one"
)


def needs_browser(test):
    """A test in a browser: one of the slow tests, and skipped where there is none."""
    return pytest.mark.slow(_with_browser(test))


@pytest.fixture(scope="module")
def browser():
    with devtools.Browser() as opened:
        yield opened


@pytest.fixture
def shown(browser, model):
    """A function that opens the page at a link. No test may leave an error on the console."""
    browser.problems.clear()
    browser.call("Storage.clearDataForOrigin", origin="*", storageTypes="all")

    def open_at(fragment):
        browser.open(model[0], fragment)
        return browser

    yield open_at
    assert browser.problems == []


def text_of(browser, selector):
    return browser.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)"
    )


@needs_browser
def test_every_view_opens_from_the_bar(shown):
    b = shown("")
    titles = text_of(b, "#views a")
    assert titles == [
        "Overview", "Kernels", "Stages", "Placement", "Rewrites", "Timeline", "Memory", "Source",
    ]  # fmt: skip
    for n, title in enumerate(titles, 1):
        b.click(f"#views a:nth-child({n})")
        assert text_of(b, "#views a[aria-current]") == [title]
        assert len(text_of(b, "#main")[0]) > 40, title


@needs_browser
def test_a_click_on_a_value_marks_it_in_all_stages(shown):
    b = shown("#stages/input")
    b.click("[data-stage=input] .v[data-v='6']")
    assert b.evaluate("location.hash") == "#stages/input~6"
    marked = "document.querySelectorAll('[data-stage=%s] .v.hit').length"
    for stage in ("input", "rangeify", "linearize"):
        assert b.evaluate(marked % stage) > 0, stage  # each column has scrolled to it
    assert b.evaluate("document.querySelectorAll('[data-stage=linearize] .v.kin').length") > 0
    panel = text_of(b, "#value")[0]
    assert "model.py:6" in panel and "hidden = (x @ w + b).maximum(0.0)" in panel
    b.key("Escape")
    assert b.evaluate("document.querySelectorAll('.v.hit').length") == 0
    assert b.evaluate("document.getElementById('value').hidden")


@needs_browser
def test_a_link_leads_to_a_value(shown):
    b = shown("#stages/linearize~7")
    assert text_of(b, "#value h2") == ["%7"]


@needs_browser
def test_a_kernel(shown):
    b = shown(f"#kernel/{FIRST}")
    assert {"thread", "serial", "vector", "unrolled", "reduce"} <= set(text_of(b, ".nest .pill"))
    loops = "[...document.querySelectorAll('.nest .for')]"
    assert len(set(b.evaluate(f"{loops}.map(e => getComputedStyle(e).color)"))) == 5
    assert text_of(b, ".pane .line.hit") == ["6hidden = (x @ w + b).maximum(0.0)"]
    texts = {"uops": "linear name", "llvm": "define", "asm": ".text", "c": "Made by uopc"}
    for tab, words in texts.items():
        b.go(f"#kernel/{FIRST}/{tab}")
        assert words in text_of(b, ".body .list")[0], tab
    b.key("]")
    assert text_of(b, "h2")[0] == SECOND


@needs_browser
def test_opts_one_by_one(shown):
    b = shown(f"#kernel/{FIRST}/opts")
    choices = len(text_of(b, ".steps li"))
    assert choices > 3 and not text_of(b, ".nest .add")
    for step in range(1, choices):
        b.click(f".steps li:nth-child({step + 1}) button")
        assert text_of(b, ".nest .add") and text_of(b, ".nest .del")
    b.key("[")
    assert b.evaluate("location.hash").endswith(f"/opts/{choices - 2}")


@needs_browser
def test_changes_are_interleaved(shown):
    b = shown("#diff/rangeify")
    signs = "".join([line[0] for line in text_of(b, ".body .list .line")])
    assert re.search(r"\+ *−", signs) and re.search(r"− *\+", signs)
    rows = text_of(b, ".body .list .line")
    (old,) = [i for i, row in enumerate(rows) if row.startswith("−%6 = mul")]
    assert rows[old + 1].startswith("+%6 = mul")  # directly below its former self
    assert text_of(b, ".del b") and text_of(b, ".add b")  # the words that differ
    b.go("#diff/canonicalize")
    assert "changed nothing" in text_of(b, ".body")[0]


@needs_browser
def test_equal_lines_unfold(shown):
    b = shown("#diff/decompose")
    before = b.evaluate("document.querySelectorAll('.list .line').length")
    b.click(".fold")
    assert b.evaluate("document.querySelectorAll('.list .line').length") >= before


RANDOM_DIFFERENCES = """
  let seed = 1; const next = n => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 400; round++) {
    const a = Array.from({length: next(60)}, () => next(1 + next(80)));
    const c = a.filter(() => next(5)).flatMap(v => next(6) ? [v] : [v, next(80)]);
    const steps = difference(a, c);
    const old = steps.filter(s => s[0] !== "+").map(s => a[s[1]]);
    const fresh = steps.filter(s => s[0] !== "-").map(s => c[s[2]]);
    if (old.join() !== a.join() || fresh.join() !== c.join()) return `wrong ${a} | ${c}`;
    if (steps.some(s => s[0] === " " && a[s[1]] !== c[s[2]])) return "unequal";
    const rows = interleaved(a, c, v => v % 10);
    if (rows.filter(r => r.sign !== "+").map(r => r.line).join() !== a.join()) return "rows";
    if (rows.filter(r => r.sign !== "-").map(r => r.line).join() !== c.join()) return "rows";
  }
  return "good";
"""


@needs_browser
def test_the_difference_is_one(shown):
    """It gives both texts again, for random lists."""
    b = shown("")
    script = (ROOT / "uopc/dump/report/diff.js").read_text("utf-8") + RANDOM_DIFFERENCES
    assert b.evaluate(f"(() => {{ {script} }})()") == "good"


@needs_browser
def test_placement_filters_and_sorts(shown):
    b = shown("#placement")
    total = text_of(b, "#placement-shown")[0]
    b.evaluate("document.getElementById('placement-filter').focus()")
    b.call("Input.insertText", text="cheap")
    b.settle()
    assert text_of(b, "#placement-shown")[0] != total
    assert all("cheap" in row for row in text_of(b, ".cells"))
    assert b.evaluate("location.hash") == "#placement/cheap"
    b.go("#placement/output")
    assert len(text_of(b, ".cells")) == 1
    b.go("#placement")
    b.click(".head button:nth-child(2)")
    ops = [row.split("\n")[1] for row in text_of(b, ".cells")]
    assert ops == sorted(ops)
    b.click(".head button:nth-child(2)")
    assert [row.split("\n")[1] for row in text_of(b, ".cells")] == sorted(ops, reverse=True)


@needs_browser
def test_a_large_page_answers_quickly(browser, tmp_path):
    """20,000 nodes, one of them read by all others: each view is drawn within seconds."""
    browser.problems.clear()
    x = y = uopc.param("x", (16,))
    for i in range(10_000):
        y = (y + x) * 1.5 if i % 2 else y.maximum(x) - x
    request = prepare(y, None, True, 1, None, config.current())
    with arena.arena():
        context = make_context(request, detect.host())
        lowered = Lowering(context, trace=True).lower(request.graph)
        shown = dump.Dump(lowered)
        page.write(tmp_path / "x.html", "x", shown, program_page.facts(lowered))
    browser.open(tmp_path / "x.html")
    for link in (*[f"#{view}" for view in VIEWS], "#diff/split-kernels", "#search/max"):
        begin = time.monotonic()
        browser.go(link)
        assert time.monotonic() - begin < 10, link
        assert browser.evaluate("document.querySelectorAll('*').length") < 20_000, link
    assert browser.problems == []


@needs_browser
def test_rewrites_open(shown):
    b = shown("#rewrites/decompose")
    assert not text_of(b, ".examples")
    b.click("summary")
    b.wait("document.querySelectorAll('.examples').length === 1")
    assert "→" in text_of(b, ".examples")[0]
    b.go("#rewrites/rangeify")
    assert "Nodes by op" in b.evaluate("document.querySelector('.page').textContent")
    assert "without rules" in text_of(b, ".page")[0]


@needs_browser
def test_timeline_and_memory(shown):
    b = shown("#timeline")
    assert "machine code by LLVM" in text_of(b, ".time")[0]
    assert b.evaluate("document.querySelectorAll('.track i').length") >= len(STAGES) - 1 + 4
    b.go("#memory")
    b.click(".arena button")
    assert b.evaluate("location.hash") == "#memory/t0"
    told = "t0: 32.0 KiB at 0, written in launch 0, last used in launch 1"
    assert text_of(b, "#memory-info") == [told]


@needs_browser
def test_source_leads_to_kernels_and_values(shown):
    b = shown("#source/0/7")
    assert "%" in text_of(b, ".row")[1]
    b.click(".list .chip")
    assert b.evaluate("location.hash").startswith("#kernel/")


@needs_browser
def test_search_finds_everything(shown):
    b = shown("")
    b.key("/")
    b.call("Input.insertText", text="softmax")
    b.wait("location.hash === '#search/softmax'")
    b.settle()
    assert [t.lower() for t in text_of(b, "h3")] == ["source: 1"]
    for wanted, group in (
        ("rangeify", "stages"), ("THREAD", "kernels"), ("cheap", "decisions"),
        ("devectorize.py", "rules"), ("reciprocal", "stage "), ("alignstack", "llvm ir"),
        ("%257%20=", "stage input"),
    ):  # fmt: skip
        b.go(f"#search/{wanted}")
        assert any(t.lower().startswith(group) for t in text_of(b, "h3")), wanted


@needs_browser
def test_keys(shown):
    b = shown("#stages/input")
    b.key("]")
    assert b.evaluate("location.hash") == "#stages/canonicalize"
    b.key("2")
    assert text_of(b, "#views a[aria-current]") == ["Kernels"]
    b.key("?")
    assert b.evaluate("document.getElementById('help').open")
    b.key("Escape")
    b.go("#stages/input")
    b.evaluate("document.querySelector('[data-stage=input] .list').focus()")
    for _ in range(6):
        b.key("ArrowDown")
    b.key("Enter")
    assert b.evaluate("location.hash") == "#stages/input~6"


@needs_browser
def test_light_and_dark(shown):
    b = shown("")
    background = "getComputedStyle(document.body).backgroundColor"
    b.evaluate("document.documentElement.dataset.theme = 'light'")
    light = b.evaluate(background)
    b.key("t")
    assert b.evaluate("document.documentElement.dataset.theme") == "dark"
    assert b.evaluate(background) != light


@needs_browser
def test_odd_links_open_something(shown):
    for link in ODD_LINKS:
        b = shown(link)
        assert len(text_of(b, "#main")[0]) > 10, link


@needs_browser
def test_programs_without_kernels_or_lines_open(browser, tmp_path):
    """A constant takes no kernel; a graph from text has no source lines."""
    browser.problems.clear()
    text = "%1 = param x : f32[4]\n%2 = exp %1 : f32[4]\nsink %2"
    for n, graph in enumerate((uopc.parse(text), uopc.param("x", (4,)))):
        request = prepare(graph, None, True, 1, None, config.current())
        with arena.arena():
            context = make_context(request, detect.host())
            lowered = Lowering(context, trace=True).lower(request.graph)
            page.write(tmp_path / f"{n}.html", "x", dump.Dump(lowered), program_page.facts(lowered))
        for view in VIEWS:
            browser.open(tmp_path / f"{n}.html", f"#{view}")
    assert browser.problems == []


@pytest.mark.skipif(shutil.which("node") is None, reason="the drawing is tested with node")
def test_no_box_of_a_drawing_covers_another(tmp_path):
    script = tmp_path / "test.js"
    script.write_text(f"""
const {{layout, drawn}} = require({json.dumps(str(ROOT / "uopc/dump/report/rewrites.js"))});
const graph = {{
  names: ["add : f32", "mul : f32", "param <x> : f32[4]", "const 2 : f32", "exp : f32"],
  sources: [[1, 2, 4], [2, 3], [], [], null]}};
const {{boxes, lines, width}} = layout(graph, 0, 4);
const apart = (a, b) => a.y !== b.y || a.x + a.width <= b.x || b.x + b.width <= a.x;
console.log(JSON.stringify({{
  boxes: boxes.length, lines: lines.length, down: lines.every(([a, b]) => a.y < b.y),
  apart: boxes.every((a, i) => boxes.every((b, j) => i === j || apart(a, b))),
  inside: boxes.every(b => b.x >= 0 && b.x + b.width <= width),
  cut: boxes.filter(b => b.cut).length,
  svg: drawn(graph, 0, 1), deep: layout(graph, 0, 1).boxes.length}}));
""", "utf-8")
    out = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert (found["boxes"], found["lines"], found["deep"], found["cut"]) == (5, 5, 4, 1)
    assert found["down"] and found["apart"] and found["inside"]
    assert "&#60;x&#62;" in found["svg"] and found["svg"].count('class="own"') == 2
