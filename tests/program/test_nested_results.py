"""Results in containers of containers, and functions of `jit` where a program is meant."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import uopc
from uopc.cli.main import main
from uopc.ir.builder import pytrees

X, W = uopc.param("x", (4,)), uopc.param("w", (4,))
ARRAYS = {"x": np.arange(4, dtype="f4"), "w": np.full(4, 0.5, "f4")}
LEAVES: list[tuple[uopc.UOp, Any]] = [
    (X, ARRAYS["x"]), (X * W, ARRAYS["x"] / 2), ((X + W).sum(), np.float32(8)),
    (W * 2, np.ones(4, "f4")),
]  # fmt: skip


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class State:
    place: Any
    speed: Any


def drawn(rng: random.Random, depth: int) -> tuple[Any, Any]:
    """A container of nodes, and the same of what they are worth."""
    kind = rng.choice(["leaf", "list", "tuple", "dict", "pair", "state", "none", "ordered"])
    if not depth or kind == "leaf":
        return rng.choice(LEAVES)
    parts = [drawn(rng, depth - 1) for _ in range(2 if kind in ("pair", "state") else 3)]
    ours, theirs = zip(*parts[: rng.randint(1, 3)])
    keys = rng.sample(["a", 3, ("b", 1), "c d"], len(ours))
    pairs = [tuple(side) for side in zip(*parts)]
    made = {
        "list": lambda v, _: list(v), "tuple": lambda v, _: tuple(v), "none": lambda v, _: None,
        "dict": lambda v, _: dict(zip(keys, v)), "ordered": lambda v, _: OrderedDict(zip(keys, v)),
        "pair": lambda _, both: Pair(*both[:2]), "state": lambda _, both: State(*both[:2]),
    }[kind]  # fmt: skip
    return made(ours, pairs[0]), made(theirs, pairs[1])


def check(found: Any, want: Any) -> None:
    (ours, structure), (theirs, wanted) = pytrees.flatten(found), pytrees.flatten(want)
    assert structure == wanted
    for (_, a), (_, b) in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(40))
def test_results_have_the_structure_of_the_graphs(seed: int) -> None:
    graph, want = drawn(random.Random(seed), 3)
    program = uopc.compile([graph, None, (X * 1,)])
    given = {spec.name: ARRAYS[spec.name] for spec in program.inputs}
    wanted = [want, None, (ARRAYS["x"],)]
    check(program(**given), wanted)
    check(pickle.loads(pickle.dumps(program))(**given), wanted)
    bound = program.bind(**given)
    check(bound(), wanted)
    check(pickle.loads(pickle.dumps(bound))(), wanted)
    names = [path[1:] for path, _ in pytrees.flatten(wanted)[0]]
    assert [spec.name for spec in program.outputs] == names


def test_memory_of_nested_results() -> None:
    program = uopc.compile({"loss": (X * W).sum(), "new": [X * 2, None]})
    out: Any = {"loss": np.zeros((), "f4"), "new": [np.zeros(4, "f4"), None]}
    found = program(**ARRAYS, out=out)
    assert found["new"][0] is out["new"][0] and found["new"][0][3] == 6
    assert program(**ARRAYS, out={"loss": None, "new": None})["loss"] == 3
    out["new"][0] = np.zeros(3, "f4")
    with pytest.raises(uopc.UserError, match=r"out\['new.0'\]: expected float32\[4\]"):
        program(**ARRAYS, out=out)
    with pytest.raises(uopc.UserError, match="out: expected dict of loss, new, as of the results"):
        program(**ARRAYS, out=[1, 2])


def test_writes_and_exports_of_nested_results(tmp_path: Path) -> None:
    w = ARRAYS["w"].copy()
    program = uopc.compile({"loss": X.sum(), "new": [W.assign(W - X)]})
    assert program(x=ARRAYS["x"], w=w)["new"][0] is w and w[3] == -2.5
    both = uopc.compile({"loss": X.sum(), "new": [X * W]}, inputs=[X, W])
    made = uopc.export(both, tmp_path / "f", kind="c")
    assert "f(const float *x, const float *w, float *loss, float *new_0" in (
        made.files[0].read_text("utf-8")
    )
    with pytest.raises(uopc.Unsupported, match=r"a dict of 'loss', 'new\.0'"):
        uopc.save_schedule(program, tmp_path / "f.uop")


twice = uopc.jit(lambda x: x * 2)


@uopc.jit
def doubled(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [X, 3]}, r"expected UOps in the dict, at a\.1 got 3"),
        ([X, 3], "expected UOps in the list, at 1 got 3"),
        (3, "expected a UOp or a container of UOps, got 3"),
        (None, "expected a UOp or a container of UOps, got None"),
        (doubled, r"pass doubled\.lower\(\*args\), its graph, or call doubled\.program\(\*args\)"),
        ([doubled], r"at 0 got .*doubled\.program\(\*args\)"),
        (drawn, r"uopc\.jit\(drawn\)\.lower\(\*args\)"),
        (uopc.compile(X), "which is compiled"),
    ],
)  # fmt: skip
def test_what_is_no_graph(given: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        uopc.compile(given)


def test_a_function_of_jit_where_a_program_is_meant(tmp_path: Path) -> None:
    with pytest.raises(uopc.UserError, match=r"a Program, got .* call doubled\.program\(\*args\)"):
        uopc.save_schedule(doubled, tmp_path / "f.uop")  # type: ignore[arg-type]
    with pytest.raises(uopc.UserError, match=r"doubled\.program\(\*args\)"):
        uopc.export(doubled, tmp_path / "f")
    with pytest.raises(AttributeError, match=r"doubled\.program\(\*args\)\.report"):
        doubled.report(tmp_path / "f.html")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = doubled.other
    assert doubled.program(np.ones(3)).report(tmp_path / "f.html") is None


def test_pickles_of_functions_of_jit() -> None:
    """By name, as functions: of the decorated one, or of the function that it is made of."""
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled
    again = pickle.loads(pickle.dumps(uopc.jit(drawn, static_argnames=("rng", "depth"))))
    assert repr(again).startswith("<uopc.jit of drawn(rng: 'random.Random'")
    with pytest.raises(uopc.UserError, match=r"<lambda>\.program|no module has a function"):
        pickle.dumps(twice)


SOURCE = """
import numpy as np, uopc
@uopc.jit
def once(x):
    return {"total": x.sum(), "more": [x * 2]}
once(np.ones(8))
@uopc.jit
def never(x):
    return x
@uopc.jit
def often(x):
    return x + 1
often(np.ones(3)), often(np.ones(4))
x = uopc.param("x", (4,))
def nested():
    return {"loss": x.sum(), "new": [x * 2, (x,)]}
def wrong():
    return {"loss": x.sum(), "new": [x * 2, "text"]}
"""


@pytest.mark.parametrize("command", ["run", "dump"])
@pytest.mark.parametrize("name", ["once", "nested"])
def test_commands_take_them(tmp_path: Path, capsys: Any, command: str, name: str) -> None:
    (tmp_path / "m.py").write_text(SOURCE, "utf-8")
    more = ["--repeat", "1"] if command == "run" else []
    assert main([command, f"{tmp_path}/m.py:{name}", *more]) == 0
    assert "kernel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("never", "a function of jit with no program: call it in the file with arguments"),
        ("often", "of one kind, or give a program a name, such as program = often.program(*args)"),
        ("wrong", "wrong().new.1: expected a graph of UOps, got str"),
    ],
)
def test_commands_say_what_is_missing(
    tmp_path: Path, capsys: Any, name: str, message: str
) -> None:
    (tmp_path / "m.py").write_text(SOURCE, "utf-8")
    assert main(["dump", f"{tmp_path}/m.py:{name}"]) == 1
    assert message in capsys.readouterr().err
