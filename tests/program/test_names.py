"""Params and variables of any name: text, calls, pickles, errors, signatures, files."""

from __future__ import annotations

import inspect
import pickle
import subprocess

import numpy as np
import pytest

import uopc

NAMES = [
    "input.1", "/layer.0/Add_output_0", "größe", "a b", "while", "3", "%x", "x : f32 // y", "{0}",
    'quote"\\', "a */ int x; /*", "self", "🙂", "f32", "param", "a,b=c", "@k", "%s", "_", "i0",
]  # fmt: skip


def graph() -> tuple[list[uopc.UOp], uopc.UOp]:
    n = uopc.variable("batch size/2", 1, 9)
    params = [uopc.param(name, (n, 3)) for name in NAMES]
    total = params[0] * 1
    for i, p in enumerate(params[1:], 2):
        total = total + p * i
    return params, total + uopc.variable("k.v", 0, 9).cast(uopc.dtypes.float32)


ARRAYS = [np.full((4, 3), 2.0**-i, "f4") for i in range(len(NAMES))]
WANTED = sum(a * (i + 1) for i, a in enumerate(ARRAYS)) + 2


def test_text() -> None:
    _, total = graph()
    assert uopc.parse(uopc.print_graph(total)) is total
    stages = uopc.compile(total).stages
    for name, text in stages.items():
        if name != "llvm":
            read = uopc.parse(text)
            assert uopc.parse(uopc.print_graph(read)) is read, name


def test_calls() -> None:
    params, total = graph()
    f = uopc.compile(total, inputs=params)
    assert [a.name for a in f.inputs] == NAMES
    for program in (f, pickle.loads(pickle.dumps(f))):
        np.testing.assert_allclose(program(*ARRAYS, **{"k.v": 2}), WANTED, 1e-6)
        by_name = dict(reversed(list(zip(NAMES, ARRAYS))))
        np.testing.assert_allclose(program(**by_name, **{"k.v": 2}), WANTED, 1e-6)
    with pytest.raises(uopc.UserError, match=r"argument '/layer\.0/Add.*batch size/2 = 4 from dim"):
        f(ARRAYS[0], ARRAYS[1][:2], *ARRAYS[2:], **{"k.v": 2})
    with pytest.raises(uopc.UserError, match=r"needs variable 'k\.v' by name"):
        f(*ARRAYS)


def test_signature() -> None:
    """A name that no parameter can have comes by position, under one like it."""
    params, total = graph()
    shown = inspect.signature(uopc.compile(total, inputs=params)).parameters
    kinds = {name: p.kind.name for name, p in shown.items()}
    assert [n for n, k in kinds.items() if k == "POSITIONAL_OR_KEYWORD"] == ["_", "i0"]
    assert kinds["input_1"] == kinds["self"] == kinds["while"] == "POSITIONAL_ONLY"
    assert kinds["variables"] == "VAR_KEYWORD" and len(kinds) == len(NAMES) + 2


def test_exported(tmp_path) -> None:
    """Names of C are like them; the library is called by the names as they are."""
    params, total = graph()
    uopc.export(total, tmp_path / "lib", kind="shared", inputs=params)
    f = uopc.load_exported(tmp_path / "lib.so")
    got = f(**dict(zip(NAMES, ARRAYS)), **{"k.v": 2})
    np.testing.assert_array_equal(got, uopc.compile(total, inputs=params)(*ARRAYS, **{"k.v": 2}))
    check = ["gcc", "-x", "c", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "lib.h"]
    assert subprocess.run(check, capture_output=True).stderr == b""


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "\ud800", 3, None])
def test_no_names(name) -> None:
    with pytest.raises(uopc.UserError, match="param: the name must be a printable string"):
        uopc.param(name)
    with pytest.raises(uopc.UserError, match="variable: the name must be a printable string"):
        uopc.variable(name, 0, 1)
