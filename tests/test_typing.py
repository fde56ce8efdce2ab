"""Type checkers see what users write: mypy and pyright accept programs, and know what they give."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests import ROOT, numpy_stubs
from uopc.numpy import namespace, protocols
from uopc.numpy.array import Array

PROGRAM = '''
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes


class State(NamedTuple):
    place: unp.Array
    speed: unp.Array


@uopc.jit
def step(state: State, dt: unp.Array) -> State:
    pushed = state.speed - dt * unp.sin(state.place)
    return State(state.place + dt * pushed, pushed)


@uopc.jit(static_argnames="n", donate_argnames=["x"], dims={"x": ("n", 3)})
def power(x: unp.Array, n: int) -> unp.Array:
    return unp.where(x > 0, x**n, unp.zeros_like(x)).sum(axis=-1, keepdims=True)


@uopc.function(precompile=True)
def layer(x: UOp, w: UOp) -> UOp:
    return (x @ w).relu()


class Masks:
    kind: uopc.dtypes.DType = dtypes.bool
    integers = (dtypes.int, dtypes.float, dtypes.uchar)

    def fits(self, x: UOp) -> bool:
        return x.dtype is self.kind


def grows(x: unp.Array) -> unp.Array:
    y = unp.concat([x, unp.ones((3,), dtype=unp.float32)]).reshape(-1, 1)
    y = -y.T + abs(y) @ unp.asarray([[1.0]])
    values, places = unp.top_k(y, 2)
    chosen: unp.Array = unp.take(values, unp.argsort(values), axis=0)
    key = uopc.random.key(7)
    noise = uopc.random.normal(key, (3,))
    same: UOp = unp.exp(noise) + unp.maximum(noise, 0.0)
    known: Any = uopc.cond(True, unp.cos, unp.sin, x)
    solved: unp.Array = unp.linalg.solve(y, chosen).at[0].add(1.0).at[1:].set(known)
    equal: unp.Array = (solved == 0) | ~(solved != 1) & (2 < solved)
    return unp.astype(equal, unp.bool).mean() * unp.pi + float(unp.median(x)) + same.sum()


def loss(w: unp.Array, x: unp.Array) -> unp.Array:
    return (unp.tanh(x @ w) ** 2).mean()


@uopc.custom_jvp
def rounded(x: unp.Array) -> unp.Array:
    return unp.round(x)


rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))
slope = uopc.jit(uopc.grad(loss))
rows = uopc.jit(uopc.vmap(loss, in_axes=(None, 0)))
x = uopc.param("x", (3,))
gradient: UOp = uopc.grad((x * x).sum(), x)
print(slope(np.ones((3, 2)), np.ones((4, 3))), rows(np.eye(3), np.ones((2, 3))), gradient)


def main() -> None:
    n = uopc.variable("n", 1, 64)
    x = uopc.param("x", (n, 3), "f4")
    w = uopc.param("w", (3, 3), dtype=np.float64)
    y = (layer(x, w.cast(dtypes.float32)) * 2 + 1).softmax(-1)
    print(y.shape, y.dtype, y.tree(), repr(y))
    z: UOp = y.at[0].set(0.0)[1:, None].sum(axis=(0, 1))
    with uopc.options(threads=1, debug=0) as chosen:
        program = uopc.compile({"y": y, "z": z}, name="rows", threads=chosen.threads)
    a: npt.NDArray[np.float32] = np.ones((4, 3), "f4")
    result = program(a, w=np.eye(3))
    total: float = result["z"].sum() + len(program.stats)
    print(total, program.stages["linearize"], program.inputs[0].name)
    moved = step(State(unp.zeros(2), unp.ones(2)), 0.5)
    print(moved.place, power(a, n=2), step.cache_info().hits, step.lower(moved, 0.5))
    try:
        uopc.compile(x, inputs=["y"])
    except (uopc.UserError, uopc.InvalidIR, uopc.Unsupported) as error:
        print(error)
    uopc.parse(uopc.print_graph(y))
    uopc.cache.clear()
    print("all done")


main()
'''
# The types that a checker gives expressions, and its messages for mistakes.
REVEALED = {
    "unp.exp(a)": "Array", "unp.exp(u)": "UOp", "a + 1": "Array", "1 - a": "Array", "u * u": "UOp",
    "unp.add(1.0, a)": "Array", "unp.add(u, 2)": "UOp", "a == a": "Array", "a.sum(0)": "Array",
    "a.at[0].set(1)": "Array", "u.at[0].set(1)": "UOp", "unp.stack([a, a])": "Array",
    "a.T": "Array", "a.shape": "tuple", "unp.float32": "DType", "dtypes.bool": "DType",
    "unp.zeros(3)": "Array", "unp.where(a > 0, a, 0)": "Array", "uopc.compile(u)": "Program",
    "uopc.jit(len)": "Jitted", "uopc.jit(name='f')(len)": "Jitted", "unp.pi": "float",
    "uopc.random.normal(uopc.random.key(0))": "UOp", "unp.isdtype(unp.bool, 'bool')": "bool",
}  # fmt: skip
WRONG = (
    "unp.expp(a)", "unp.exp()", "unp.sum(a, axes=0)", "a.summ()", "uopc.compil(u)",
    "dtypes.float23", "uopc.jit(3)", "uopc.jit(len, static='x')", "uopc.random.normall",
    "unp.stack(a, axis='x')", "uopc.param(3)", "u.at[0].sett(1)", "unp.fftt",
)  # fmt: skip
HEAD = """
import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
def f(a: unp.Array, u: UOp) -> None:
"""


def checked(checker: str, folder: Path, text: str) -> list[tuple[int, str, str]]:
    """The findings of a checker in a file: line, severity and message."""
    file = folder / "user.py"
    file.write_text(text, "utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if checker == "mypy":  # in the checkout: what `mypy` knows of uopc there serves both
        command = ["mypy", "--strict", str(file)]
    else:
        settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
        command = ["pyright", "--pythonpath", sys.executable, "--outputjson", "--project", "."]
    run = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT if checker == "mypy" else folder,
        capture_output=True, text=True, env=environment, timeout=600,
    )  # fmt: skip
    if checker == "mypy":
        rows = re.findall(r"(?m)^\S*\buser\.py:(\d+): (\w+): (.*)$", run.stdout)
        assert "user.py" in run.stdout or "no issues" in run.stdout, run.stdout + run.stderr
        return [(int(line), kind, message) for line, kind, message in rows]
    return [
        (d["range"]["start"]["line"] + 1, d["severity"], d["message"])
        for d in json.loads(run.stdout)["generalDiagnostics"]
    ]


@pytest.fixture(params=("mypy", "pyright"))
def checker(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: it is in the extra test-full")
    return name


@pytest.mark.slow
def test_a_user_program_passes(checker: str, tmp_path: Path) -> None:
    found = checked(checker, tmp_path, PROGRAM)
    assert [row for row in found if row[1] == "error"] == []


@pytest.mark.slow
def test_the_user_program_runs(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(PROGRAM, "utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "UOPC_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert "<UOp MUL float32 (n, 3)>" in run.stdout and "all done" in run.stdout


@pytest.mark.slow
def test_types_of_expressions(checker: str, tmp_path: Path) -> None:
    lines = [f"    reveal_type({e})" for e in REVEALED]
    found = checked(checker, tmp_path, HEAD + "\n".join(lines))
    assert not [row for row in found if row[1] == "error"]
    told = {line: message for line, _, message in found}
    first = HEAD.count("\n") + 1
    for line, (expression, kind) in enumerate(REVEALED.items(), first):
        assert re.search(rf'["\.]{kind}\b', told[line]), (expression, told[line])


@pytest.mark.slow
def test_mistakes_are_found(checker: str, tmp_path: Path) -> None:
    found = checked(checker, tmp_path, HEAD + "\n".join(f"    {e}" for e in WRONG))
    wrong = {line for line, kind, _ in found if kind == "error"}
    first = HEAD.count("\n") + 1
    assert [e for line, e in enumerate(WRONG, first) if line not in wrong] == []


# ---------------------------------------------------------------- what the stubs promise
# Further arguments of functions that need more than operands.
MORE: dict[str, tuple[Any, ...]] = {
    "astype": (unp.float64,), "broadcast_to": ((2, 2, 2),), "matrix_power": (2,),
    "moveaxis": (0, 1), "pad": (1,), "permute_dims": ((1, 0),), "repeat": (2,),
    "reshape": ((4,),), "roll": (1,), "swapaxes": (0, 1), "tile": ((2, 1),), "quantile": (0.5,),
    "percentile": (50,), "nanquantile": (0.5,), "nanpercentile": (50,), "bincount": (None, 3),
    "argpartition": (1,), "delete": (0,), "digitize": ([0, 1],), "insert": (0, 5),
    "partition": (1,), "polyfit": (np.array([1, 0, 1]), 1), "rollaxis": (1,),
    "rotary": (np.ones((2, 1)), np.zeros((2, 1))),
}  # fmt: skip
VECTORS = (
    "bincount", "compress", "convolve", "correlate", "cross", "cumulative_prod", "cumulative_sum",
    "interp", "outer", "polyfit", "searchsorted", "take", "vander",
)  # fmt: skip
OVERLOADED = [
    n for n in namespace.__all__
    if inspect.isfunction(f := getattr(namespace, n)) and numpy_stubs.overloaded(f)
    and n not in ("select", "asarray") and not n.startswith("unique") and n != "nonzero"
]  # fmt: skip


def called(name: str, x: Any) -> Any:
    """The function of an operand, the same for each of its operands."""
    function: Callable[..., Any] = getattr(namespace, name)
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if needed[0].annotation == "Sequence[Any]":
        return function([x, x])
    if name == "bincount":
        return function(x, length=3)
    if name in MORE:
        return function(x, *MORE[name])
    return function(*[x] * len(needed))


@pytest.mark.parametrize("name", OVERLOADED)
def test_functions_give_what_the_stubs_say(name: str) -> None:
    values = np.array([[1, 0], [0, 1]]) if name not in VECTORS else np.array([1, 0, 1])
    values = values[None] if name == "attention" else values
    array, uop = unp.asarray(values), uopc.constant(values)
    assert type(called(name, array)) is Array
    assert type(called(name, uop)) is uopc.UOp


def test_methods_give_arrays() -> None:
    x = unp.asarray([[1, 2], [3, 4]])
    more = MORE | {"take": (x, 0), "dot": (x,)}
    others = ("T", "mT", "imag", "real", "nonzero", "tolist", "sort", "fill", "put")
    names = [n for n in protocols.INSTALLED if n[0] != "_" and n not in others]
    assert len(names) > 20
    for name in names:
        assert type(getattr(x, name)(*more.get(name, ()))) is Array, name
    assert type(x.T) is type(x.mT) is type(x.real) is type(x.imag) is Array
    assert type(x @ x) is type(2**x) is type(~x) is Array


def test_methods_have_the_signatures_of_their_functions() -> None:
    assert str(inspect.signature(Array.argmax)) == str(inspect.signature(unp.argmax))
    assert [*inspect.signature(Array.sum).parameters] == [*inspect.signature(np.sum).parameters]
    assert "ddof" in inspect.signature(Array.var).parameters
