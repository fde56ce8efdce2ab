"""The report of a compile: its data, its size and time, and its page in a browser."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import zlib

import pytest

import uopc
from tests import ROOT, effort
from tests.dump.report import browser as devtools
from uopc import config
from uopc.backends import detect
from uopc.cli import main as cli
from uopc.dump import stages as dump
from uopc.dump.report import loop_nest, page, rewrites, values
from uopc.dump.stages import STAGES
from uopc.errors import UserError
from uopc.ir.core import arena
from uopc.ir.core.trace import Fired, PassFunction
from uopc.ir.text.printer import Namer
from uopc.passes.pass_manager import Lowering
from uopc.program.reports import page as program_page
from uopc.program.request import make_context, prepare

MODEL = """import uopc
x = uopc.param("x", (64, 400))
w = uopc.param("w", (400, 96))
b = uopc.param("b", (96,))

hidden = (x @ w + b).maximum(0.0)
centred = hidden - hidden.mean(axis=1, keepdims=True)
graph = (centred * 2.0).softmax()
"""
VIEWS = (
    "overview", "kernel", "stages", "placement", "rewrites", "timeline", "memory", "source",
)  # fmt: skip
ODD_LINKS = (
    "#nothing", "#kernel/none", "#stages/none~99999", "#source/99/1", "#%zz", "#diff/input",
    "#memory/none", "#rewrites/x",
)  # fmt: skip
PRODUCT = re.compile(r"= mul .* : f32\[64, 96, 400\]")
FIRST, SECOND = "r_64_96_400", "r_64_96_96_96_96"


def page_data(text):
    """The data of a page."""
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text)
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The page of a model, and its data. Two threads of a named CPU, so that Opts are known."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "model.py").write_text(MODEL, "utf-8")
    environment = {"UOPC_THREADS": "2", "UOPC_TARGET_CPU": "x86-64-v3", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "uopc", "dump", "model.py", "--html", "page.html"]
    subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=True, capture_output=True
    )
    text = (folder / "page.html").read_text("utf-8")
    return folder / "page.html", text, page_data(text)


@pytest.fixture(scope="module")
def data(model):
    return model[2]


def lines(data, stage):
    """The text of a stage of a page."""
    numbers, at = [], 0
    for step in next(s for s in data["stages"] if s["name"] == stage)["text"]:
        at += step
        numbers.append(at)
    return [data["lines"][n] for n in numbers]


# ---------------------------------------------------------------- the data
def test_the_page_is_complete_and_asks_nothing_of_a_server(model):
    assert "{{" not in model[1] and "http" not in model[1]


def test_stages(data):
    graphs = [s for s in data["stages"] if not s.get("code")]
    assert [s["name"] for s in graphs] == list(STAGES)
    assert [s["name"] for s in data["stages"][len(graphs) :]] == ["llvm", "asm"]
    assert lines(data, "input")[0] == "%1 = param x : f32[64, 400]"
    by_name = {s["name"]: s for s in graphs}
    assert by_name["apply-rules"]["text"] is None  # it changed nothing
    assert len(set(data["lines"])) == len(data["lines"])
    linear = lines(data, "linearize")
    assert any(re.match(rf"\s*%\d+ = linear name={FIRST} ", line) for line in linear)


def test_a_value_is_followed_to_the_end(data):
    """The user's product has its name in every stage, and its copies know it."""
    (product,) = [line for line in lines(data, "input") if PRODUCT.search(line)]
    name = product.split(" = ")[0]
    number = int(name[1:])
    for stage in ("rangeify", "split-kernels", "optimize", "expand", "devectorize", "linearize"):
        assert any(re.match(rf"\s*{name} = mul", line) for line in lines(data, stage)), stage
    kin = data["values"]["kin"]
    copies = [v for v in range(len(kin)) if kin[v] == number]
    assert len(copies) >= 3  # the Opts unroll its loops
    found = [re.match(r"\s*%(\d+) = mul", line) for line in lines(data, "linearize")]
    assert {int(m[1]) for m in found if m}.issuperset(copies)


def test_the_users_names(data):
    """A param of a kernel is a copy of the argument, which has the user's name and line."""
    kin, labels = data["values"]["kin"], data["values"]["labels"]
    params = [line for line in lines(data, "linearize") if '= param ""' in line]
    found = set()
    for line in params:
        value = int(re.match(r"\s*%(\d+)", line)[1])
        found.add(labels.get(str(kin[value])))
    assert {"x", "w", "b"} <= found
    kernels = [line for line in lines(data, "split-kernels") if "= sink" in line]
    assert [labels[re.match(r"\s*%(\d+)", line)[1]] for line in kernels] == [FIRST, SECOND]
    sources = data["sources"]
    (product,) = [line for line in lines(data, "input") if PRODUCT.search(line)]
    place = data["values"]["place"][int(product.split(" ")[0][1:])]
    assert sources["places"][place - 1] == [0, 6]
    assert sources["files"][0]["pieces"] == [[1, MODEL.rstrip("\n")]]


def test_kernels(data):
    first, second = data["kernels"]
    assert [first["name"], second["name"]] == [FIRST, SECOND]
    nest = [(depth, kind, data["lines"][text]) for depth, kind, text in first["nest"]]
    assert nest[0] == (0, "thread", "for i in 2") and first["whole"]
    assert {kind for _, kind, _ in nest} == {"thread", "loop", "upcast", "lane", "reduce", ""}
    assert re.fullmatch(r"%7 \+= x\[[^]]*\] \* w\[[^]]*\]", nest[-2][2])
    assert nest[-1][2].startswith("t0[") and "max(%7 + b[" in nest[-1][2]
    for kernel in data["kernels"]:
        assert kernel["name"] in kernel["llvm"] and kernel["asm"].count("\n") > 10
        assert kernel["seconds"]["asm"] > 0
        assert f"void {kernel['name']}(" in kernel["c"]
    assert first["work"]["operations"] == 64 * 96 * (2 * 400 + 2) and first["work"]["floats"]
    assert first["work"]["nbytes"] == 4 * (64 * 400 + 400 * 96 + 96 + 64 * 96)
    lines_of = [[data["sources"]["places"][p - 1][1] for p in k["places"]] for k in data["kernels"]]
    assert lines_of == [[6], [7, 8]]
    storage = [[a[0] for a in args] for _, _, args in data["launches"]]
    assert storage == [["t0", "x", "w", "b"], ["out", "t0"]]
    assert first["written"] == second["written"] == [0]


def test_opts_step_by_step(data):
    steps = data["kernels"][0]["steps"]
    assert [o for o, _ in steps["opts"]] == data["kernels"][0]["opts"]
    assert len(steps["nests"]) == len(steps["opts"]) + 1
    kinds = [{kind for _, kind, _ in nest} - {""} for nest in steps["nests"]]
    assert kinds[0] == {"loop", "reduce"}
    for (opt, _), before, after in zip(steps["opts"], kinds, kinds[1:]):
        added = {"THREAD": {"thread"}, "VECTOR": {"lane"}, "UPCAST": {"upcast"}, "SWAP": set()}
        assert after == before | added[opt.split("(")[0]], opt
    assert all(a != b for a, b in zip(steps["nests"], steps["nests"][1:]))


def test_too_many_opts_to_replay_are_said(monkeypatch):
    monkeypatch.setattr("uopc.dump.report.kernels.MOST_REPLAYED", 10)
    x = uopc.param("x", (64, 64))
    kernels = report_of(x @ x)["kernels"]
    assert any(k["steps"]["opts"] for k in kernels)
    assert not any("nests" in k["steps"] for k in kernels)


def test_placement(data):
    rows = {row[0]: row for row in data["placement"]}
    texts = data["texts"]
    stored, output = [texts[row[6]] for row in rows.values() if row[5]]
    costs = r" \(again [\d.e+]+, stored [\d.e+]+\)"
    assert re.fullmatch("each element would be computed 4 times, in 4 places" + costs, stored)
    assert output == "output 0"
    text = [line for line in lines(data, "input") if "= detach" not in line]  # it vanishes
    assert set(rows) == {int(line.split(" ")[0][1:]) for line in text if line.startswith("%")}


def test_rewrites(data):
    graphs = {s["name"]: s for s in data["stages"] if not s.get("code")}
    for stage in graphs.values():
        assert sum(n for _, n, _ in stage["rules"]) == stage["total"]
        assert all(len(examples) == min(n, 12) for _, n, examples in stage["rules"])
    labels = [data["texts"][label] for label, _, _ in graphs["decompose"]["rules"]]
    assert labels
    assert all(re.search(r"\(uopc/passes/decompose/\w+.py:\d+\)$", label) for label in labels)
    assert len(set(labels)) == len(labels)
    for name in ("rangeify", "split-kernels", "expand", "linearize"):  # they report no rewrites
        stage = graphs[name]
        assert stage["ops"] and stage["made"] > 0, name
        grown = sum(after - before for _, before, after in stage["ops"])
        assert grown == stage["made"] - stage["gone"], name
    assert graphs["canonicalize"]["ops"] == [["detach", 1, 0]]


def test_memory(data):
    assert data["memory"] == {"bytes": 64 * 96 * 4, "blocks": [["t0", 64 * 96 * 4, 0, 0, 1]]}


def report_of(graph, **context):
    """The data of the report of a graph."""
    request = prepare(graph, None, True, 1, None, config.current())
    with arena.arena():
        lowered = Lowering(make_context(request, detect.host()), trace=True).lower(request.graph)
        facts = program_page.facts(lowered)
        return json.loads(json.dumps(page.data("graph", dump.Dump(lowered, **context), facts)))


@pytest.mark.parametrize("n", [2, 64])
def test_a_gpu_that_is_described(n, tmp_path):
    """Its report has the memory of the plan, where no result overwrites a value that is read."""
    x, w = uopc.param("x", (n, n)), uopc.param("w", (n, n))
    program = uopc.compile(((x @ w + x).contiguous() @ w - x).softmax(), device="cuda:sm_80")
    program.report(tmp_path / "x.html")
    found = page_data((tmp_path / "x.html").read_text("utf-8"))
    assert found["memory"]["bytes"] == program.plan.arena_bytes


def test_memory_over_time():
    """Intermediates that are not alive together share memory, and those that one launch reads and
    writes, element by element."""
    y = uopc.param("x", (1000,))
    for _ in range(5):
        y = (y * 2.0).contiguous()
    memory = report_of(y)["memory"]
    assert len(memory["blocks"]) == 4 and memory["bytes"] == 4032
    for a in memory["blocks"]:
        for b in memory["blocks"]:
            apart = a[4] <= b[3] or b[4] <= a[3]
            assert a is b or apart


@pytest.mark.parametrize("size", [0, 1, "n", 17])
def test_any_size(size):
    n = uopc.variable("n", 1, 50) if size == "n" else size
    x = uopc.param("x", (n, 3))
    data = report_of(((x + 1.0).exp().sum(axis=0), x * 2.0))
    assert all(k["work"] is None or k["work"]["exact"] == (size != "n") for k in data["kernels"])
    if size == "n":
        shown = [data["lines"][text] for k in data["kernels"] for _, _, text in k["nest"]]
        assert any("for i in n" in line or "in n" in line for line in shown)
        assert data["kernels"][0]["work"]["nbytes"] >= 50 * 3 * 4


def test_a_page_of_a_kernel_written_by_hand():
    x, o = uopc.kernel_param(0, (8,), name="x"), uopc.kernel_param(1, (8,), name="o")
    data = report_of(o.store(x * 2.0).sink())
    (kernel,) = data["kernels"]
    assert [data["lines"][text] for _, _, text in kernel["nest"]][-1].startswith("o[")


def test_expressions_have_the_parentheses_they_need():
    x, y = uopc.param("x", (10,)), uopc.param("y", (10,))
    value = (x - (y - x)) * (x + y) / (x * y)
    data = report_of(value.contiguous(()))
    shown = [data["lines"][text] for _, _, text in data["kernels"][0]["nest"]]
    assert shown[-1] == "out[i] = (x[i] - (y[i] - x[i])) * (x[i] + y[i]) / (x[i] * y[i])", shown


def test_a_large_kernel_shows_its_loops(monkeypatch):
    monkeypatch.setattr(loop_nest, "MOST_NODES", 20)
    x = y = uopc.param("x", (16,))
    for i in range(20):
        y = y * 1.5 + x if i % 2 else y.maximum(x)
    (kernel,) = report_of(y)["kernels"]
    assert not kernel["whole"] and any(kind == "note" for _, kind, _ in kernel["nest"])


def test_names_of_steps_do_not_depend_on_the_stages():
    """A nest can be made without names of stages."""
    x = uopc.param("x", (64, 64))
    request = prepare(x.sum(axis=1), None, True, 1, None, config.current())
    with arena.arena():
        lowered = Lowering(make_context(request, detect.host())).lower(request.graph)
        kernel = next(r for r in lowered.runs if r.name == "simplify-values").after[0]
        nest = loop_nest.loop_nest(kernel, Namer(), {})
    assert nest[-1].text.startswith("arg0[")


# ---------------------------------------------------------------- the report of a program
def test_the_report_of_a_program_with_times(tmp_path):
    n = uopc.variable("n", 1, 1000)
    x = uopc.param("x", (n, 40))
    program = uopc.compile((x * 2.0).softmax(), name="rows")
    program.report(tmp_path / "x.html", run=True)
    data = page_data((tmp_path / "x.html").read_text("utf-8"))
    times = data["times"]
    assert data["source"] == "rows" and times["values"] == {"n": 256}
    assert len(times["launches"]) == len(times["least"]) == len(data["launches"])
    assert all(t > 0 for t in (*times["launches"], *times["least"], times["total"]))
    assert set(times["bounds"]) <= {"memory", "arithmetic", "division"}
    assert all(k["work"]["exact"] and k["work"]["nbytes"] >= 256 * 4 for k in data["kernels"])
    assert [k["name"] for k in data["kernels"]] == [k.name for k in program.kernels]
    program.report(str(tmp_path / "y.html"))
    assert page_data((tmp_path / "y.html").read_text("utf-8"))["times"] is None
    with pytest.raises(UserError, match="No such file"):
        program.report(tmp_path / "no" / "x.html")


def test_a_program_of_a_pickle_has_a_report(tmp_path):
    program = pickle.loads(pickle.dumps(uopc.compile(uopc.param("x", (4,)) * 2.0)))
    program.report(tmp_path / "x.html")
    assert page_data((tmp_path / "x.html").read_text("utf-8"))["kernels"]


def test_dump_with_times(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    assert cli.main(["dump", "model.py", "--html", "a.html", "--run"]) == 0
    assert len(page_data((tmp_path / "a.html").read_text("utf-8"))["times"]["launches"]) == 2
    with pytest.raises(SystemExit):
        cli.main(["dump", "model.py", "--run"])
    assert "--run: give --html FILE too" in capsys.readouterr().err
    assert cli.main(["dump", "model.py", "--out", "stages"]) == 0
    with pytest.raises(SystemExit):
        cli.main(["dump", "stages/30_rangeify.uop", "--html", "a.html", "--run"])
    assert cli.main(["dump", "stages/30_rangeify.uop", "--html", "b.html"]) == 0
    later = page_data((tmp_path / "b.html").read_text("utf-8"))
    assert later["placement"] == [] and len(later["kernels"]) == 2


def test_letters_of_loops_are_no_names_of_the_user():
    i, j = uopc.param("i", (3, 4)), uopc.param("j", (3, 4))
    shown = report_of((i + j).contiguous(()))
    nest = [shown["lines"][text] for _, _, text in shown["kernels"][0]["nest"]]
    assert [line for line in nest if line.startswith("for")] == ["for k in 12"], nest


def test_the_page_escapes_its_source(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a&<b.py").write_text(MODEL + "# </script><b>\n", "utf-8")
    assert cli.main(["dump", "a&<b.py", "--html", "a.html"]) == 0
    text = (tmp_path / "a.html").read_text("utf-8")
    assert "<title>uopc: a&amp;&lt;b.py:graph</title>" in text and "</script><b>" not in text


@pytest.mark.slow
def test_a_page_of_a_large_graph_is_small():
    """The size for 50,000 nodes follows from a part of them; its time is measured against the
    lowering of the same graph, which takes about half as long."""
    x = uopc.param("x", (16,))
    y = x
    for i in range(6000):
        y = (y + x) * 1.5 if i % 2 else y.maximum(x) - x
    lowering, writing = [], []
    for _ in range(3):
        request = prepare(y, None, True, None, None, config.current())
        with arena.arena():
            start = time.process_time()
            context = make_context(request, detect.host())
            lowered = Lowering(context, trace=True).lower(request.graph)
            lowering.append(time.process_time() - start)
            shown = dump.Dump(lowered)
            start = time.process_time()
            text = page.render("chain", shown, program_page.facts(lowered))
            writing.append(time.process_time() - start)
            assert len(text) < 5e6 * len(y.toposort()) / 50_000
    assert min(writing) < 3 * min(lowering)


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


# ---------------------------------------------------------------- every rewrite
def test_every_rewrite_has_its_rule_and_the_graph_before_and_after(data):
    graph = data["graph"]
    names = [data["texts"][n] for n in graph["labels"]]
    stages = [s for s in data["stages"] if not s.get("code")]
    assert sum(s["total"] for s in stages) > 50 and len(graph["labels"]) == len(graph["sources"])
    for stage in stages:
        assert len(stage["all"]) == 3 * stage["total"]
        rules, before = stage["all"][::3], stage["all"][1::3]
        assert sorted({data["texts"][r] for r in rules}) == sorted(
            {data["texts"][r] for r, _, _ in stage["rules"]}
        )
        assert all(re.search(r"\(.*:\d+\)$", data["texts"][r]) for r in rules)
        assert all(graph["sources"][n] is not None for n in before)
    assert any(name.startswith("reduce") for name in names)


def many_rewrites(count):
    """Rewrites of a long chain: each makes the node that the next one replaces."""
    nodes = [uopc.param("x", (8,))]
    for i in range(count):
        nodes.append(nodes[-1].exp() + float(i))
    rule = PassFunction(many_rewrites)
    return [Fired("walk", rule, a, b) for a, b in itertools.pairwise(nodes)]


def test_the_cost_of_rewrites_grows_with_their_number():
    def collect(fired):
        around = rewrites.Surroundings(values.Interned())
        assert len(rewrites.in_order(fired, values.Interned(), around)) == 3 * len(fired)
        assert len(around.labels) == 3 * len(fired) + 1  # each node once

    assert effort.grows_less(collect, many_rewrites(300), many_rewrites(1200), 6)


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
