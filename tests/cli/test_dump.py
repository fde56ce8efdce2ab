"""`uopc dump`: its table, texts and stage files, what it takes from a file, and how it fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.cli.conftest import good
from tests.dump.report.conftest import page_data
from uopc.backends import detect
from uopc.dump import stages as dump
from uopc.ir.core.ops import Ops
from uopc.ir.text.parser import parse, parse_header
from uopc.passes import PIPELINE
from uopc.passes.contract import Context
from uopc.passes.pass_manager import Lowering
from uopc.program.request import prepare
from uopc.tensor import creation

KERNEL = """
from uopc import UOp, dtypes
from uopc.tensor.creation import kernel_param

a = kernel_param(0, (8, 8), dtypes.float32)
b = kernel_param(1, (8, 8), dtypes.float32)
i, j = UOp.range(8), UOp.range(8)
twice = a.index(i, j).store(b.index(j, i) * 2).end(i, j).sink(name="twice")
"""


# ---------------------------------------------------------------- the table
def test_table_has_a_line_for_each_stage(run, softmax):
    lines = good(run("dump", softmax)).splitlines()
    found = [(int(m[1]), m[2]) for m in (re.match(r" +(\d\d+) ([a-z-]+) ", s) for s in lines) if m]
    passes = [(number, p.name) for number, p in PIPELINE]
    last = passes[-1][0] // 10 * 10
    assert found == [(0, "input"), *passes, (last + 10, "llvm"), (last + 20, "asm")]


def test_an_unchanged_stage_is_one_word(run, softmax):
    lines = {s.split()[1]: s for s in good(run("dump", softmax)).splitlines()[1:]}
    assert re.fullmatch(r" +110 apply-rules +vector +unchanged +2 +\d+\.\d", lines["apply-rules"])
    assert "unchanged" not in lines["rangeify"]
    assert re.search(r"tensor → indexed +\d+ → \d+ +\d+\.\d$", lines["rangeify"])
    assert re.search(r"\d+ → \d+ +2 +\d+ +\d+\.\d$", lines["optimize"])
    assert re.search(r"text +\d+ lines +2 +\d+\.\d$", lines["llvm"])


def test_table_lists_the_kernels(run, softmax):
    kernels = good(run("dump", softmax)).splitlines()[-2:]
    assert kernels[0].startswith("   0 r_16_10_32 ")
    assert kernels[1].startswith("   1 r_16_10_10_10 ")
    assert all(k.endswith("softmax.py:7") for k in kernels)


def test_lines_of_a_kernel_are_listed_by_file(run, tmp_path):
    lines = ["import uopc", "y = uopc.param('x', (8,))", *["y = y.sin()"] * 3, "", "graph = y + 1"]
    (tmp_path / "a.py").write_text("\n".join(lines), "utf-8")
    assert good(run("dump", "a.py")).splitlines()[-1].endswith("  a.py:3-5,7")


def test_launches_of_one_kernel(run, tmp_path):
    text = (
        "import uopc\nx, y = uopc.param('x', (8,)), uopc.param('y', (8,))\ngraph = (x + 1, y + 1)\n"
    )
    (tmp_path / "two.py").write_text(text, "utf-8")
    assert "   0 E_8  2 launches  " in good(run("dump", "two.py"))


@pytest.mark.machine("desktop")
def test_rewrites_are_counted(run, tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("import uopc\ngraph = uopc.param('x', (8,)) * 2.0\n", "utf-8")
    rule = uopc.PatternMatcher(
        [(uopc.UPat(Ops.MUL, src=(uopc.UPat.var("a"), uopc.UPat.cvar("c"))), lambda a, c: a + a)]
    )
    made = Context.__init__

    def with_rules(self, *args, **named):
        made(self, *args, **named | {"rules": {"apply-rules": rule}})

    monkeypatch.setattr(Context, "__init__", with_rules)
    rows = json.loads(good(run("dump", "a.py", "--json")))["stages"]
    fired = {r["stage"]: r["rewrites"] for r in rows}
    assert fired["apply-rules"] == 1
    assert fired["input"] == fired["llvm"] == 0


def test_json(run, softmax):
    shown = json.loads(good(run("dump", softmax, "--json")))
    assert shown["source"] == "softmax.py:graph"
    rows = {r["stage"]: r for r in shown["stages"]}
    assert rows["input"]["before"] is None
    assert rows["optimize"]["before"] == rows["simplify-ranges"]["after"]
    assert rows["apply-rules"]["changed"] is False
    assert rows["llvm"]["unit"] == "lines"
    assert [k["name"] for k in shown["kernels"]] == ["r_16_10_32", "r_16_10_10_10"]
    assert shown["kernels"][0]["launches"] == 1
    assert shown["kernels"][0]["origin"] == ["softmax.py:7"]
    at = json.loads(good(run("dump", softmax, "--json", "--at", "input")))
    assert at["stage"] == "input" and at["text"].startswith("// stage: input\n")
    changed = json.loads(good(run("dump", softmax, "--json", "--diff", "rangeify")))
    assert changed["diff"].startswith("--- place-stages\n+++ rangeify\n")


# ---------------------------------------------------------------- text
def test_at_prints_what_can_be_parsed(run, softmax):
    for stage in dump.STAGES:
        text = good(run("dump", softmax, "--at", stage))
        assert parse_header(text)["stage"] == stage
        assert parse(text).op in (Ops.SINK, Ops.LINEAR)


def test_at_llvm_and_asm(run, softmax):
    assert good(run("dump", softmax, "--at", "llvm")).count("define void @r_16_10_") == 2
    assert "r_16_10_32:" in good(run("dump", softmax, "--at", "asm"))


def test_at_c(run, softmax):
    """One file for all kernels, which shares what they need."""
    text = good(run("dump", softmax, "--at", "c"))
    assert re.findall(r"^void (\w+)\(", text, re.MULTILINE) == ["r_16_10_32", "r_16_10_10_10"]
    assert text.count("#include <stdint.h>") == 1 and "softmax.py:7 */" in text
    if shutil.which("gcc"):
        warnings = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
        command = ["gcc", *warnings, "-x", "c", "-c", "-o", os.devnull, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    one = good(run("dump", softmax, "--at", "c", "--kernel", "1"))
    assert re.findall(r"^void (\w+)\(", one, re.MULTILINE) == ["r_16_10_10_10"]


def test_at_c_says_what_c_has_no_code_for(run, tmp_path):
    """In one line, which no compiler takes; on a GPU no file is written."""
    (tmp_path / "gpu.py").write_text(PROGRAM % "cuda:sm_90", "utf-8")
    lines = good(run("dump", "gpu.py:prog", "--at", "c")).splitlines()
    told = [s for s in lines if s.startswith(('#error "E_', '#error "r_'))]
    assert len(told) == 1 and told[0].endswith(': c: a kernel of a GPU has no C code"')
    assert run("dump", "gpu.py:prog", "--out", "s").code == 0
    assert list((tmp_path / "s").glob("*.ptx")) and not list((tmp_path / "s").glob("*.c"))


def test_at_rangeify_tells_why_values_are_stored(run, softmax):
    text = good(run("dump", softmax, "--at", "rangeify"))
    lines = text[text.index("// decisions of place-stages") :].splitlines()
    columns = re.split(r"  +", lines[1])
    assert columns == ["// node", "consumers", "shape", "read at", "stored?"]
    rows = {c[0]: c[1:] for c in (re.split(r"  +", s[3:]) for s in lines[2:])}
    product = next(r for n, r in rows.items() if re.match(r"%\d+ reduce$", n) and len(r) == 4)
    consumers, shape, read, stored = product
    assert shape == "(16, 10)"
    assert len(consumers.split(" %")) == 2
    assert "[r0_0, r0_1]" in read
    costs = r" \(again [\d.e+]+, stored [\d.e+]+\)"
    assert re.fullmatch("yes: each element would be computed 3 times, in 3 places" + costs, stored)
    assert rows["%1 param"][-1] == "is storage"
    exp = next(r for n, r in rows.items() if n.endswith(" exp"))
    assert exp[-1].startswith("no: ")
    sink = [r for r in rows.values() if r[0] == "sink"]
    assert [r[-1] for r in sink] == ["yes: output 0"]


def test_diff_shows_what_a_stage_changed(run, softmax):
    lines = good(run("dump", softmax, "--diff", "place-stages")).splitlines()
    assert lines[:2] == ["--- reroll", "+++ place-stages"]
    added = [s for s in lines if s.startswith("+%")]
    assert sum(" = stage " in s for s in added) == 2
    # only what reads a stage is different, under the name it had
    names = [re.match(r".%\d+", s)[0][1:] for s in lines if s.startswith("-%")]
    assert names and all(any(s.startswith(f"+{n} ") for s in added) for n in names)


def test_diff_of_an_unchanged_stage(run, softmax):
    assert good(run("dump", softmax, "--diff", "apply-rules")) == "unchanged\n"


def test_values_keep_their_names(run, softmax):
    names = [
        re.findall(r"(%\d+) = (exp|reciprocal|reduce\.\w+) ", good(run("dump", softmax, "--at", s)))
        for s in ("input", "place-stages", "rangeify", "split-kernels", "simplify-ranges")
    ]
    assert len(names[0]) == 5
    for later in names[1:]:
        assert set(names[0]) <= set(later)


def test_one_kernel(run, softmax):
    whole = good(run("dump", softmax, "--at", "optimize"))
    first = good(run("dump", softmax, "--at", "optimize", "--kernel", "0"))
    assert first == good(run("dump", softmax, "--at", "optimize", "--kernel", "r_16_10_32"))
    assert parse(first).op is Ops.SINK and parse(first).arg.name == "r_16_10_32"
    assert first.count("reduce.max") == 0 and whole.count("reduce.max") > 0
    assert good(run("dump", softmax, "--at", "llvm", "--kernel", "1")).count("define") == 1
    table = good(run("dump", softmax, "--kernel", "1")).splitlines()
    assert table[-1].startswith("   1 r_16_10_10_10 ")
    assert not table[-2].startswith("   0 ")


# ---------------------------------------------------------------- stage files
def test_out_writes_numbered_files(run, softmax, tmp_path):
    result = run("dump", softmax, "--out", "stages")
    assert result.code == 0 and result.err.endswith(" files in stages\n")
    names = {p.name for p in (tmp_path / "stages").iterdir()}
    assert {"00_input.uop", "10_canonicalize.uop", "120_linearize.uop"} <= names
    assert {"130_llvm_r_16_10_32.ll", "140_asm_r_16_10_10_10.s"} <= names
    assert {"150_c_r_16_10_32.c", "150_c_r_16_10_10_10.c"} <= names
    shown = (tmp_path / "stages" / "150_c_r_16_10_32.c").read_text("utf-8")
    assert shown == good(run("dump", softmax, "--at", "c", "--kernel", "0"))
    assert len([n for n in names if n.endswith(".uop")]) == 1 + len(PIPELINE)
    assert len([n for n in names if n.endswith(".npy")]) == 1


RESUME = """
import sys
from pathlib import Path
from types import ModuleType
from uopc.cli import main as cli
for path in sorted(Path("stages").glob("*.uop")):
    assert cli.main(["dump", str(path), "--out", f"again/{path.stem}"]) == 0, path
"""


@pytest.mark.slow
@pytest.mark.machine("this")  # as the other process is
def test_every_stage_file_gives_the_same_code(run, softmax, tmp_path):
    """In a process that never saw the graph: the constant array comes from its file."""
    run("dump", softmax, "--out", "stages")
    environment = dict(os.environ)
    environment.pop("UOPC_THREADS")
    subprocess.run([sys.executable, "-c", RESUME], check=True, capture_output=True, env=environment)
    made = sorted((tmp_path / "stages").glob("*.ll"))
    assert len(made) == 2
    for folder in (tmp_path / "again").iterdir():
        for file in made:
            assert (folder / file.name).read_text("utf-8") == file.read_text("utf-8"), folder
    assert len(list((tmp_path / "again").iterdir())) == 1 + len(PIPELINE)


def with_a_kernel(x: uopc.UOp) -> uopc.UOp:
    """A kernel written by hand between computed values."""
    a, b = (creation.kernel_param(i, (8, 12), uopc.dtypes.float32) for i in range(2))
    i, j = uopc.UOp.range(8), uopc.UOp.range(12)
    kernel = a.index(i, j).store(b.index(i, 11 - j) * 2).end(i, j).sink(name="mirror")
    out = creation.buffer((8, 12), uopc.dtypes.float32)
    call = uopc.UOp(Ops.CALL, uopc.dtypes.void, (kernel, out, (x + 1).contiguous()))
    return out.after(call) * 3


def graphs():
    x, n = uopc.param("x", (8, 12)), uopc.variable("n", 1, 64)
    s = uopc.param("s", (n, 4))
    w = uopc.constant(np.arange(96).reshape(8, 12).astype(ml_dtypes.bfloat16))
    cache = uopc.param("cache", (4, 8))
    return {
        "elementwise": x * 2.0 + 1.0,
        "two outputs": {"sum": x.sum(axis=1), "shifted": x[:, 1:].exp()},
        "symbolic": s.softmax(axis=0) * n.cast(uopc.dtypes.float32),
        "small floats": x + w.cast(uopc.dtypes.float32),
        "assign": cache[:, 2:4].assign(uopc.param("k", (4, 2)) * 3),
        "equal kernels": (x + 1, uopc.param("y", (8, 12)) + 1),
        "two constants": x.pad(((1, 1), (0, 0))).cat(x.flip((0,)), axis=0).sum(),
        "a kernel by hand": with_a_kernel(x),
        "nothing": uopc.zeros((0, 3)) + 1,
    }


@pytest.mark.parametrize("name", list(graphs()))
@pytest.mark.few(3)
def test_lowering_goes_on_from_every_stage(name):
    context = Context(detect.host(), True, 2)
    request = prepare(graphs()[name], None, True, 2, None, uopc.config.current())
    lowering = Lowering(context)
    lowered = lowering.lower(request.graph)
    shown = dump.Dump(lowering)
    for stage in dump.STAGES:
        again = Lowering(context).lower(parse(shown.text(stage)), stage)
        assert again.kernels == lowered.kernels, stage
        assert again.calls == lowered.calls, stage


def test_hand_written_kernel_goes_on_from_every_stage(run, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL, "utf-8")
    run("dump", "kernel.py", "--out", "stages")
    files = sorted((tmp_path / "stages").glob("*.uop"))
    assert files[0].name == "00_input.uop"
    ll = (tmp_path / "stages" / "130_llvm_twice.ll").read_text("utf-8")
    for file in files:
        assert good(run("dump", str(file), "--at", "llvm")).strip() == ll.strip()


def test_a_file_of_one_kernel_goes_on(run, softmax, tmp_path):
    expanded = good(run("dump", softmax, "--kernel", "1", "--at", "expand"))
    (tmp_path / "one.uop").write_text(expanded, "utf-8")
    one = good(run("dump", "one.uop", "--at", "llvm"))
    assert one == good(run("dump", softmax, "--kernel", "1", "--at", "llvm"))


def test_a_stage_file_keeps_its_settings(run, softmax, tmp_path, monkeypatch):
    run("dump", softmax, "--out", "stages")
    monkeypatch.delenv("UOPC_THREADS")
    text = (tmp_path / "stages" / "30_rangeify.uop").read_text("utf-8")
    assert parse_header(text)["threads"] == "2"
    copied = tmp_path / "stages" / "plain.uop"
    copied.write_text(text.replace("optimize: yes", "optimize: no"), "utf-8")
    kernels = json.loads(good(run("dump", "stages/plain.uop", "--json")))["kernels"]
    assert [k["opts"] for k in kernels] == [[], []]


def test_a_stage_file_keeps_its_cpu(run, softmax, tmp_path, monkeypatch):
    monkeypatch.setenv("UOPC_TARGET_CPU", "x86-64-v2")
    run("dump", softmax, "--out", "stages")
    file = tmp_path / "stages" / "30_rangeify.uop"
    assert parse_header(file.read_text("utf-8"))["cpu"] == "x86-64-v2"
    monkeypatch.delenv("UOPC_TARGET_CPU")
    llvm = good(run("dump", str(file), "--at", "llvm", "--kernel", "0")).strip()
    assert llvm == (tmp_path / "stages" / "130_llvm_r_16_10_32.ll").read_text("utf-8").strip()
    assert "<4 x float>" in llvm and "<8 x float>" not in llvm
    file.write_text(file.read_text("utf-8").replace("x86-64-v2", "nosuch"), "utf-8")
    good(run("dump", str(file)))  # a name that is not known counts for nothing


def test_small_floats_are_stored(run, tmp_path):
    (tmp_path / "bf.py").write_text(
        "import ml_dtypes, numpy as np, uopc\n"
        "w = uopc.constant(np.arange(8).astype(ml_dtypes.bfloat16))\n"
        "graph = uopc.param('x', (8,)) * w.cast(uopc.dtypes.float32)\n",
        "utf-8",
    )
    run("dump", "bf.py", "--out", "stages")
    (file,) = (tmp_path / "stages").glob("*.npy")
    assert np.load(file).dtype == np.uint16
    assert good(run("dump", "stages/00_input.uop", "--at", "input")).count(file.stem) == 1


def test_text_without_header_is_an_input(run, tmp_path):
    text = "%1 = param x : f32[4]\n%2 = add %1, 1.0:f32 : f32[4]\n"
    (tmp_path / "a.uop").write_text(text, "utf-8")
    assert "   0 E_4 " in good(run("dump", "a.uop"))


# ---------------------------------------------------------------- what a file offers
OFFERS = {
    "the attribute graph": ("y = x + 1\ngraph = y.sum()\nz = y * 2", "graph", "r_12"),
    "the only whole value": ("y = x + 1\nz = y.sum()", "z", "r_12"),
    "a dict": ("outputs = {'a': x + 1, 'b': x * 2}", "outputs", "E_12"),
    "a function": ("def build():\n    return x + 1", "build", "E_12"),
    "graph, a function": ("def graph(n=3):\n    return x + n\ny = x * 2", "graph", "E_12"),
    "not main": ("def build():\n    return x + 1\ndef main():\n    return 1", "build", "E_12"),
    "main if there is no other": ("def main():\n    return x + 1", "main", "E_12"),
    "a program": ("f = uopc.compile(x + 1)", "f", "E_12"),
    "the graph of a program": ("y = x + 1\nf = uopc.compile(y)", "y", "E_12"),
}


@pytest.mark.parametrize("case", OFFERS)
def test_offered(run, tmp_path, case):
    body, name, kernel = OFFERS[case]
    (tmp_path / "a.py").write_text(f"import uopc\nx = uopc.param('x', (3, 4))\n{body}\n", "utf-8")
    shown = json.loads(good(run("dump", "a.py", "--json")))
    assert shown["source"] == f"a.py:{name}"
    assert shown["kernels"][0]["name"] == kernel


def test_named(run, tmp_path):
    (tmp_path / "a.py").write_text(
        "import uopc\nx = uopc.param('x', (4,))\ny = x + 1\n"
        "def f():\n    print('made')\n    return y * 2\n",
        "utf-8",
    )
    assert json.loads(good(run("dump", "a.py:y", "--json")))["source"] == "a.py:y"
    result = run("dump", "a.py:f", "--json")
    assert json.loads(result.out)["source"] == "a.py:f"
    assert result.err == "made\n"  # what the file prints does not mix with ours


BAD = {
    "two graphs": ("y = x + 1\nz = x * 2", "a.py", "a.py offers y, z: choose one, such as a.py:y"),
    "no graph": ("n = 1", "a.py", "expected a UOp at module level"),
    "no such name": ("n = 1", "a.py:y", "a.py defines no 'y'"),
    "not a graph": ("n = 1", "a.py:n", "a.py: n: expected a graph of UOps, got int"),
    "needs arguments": ("def f(a):\n    return a", "a.py:f", "or a function without parameters"),
    "returns none": ("def f():\n    pass", "a.py", "a.py: f(): expected a graph of UOps"),
    "shapes": (
        "graph = x @ x",
        "a.py",
        "a.py:3: matmul: (3, 4) @ (3, 4): the left has 4 columns, the right 3 rows",
    ),
    "python": ("graph = x + nosuch", "a.py", "a.py:3: NameError: name 'nosuch' is not defined"),
    "in a function": ("def graph():\n    return 1 / 0", "a.py", "a.py:4: ZeroDivisionError"),
    "syntax": ("graph = (x +", "a.py", "a.py:3: SyntaxError: '(' was never closed"),
    "exit": ("raise SystemExit(0)", "a.py", "a.py:3: SystemExit: 0"),
    "no file": ("", "b.py", "b.py: no such file"),
    "no text": ("", "a.txt", "a.txt: expected a .py, .uop, .onnx or .casadi file"),
    "a folder": ("", "sub.py", "sub.py: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_python(run, tmp_path, case):
    body, source, message = BAD[case]
    (tmp_path / "a.py").write_text(f"import uopc\nx = uopc.param('x', (3, 4))\n{body}\n", "utf-8")
    (tmp_path / "sub.py").mkdir()
    result = run("dump", source)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("uopc: ") and message in result.err
    assert "Traceback" not in result.err


def test_the_line_of_the_user_is_shown(run, tmp_path):
    text = "import uopc\nx = uopc.param('x', (3, 4))\ngraph = x @ x\n"
    (tmp_path / "a.py").write_text(text, "utf-8")
    assert run("dump", "a.py").err.splitlines()[1] == "    graph = x @ x"


TEXTS = {
    "no end": ("%1 = param x : f32[4\n", "a.uop: line 1, column 16: expected a type"),
    "empty": ("// stage: rangeify\n", "a.uop: line 1, column 1: expected a statement"),
    "stage": ("// stage: nosuch\n%1 = param x : f32[4]\n", "unknown stage 'nosuch'; choose input,"),
    "level": (
        "// stage: rangeify\n%1 = param x : f32[4]\n",
        "rangeify: level indexed, invariant legal-op",
    ),
    "array": ("%1 = data @0123456789abcdef : f32[4]\n", "0123456789abcdef is not loaded"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_bad_text(run, tmp_path, case):
    text, message = TEXTS[case]
    (tmp_path / "a.uop").write_text(text, "utf-8")
    result = run("dump", "a.uop")
    assert (result.code, result.out) == (1, "")
    assert message in result.err and "Traceback" not in result.err


def test_array_of_another_content(run, tmp_path, softmax):
    run("dump", softmax, "--out", "stages")
    (file,) = (tmp_path / "stages").glob("*.npy")
    np.save(file, np.load(file) + 1)
    result = run("dump", "stages/00_input.uop")
    assert (
        result.code == 1 and f"the array given for {file.stem} has the content hash" in result.err
    )


def test_unended_range(run, tmp_path):
    (tmp_path / "a.py").write_text(KERNEL.replace(".end(i, j)", ".end(j)"), "utf-8")
    result = run("dump", "a.py")
    assert result.code == 1
    assert "invariant range-closed-once: range " in result.err
    assert "a.py:7" in result.err  # where the range was made


def test_failure_in_a_pass_keeps_the_stages_before(run, softmax, tmp_path, monkeypatch):
    def fail(kernel, context):
        raise uopc.InvalidIR("cannot go on")

    with monkeypatch.context() as broken:
        broken.setattr("uopc.passes.expand.expand.expand", fail)
        result = run("dump", softmax, "--out", "stages")
    assert result.code == 1
    assert result.err.splitlines() == [
        "uopc: cannot go on",
        "  in pass expand",
        "  replay: uopc dump stages/75_simplify-values.uop",
    ]
    before = [p.name for _, p in PIPELINE].index("expand")
    assert len(list((tmp_path / "stages").glob("*.uop"))) == 1 + before
    good(run("dump", "stages/75_simplify-values.uop"))


# ---------------------------------------------------------------- programs
PROGRAM = """
import uopc
from uopc import UPat
rule = (UPat.var("x") * 2.0, lambda x: x * 3.0)
prog = uopc.compile(
    uopc.param("x", (64,)) * 2.0, rules={"rangeify": rule}, optimize=False, threads=3, name="mine",
    device=%r,
)
"""


def test_a_program_is_shown_as_it_was_compiled(run, tmp_path):
    """Rules, optimize flag, threads and device were those of the defaults."""
    (tmp_path / "prog.py").write_text(PROGRAM % "cpu", "utf-8")
    shown = good(run("dump", "prog.py:prog", "--at", "rangeify"))
    assert "3.0:f32" in shown and "// optimize: no\n" in shown and "// threads: 3\n" in shown
    assert "// rules: rangeify\n" in shown
    ll = good(run("dump", "prog.py:prog", "--at", "llvm"))
    spec = {"__name__": "m"}
    exec(PROGRAM % "cpu", spec)
    assert ll.strip() == spec["prog"].kernels[0].source.strip()
    (tmp_path / "gpu.py").write_text(PROGRAM % "cuda:sm_90", "utf-8")
    assert ".target sm_90" in good(run("dump", "gpu.py:prog", "--at", "asm"))
    assert ".target sm_80" in good(run("dump", "gpu.py", "--at", "asm", "--device", "cuda:sm_80"))


def test_every_form_of_a_dump_shows_the_program(run, tmp_path):
    (tmp_path / "prog.py").write_text(PROGRAM % "cpu", "utf-8")
    assert run("dump", "prog.py", "--out", "s", "--html", "p.html", "--trace", "t.json").code == 0
    assert "3.0:f32" in (tmp_path / "s" / "30_rangeify.uop").read_text("utf-8")
    assert "3.0:f32" in json.dumps(page_data((tmp_path / "p.html").read_text("utf-8")))
    assert json.loads((tmp_path / "t.json").read_text("utf-8"))
    assert "3.0:f32" in good(run("dump", "prog.py", "--diff", "rangeify"))
    stages = json.loads(good(run("dump", "prog.py", "--json")))["stages"]
    assert {r["stage"]: r["rewrites"] for r in stages}["rangeify"] >= 1


def test_a_stage_file_names_the_rules_that_it_lacks(run, tmp_path):
    (tmp_path / "prog.py").write_text(PROGRAM % "cpu", "utf-8")
    run("dump", "prog.py", "--out", "s")
    shown = run("dump", "s/20_place-stages.uop")
    assert shown.code == 0 and "without the rules after rangeify" in shown.err
    assert good(run("dump", "s/35_tabulate.uop"))


def test_why_prints_the_ways_that_were_compared(run, softmax):
    lines = good(run("dump", softmax, "--why")).splitlines()
    assert lines[0].startswith("r_16_10") and " cycles" in lines[1]
    assert json.loads(good(run("dump", softmax, "--why", "0", "--json")))["why"] == lines[: len(
        good(run("dump", softmax, "--why", "0")).splitlines()
    )]  # fmt: skip
    assert run("dump", softmax, "--why", "--diff", "rangeify").code == 2
    bad = run("dump", softmax, "--why", "none")
    assert bad.code == 1 and "--why: no kernel 'none'" in bad.err
