"""The command line: what `uopc dump`, `passes` and `ops` print, and how they fail."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from types import ModuleType

import pytest

import uopc
from tests.cli.conftest import good
from uopc.cli import main as cli
from uopc.dump import stages as dump
from uopc.ir.core.ops import Op, Ops
from uopc.ir.text.parser import parse, parse_header
from uopc.passes import ORDER, PIPELINE

# ---------------------------------------------------------------- usage
USAGE = [
    [], ["nosuch"], ["dump"], ["dump", "a.py", "--at", "nosuch"],
    ["dump", "a.py", "--diff", "llvm"], ["dump", "a.py", "--nosuch"], ["ops", "addd"],
    ["dump", "a.py", "--at", "input", "--diff", "rangeify"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_usage(run, arguments):
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: uopc")


def test_unknown_stage_is_answered_with_the_known(run, softmax):
    assert "choose input, canonicalize, " in run("dump", softmax, "--at", "nosuch").err


INPUT_IS_BAD = {
    "--kernel 7": "unknown kernel '7'; choose 0 r_16_10_32, 1 r_16_10_10_10",
    "--device cuda": "device 'cuda' needs pycuda",
    "--device tpu": "unknown device 'tpu'",
    "--diff input": "input is the first stage of this run",
    "--out softmax.py": f"softmax.py: {os.strerror(errno.EEXIST)}",
}


@pytest.mark.parametrize("options", INPUT_IS_BAD)
def test_options_that_do_not_fit_the_input(run, softmax, options):
    result = run("dump", softmax, *options.split())
    assert (result.code, result.out) == (1, "")
    assert INPUT_IS_BAD[options] in result.err


def test_earlier_stage_than_the_file(run, softmax):
    run("dump", softmax, "--out", "stages")
    result = run("dump", "stages/70_optimize.uop", "--at", "rangeify")
    assert result.code == 1 and "unknown stage 'rangeify'; this run has optimize" in result.err


def test_bad_environment(run, softmax, monkeypatch):
    monkeypatch.setenv("UOPC_DEBUG", "loud")
    result = run("dump", softmax)
    wanted = "uopc: option debug (UOPC_DEBUG) must be an integer from 0 to 7, got 'loud'\n"
    assert (result.code, result.err) == (1, wanted)


# ---------------------------------------------------------------- passes and ops
def test_passes(run):
    text = good(run("passes"))
    for number, p in PIPELINE:
        row = rf"^{number:02d} +{p.name} +{p.group} +{p.accepts.text}"
        assert re.search(row, text, re.M)
    for first, then, why in ORDER:
        assert re.search(rf"^{first} +{then} +{re.escape(why)}$", text, re.M)


def test_ops(run):
    lines = good(run("ops")).splitlines()
    assert [s.split()[0] for s in lines[1:-1]] == [op.name for op in Op.all()]
    assert lines[0].split() == ["op", "operands", "levels", "meaning"]
    assert re.match(
        r"iota +\*dims +T\.\.\.\.\.H +The integers", lines[[*Op.all()].index(Ops.IOTA) + 1]
    )


def test_one_op(run):
    text = good(run("ops", "ADD"))
    assert text.startswith("add a b\n  Sum. Integers wrap; logical or for bool.\n")
    assert "properties commutes" in text and "symbol     +" in text
    assert "2 to 3" in good(run("ops", "store"))
    assert "Did you mean 'add'?" in run("ops", "addd").err


# ---------------------------------------------------------------- the process
def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "uopc", *arguments],
        capture_output=True, text=True, env=os.environ | environment,
    )  # fmt: skip


def test_module_is_the_command():
    result = command("ops", "add")
    assert (result.returncode, result.stderr) == (0, "") and result.stdout.startswith("add a b\n")
    assert command("nosuch").returncode == 2
    assert command("dump", "nosuch.py").returncode == 1


def test_output_without_arrows():
    """A terminal that cannot show every character gets a replacement, not a traceback."""
    result = command("passes", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0 and "tensor ? indexed" in result.stdout


HEAVY = """
import sys
from uopc.cli import main as cli
try:
    cli.main(["--help"])
except SystemExit:
    print([m for m in ("rich", "llvmlite", "ml_dtypes", "uopc.cli.dump") if m in sys.modules])
cli.main(["dump", sys.argv[1]])
print("rich" in sys.modules)
"""


def test_help_imports_little_and_rich_only_for_a_terminal(softmax, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", HEAVY, str(tmp_path / softmax)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    assert "[]" in lines and lines[-1] == "False"


def test_colour_only_where_it_is_seen(run, softmax, monkeypatch):
    plain = good(run("dump", softmax, "--diff", "rangeify"))
    assert "\x1b[" not in plain
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    coloured = run("dump", softmax, "--diff", "rangeify").out
    assert "\x1b[32m+%" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("dump", softmax, "--diff", "rangeify").out == plain


# ---------------------------------------------------------------- Program.stages
def test_stages_of_a_program():
    x = uopc.param("x", (16, 32))
    f = uopc.compile({"a": x.softmax(axis=-1), "b": x + 1})
    assert list(f.stages) == [*dump.STAGES, "llvm"]
    for name, text in f.stages.items():
        if name != "llvm":
            assert parse_header(text)["stage"] == name
            parse(text)
    assert f.stages["llvm"].count("define void @") == len(f.kernels)
    assert parse(f.stages["linearize"]).src[0].src[0] is f.kernels[0].uops


# ---------------------------------------------------------------- rules and check
def test_rules(run):
    text = good(run("rules"))
    from uopc.ir.symbolic import simplify

    for rules in simplify.SETS:
        assert re.search(rf"^{rules.name}, over ", text, re.M)
        for e in rules.entries:
            assert re.search(rf"^  {e.name} ", text, re.M)
    assert re.search(r"^  mod-inside +\(x % c\) +→ x  where within\(x, 0, c\)$", text, re.M)


def test_one_rule_set(run):
    lines = good(run("rules", "where-bool")).splitlines()
    assert lines[0] == "where-bool, over bool"
    assert "unknown rule set 'were'; choose bounds, constants" in run("rules", "were").err


def test_check(run):
    text = good(run("check", "divmod", "--seed", "3"))
    assert re.match(r"divmod +\d+ rules, +\d+ graphs, +\d+ points, over wrapping\n", text)
    assert text.endswith("rules: all rules preserve values\n")


def test_check_shows_what_is_wrong(run, monkeypatch):
    from uopc.ir.rewrite.rules import WRAPPING, RuleSet, c, d, rule, x
    from uopc.ir.symbolic import simplify

    bad = RuleSet("bad", WRAPPING, [rule("nested", (x // c) // d, x // (c * d))])
    monkeypatch.setattr(simplify, "SETS", (bad,))
    shown = run("check", "bad")
    assert shown.code == 1 and re.search(r"^bad/nested: .* → .*: -?\d+, -?\d+ at ", shown.out, re.M)
    assert shown.out.endswith("1 rule: 1 complaint\n")


# ---------------------------------------------------------------- a command of one's own
def test_a_command_is_a_module_and_a_row(run, monkeypatch):
    hello = ModuleType("uopc.cli.hello", "uopc hello: greet somebody.")
    hello.arguments = lambda parser: parser.add_argument("name")
    hello.run = lambda args, out, refuse: out.line(f"hello {args.name}") or 3
    monkeypatch.setitem(sys.modules, hello.__name__, hello)
    monkeypatch.setitem(cli.COMMANDS, "hello", "greet somebody")
    result = run("hello", "reader")
    assert (result.code, result.out) == (3, "hello reader\n")
    assert re.search(r"^ +hello +greet somebody$", run("--help").out, re.M)
    assert run("hello", "--help").out.startswith("usage: uopc hello [-h] name\n\nuopc hello: greet")
