"""Nodes, and what they are made of, never change: nobody sets, adds or deletes an attribute."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading

import pytest

import uopc
from uopc import Ops, PatternMatcher, UOp, UPat, dtypes
from uopc.ir.core import args
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op
from uopc.ir.core.uop import Fields

x = uopc.param("x", (4,))


def compiled():
    return uopc.compile(x.sin() * 3, optimize=False).kernels[0].uops


MADE = {
    "builder": lambda: x * 2,
    "raw constructor": lambda: UOp(Ops.NEG, None, (x,)),
    "constant": lambda: uopc.constant(3.5),
    "text": lambda: uopc.parse("%1 = param y : f32[3]\n%2 = exp %1"),
    "pickle": lambda: pickle.loads(pickle.dumps(x.exp() + 5)),
    "simplify": lambda: (uopc.variable("n", 0, 9) * 2 // 2).simplify(),
    "kernel of a program": compiled,
}


@pytest.mark.parametrize("how", MADE)
def test_nobody_changes_a_node(how):
    u = MADE[how]()
    before = uopc.print_graph(u)
    for name in (*Fields.__slots__, "note", "shape", "__class__"):
        with pytest.raises(uopc.UserError, match="UOps never change"):
            setattr(u, name, 3)
        with pytest.raises(uopc.UserError, match="UOps never change"):
            delattr(u, name)
    assert uopc.print_graph(u) == before and type(u) is UOp


def test_the_error_says_what_to_write():
    with pytest.raises(AttributeError, match=r"cannot set 'arg': .*use \.replace\(arg=\.\.\.\)"):
        x.arg = 3
    with pytest.raises(AttributeError, match=r"cannot delete 'op': .*\.replace\(op=\.\.\.\)"):
        del x.op
    with pytest.raises(AttributeError, match=r"cannot set 'note': UOps never change$"):
        x.note = 3
    with pytest.raises(AttributeError, match=r"UPats never change; use \.changed\(name=\.\.\.\)"):
        UPat.var("a").name = "b"


VALUES = [
    dtypes.float32, dtypes.int8.vec(4), Ops.ADD, UPat.var("a") * 2,
    PatternMatcher([(UPat.var("a") * 1, lambda a: a)]), uopc.P("rows"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_what_nodes_are_made_of_never_changes(value):
    names = [n for n in ("name", "bits", "doc", "rules", "ops", "cost") if hasattr(value, n)]
    for name in (*names, "note"):
        with pytest.raises(AttributeError):
            setattr(value, name, 3)
        with pytest.raises(AttributeError):
            delattr(value, name)


def test_every_arg_is_frozen():
    kinds = [c for c in vars(args).values() if dataclasses.is_dataclass(c)]
    assert len(kinds) > 10
    assert all(c.__dataclass_params__.frozen for c in kinds)


def test_copies_are_the_same_node_and_equal_patterns():
    y = x.exp() * 3
    assert copy.copy(y) is y and copy.deepcopy([y])[0] is y and pickle.loads(pickle.dumps(y)) is y
    for t in (dtypes.float32, dtypes.float32.vec(8), Ops.MUL):
        assert copy.copy(t) is t and copy.deepcopy(t) is t and pickle.loads(pickle.dumps(t)) is t
    pattern = UPat(Ops.MUL, dtypes.float32, (UPat.var("a"), UPat.cvar("c")))
    for other in (copy.copy(pattern), copy.deepcopy(pattern), pickle.loads(pickle.dumps(pattern))):
        assert repr(other) == repr(pattern) and other.match(y) == pattern.match(y) != []


def test_facts_are_found_by_many_threads_at_once():
    made = []

    def build():
        u = uopc.param("t", (8, 8))
        for k in range(200):
            u = (u * float(k) + 1).exp()
        made.append((u, u.shape, u.sum().shape))

    threads = [threading.Thread(target=build) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 4 and {id(u) for u, _, _ in made} == {id(made[0][0])}
    assert {shapes[1:] for shapes in made} == {((8, 8), ())}


def test_classes_say_what_they_are():
    assert issubclass(UOp, Fields) and isinstance(x, UOp) and type(x) is UOp
    assert isinstance(dtypes.float32, DType) and isinstance(Ops.ADD, Op)
    with pytest.raises(uopc.InvalidIR):
        UOp("add")
