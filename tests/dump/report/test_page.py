"""The report of a compile: its data, its size and time, and its page in a browser."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import time

import pytest

import uopc
from tests import effort
from tests.dump.report.conftest import MODEL, page_data
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

VIEWS = (
    "overview", "kernel", "stages", "placement", "rewrites", "timeline", "memory", "source",
)  # fmt: skip
ODD_LINKS = (
    "#nothing", "#kernel/none", "#stages/none~99999", "#source/99/1", "#%zz", "#diff/input",
    "#memory/none", "#rewrites/x",
)  # fmt: skip
PRODUCT = re.compile(r"= mul .* : f32\[64, 96, 400\]")
FIRST, SECOND = "r_64_96_400", "r_64_96_96_96_96"


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
