"""The names of uopc in the guide for tinygrad developers exist."""

from __future__ import annotations

import importlib
import itertools
import re
from typing import get_args

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests import ROOT
from tests.standin import module
from uopc import Ops, PatternMatcher, UOp, UPat, config, dtypes, graph_rewrite
from uopc.ir import Op
from uopc.ir.core.args import AxisKind, BufferArg

PAGE = (ROOT / "docs" / "tinygrad.md").read_text("utf-8")
CELLS = re.findall(r"^\| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE)
CODE = [code for cell in CELLS for code in re.findall(r"`([^`]*)`", cell)]
QUALIFIED = sorted({m for code in CODE for m in re.findall(r"^uopc(?:\.\w+)+", code)})
VARIABLES = sorted({m for code in CODE for m in re.findall(r"^UOPC_\w+", code)})


def found(name: str) -> object:
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("name", QUALIFIED)
def test_a_name_exists(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_is_an_option(name: str) -> None:
    assert name in {config.variable(option) for option in vars(config.Options())}


# The C types of a machine with 64-bit longs, by NumPy's letter.
LETTERS = {
    "bool": "?", "char": "b", "short": "h", "int": "i", "long": "q", "uchar": "B", "ushort": "H",
    "uint": "I", "ulong": "Q", "half": "e", "float": "f", "double": "d",
}  # fmt: skip


@pytest.mark.parametrize("name", LETTERS)
def test_the_names_of_c_are_dtypes(name: str) -> None:
    """As an attribute and as a text alike; under NumPy's names a text is NumPy's."""
    t = getattr(dtypes, name)
    assert t.numpy == np.dtype(LETTERS[name])
    x = uopc.param("x", (2,), name)
    assert x.dtype is t and uopc.zeros((2,), name).dtype is t and (x * 1).cast(name).dtype is t
    assert uopc.constant([1, 0], name).dtype is t and x.bitcast(name).dtype is t
    if name in ("float", "int", "uint", "double", "half", "bool"):
        assert unp.zeros(2, dtype=name).dtype.numpy == np.dtype(name)


def test_classes_of_python_are_those_of_numpy() -> None:
    kinds = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool_}
    for kind, t in kinds.items():
        assert uopc.param("x", (2,), kind).dtype is t


def test_no_other_name_is_a_dtype() -> None:
    with pytest.raises(AttributeError, match="no attribute 'flaot'"):
        dtypes.flaot  # noqa: B018
    assert dtypes.by_name("f32x8").lanes == 8  # the builtin `int` is not hidden


def test_sets_of_ops() -> None:
    group = uopc.GroupOp
    assert {Ops.NEG, Ops.SIN} <= group.Unary and Ops.CAST in group.Elementwise - group.ALU
    assert group.Ternary == {Ops.WHERE, Ops.MULACC}
    assert group.ALU - group.Unary - group.Binary - group.Ternary == {Ops.DOT4, Ops.DOT2}  # 2 or 3
    assert group.Comparison == {Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE}
    assert group.Buffer == {Ops.PARAM, Ops.BUFFER, Ops.DATA}
    assert {Ops.RESHAPE, Ops.PAD} <= group.Movement and not group.Movement & group.ALU
    assert group.Irreducible < group.All
    fires = PatternMatcher([(UPat(group.Commutative, name="u"), lambda u: u.src[0])])
    x, y = uopc.variable("x", 0, 9), uopc.variable("y", 0, 9)
    assert graph_rewrite(x + y, fires) is x and graph_rewrite(x // y, fires) is x // y


@pytest.mark.parametrize("op", sorted(uopc.GroupOp.Binary, key=lambda op: op.name), ids=str)
def test_the_laws_of_binary_ops_hold(op: Op) -> None:
    """Tried on small integers; where a law fails, the op is not in the law's set."""
    if op.fold is None:
        assert op not in uopc.GroupOp.Commutative | uopc.GroupOp.Idempotent
        return
    f, some = op.fold, range(-4, 5)
    pairs = list(itertools.product(some, some))
    commutes = all(f(a, b) == f(b, a) for a, b in pairs)
    associates = all(f(f(a, b), c) == f(a, f(b, c)) for a, b in pairs for c in some)
    idempotent = all(f(a, a) == a for a in some)
    assert (op in uopc.GroupOp.Commutative) == commutes
    assert (op in uopc.GroupOp.Associative) == (commutes and associates)
    assert (op in uopc.GroupOp.Idempotent) == (idempotent and op.dtype != "bool")


def test_kinds_of_ranges() -> None:
    kinds = get_args(AxisKind)
    assert vars(uopc.AxisType) == {kind.upper(): kind for kind in kinds}
    r = UOp.range(8, 0, uopc.AxisType.REDUCE)
    assert r.arg.kind == "reduce" and uopc.parse(uopc.print_graph(r)) is r


def test_walks() -> None:
    a, b = uopc.variable("a", 0, 9), uopc.variable("b", 0, 9)
    product = a * b
    u = product + a
    assert list(u.toposort())[-1] is u
    assert u.backward_slice == dict.fromkeys((a, b, product))
    assert list(u.get_consumer_map()) == list(u.toposort())
    assert {s: list(users) for s, users in u.get_consumer_map().items()} == {
        a: [product, u], b: [product], product: [u], u: [],
    }  # fmt: skip
    deep = a
    for _ in range(5000):
        deep = UOp(Ops.NEG, None, (deep,))
    assert len(deep.backward_slice) == len(deep.get_consumer_map()) - 1 == 5000


def test_facts_of_a_node() -> None:
    x = uopc.param("x", (2, 3))
    assert x.T.reshape(6).base is x and x.base is x
    n = uopc.variable("n", 1, 9)
    assert x.numel() == 6 and uopc.param("y", (n, 4)).numel() is n * 4
    assert (x + 1).device is None
    assert (x.copy("cuda:1") + 1).device == "cuda:1"
    assert (x.copy("cuda:1").sum().copy("cpu") + 1).device == "cpu"


def test_a_barrier_between_threads_of_a_block() -> None:
    o, x = uopc.kernel_param(0, (8,), name="o"), uopc.kernel_param(1, (8,), name="x")
    tile = UOp(Ops.BUFFER, dtypes.float, (), BufferArg(0, (8,), space="local"))
    i, j = UOp.range(8, 0, "local"), UOp.range(8, 1, "local")
    filled = tile[i].store(x[i] + 1).end(i).barrier()
    kernel = o[j].store(tile.after(filled)[7 - j]).end(j).sink(name="turned")
    given, result = np.arange(8, dtype="f4"), np.empty(8, "f4")
    with module.installed("sm_90"):
        program = uopc.compile(kernel, device="cuda")
        program(result, given)
    assert "bar.sync" in program.kernels[0].asm
    assert list(result) == list(given[::-1] + 1)
    with pytest.raises(uopc.Unsupported, match="BARRIER"):
        uopc.compile(kernel, device="cpu")


def test_a_lane_of_a_vector_and_a_vector_of_values() -> None:
    a, b = uopc.variable("a", 0, 9), uopc.variable("b", 0, 9)
    vector = UOp(Ops.STACK, None, (a, b))
    lanes = UOp(Ops.LANES, dtypes.index.vec(4), (), 4)
    assert UOp(Ops.LANE, None, (lanes,), 2).dtype is dtypes.index and vector.src == (a, b)
