"""Results that take the memory of what their launch reads: each element is read before it is
written, nobody reads it afterwards, and it happens where it can.

`trace` runs a linear kernel loop by loop and lists its reads and writes in order.
"""

from __future__ import annotations

import itertools
import re
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uopc
from tests.exporting import corpus as export_corpus
from tests.graphs import graphs
from tests.machines import described
from uopc.backends import in_place
from uopc.backends.plan import Repeat
from uopc.driver import lower_only
from uopc.ir.core import dtypes
from uopc.ir.core.args import Opt
from uopc.ir.core.evaluate import compute
from uopc.ir.core.ops import Ops
from uopc.ir.devices.launches import LaunchPlace
from uopc.program import planner
from uopc.tensor import creation

RNG = np.random.default_rng(5)
CC = shutil.which("gcc") or shutil.which("clang")


# ---------------------------------------------------------------- every read before its write
def trace(linear, variables):
    """(thread, "load" or "store", slot, element) in the order of a run, thread by thread."""
    found, items = [], linear.src
    closing = {u.src[0]: i for i, u in enumerate(items) if u.op in (Ops.END, Ops.ENDIF)}

    def value(u, env):
        if u not in env:
            if u.op is Ops.VARIABLE:
                env[u] = np.int64(variables[u.arg.name])
            elif u.op is Ops.CONST:
                env[u] = np.asarray(u.arg, u.dtype.numpy if u.dtype.kind == "bool" else np.int64)
            else:
                env[u] = compute(u, [value(s, env) for s in u.src])
        return env[u]

    def run(at, end, env, thread):
        while at < end:
            u = items[at]
            if u.op is Ops.RANGE:
                for i in range(int(value(u.src[0], dict(env)))):
                    own = i if u.arg.kind == "thread" else thread
                    run(at + 1, closing[u], {**env, u: np.int64(i)}, own)
                at = closing[u]
            elif u.op is Ops.IF:  # as if its condition held: more is read, and written
                run(at + 1, closing[u], env, thread)
                at = closing[u]
            elif u.op in (Ops.LOAD, Ops.STORE) and u.src[0].src[0].op is Ops.PARAM:
                first = int(value(u.src[0].src[1], dict(env)))
                lanes = max(u.src[0].dtype.lanes, u.src[u.op is Ops.STORE].dtype.lanes)
                lanes = max(lanes, u.dtype.lanes)
                slot = u.src[0].src[0].arg.slot
                found.extend([(thread, u.op.name, slot, first + i) for i in range(lanes)])
            at += 1

    run(0, len(items), {}, 0)
    return found


def problems(linear, pair, variables=None):
    """The reason why a result must not take the memory of a value, if there is one."""
    written: dict[int, int] = {}
    accesses = trace(linear, variables or {})
    for thread, op, slot, element in accesses:
        if op == "store" and slot == pair[0]:
            written[element] = thread
        if op == "load" and slot == pair[1] and element in written:
            return f"element {element} is read after it was written"
    for thread, op, slot, element in accesses:
        if op == "load" and slot == pair[1] and written.get(element, thread) != thread:
            return f"element {element} is read by one thread and written by another"
    return ""


def kernels(outputs, **options):
    """The kernels of a graph, as they were split and linear, with their pairs."""
    lowered = lower_only(outputs, verify=False, **options)
    for call, (linear, _) in zip(lowered.program.src, lowered.calls):
        if linear.op is Ops.LINEAR:
            yield linear, in_place.pairs(call.src[0], linear)


def checked(outputs, variables=None, **options):
    """The number of pairs in the kernels of a graph, each of which is checked."""
    count = 0
    for linear, pairs in kernels(outputs, **options):
        for pair in pairs:
            assert not problems(linear, pair, variables), (pair, linear.arg.opts)
            count += 1
    return count


def added(rows, columns, inner=24):
    """A product plus a value."""
    dims = (rows, inner), (inner, columns), (rows, columns)
    a, b, x = [uopc.param(name, d) for name, d in zip("abx", dims)]
    return (a @ b + x).relu()


@pytest.mark.parametrize("machine", ["laptop", "workstation"])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_plus_a_value(machine, threads):
    with described(machine):
        found = [checked(added(*n), threads=threads) for n in ((64, 32), (61, 48), (128, 64))]
        assert sum(found) >= 2
        for n in ((1, 1), (2, 3), (7, 5), (17, 31), (48, 61)):
            checked(added(*n), threads=threads)


OPTS = [
    [], [Opt("OVERLAP", 0, 8)], [Opt("SPLIT", 0, 8), Opt("VECTOR", 0, 8)],
    [Opt("BLOCK", 0, 16)], [Opt("SPLIT", 0, 16), Opt("UPCAST", 0, 16)],
    [Opt("PADTO", 0, 8), Opt("VECTOR", 0, 8)],
    [Opt("BLOCK", 0, 12), Opt("SPLIT", 1, 8)], [Opt("REPEAT", 0, 8)],
]  # fmt: skip


@pytest.mark.parametrize("opts", OPTS, ids=str)
def test_opts_that_do_an_element_twice(opts):
    """A vector that overlaps its neighbour would read elements that are written already."""
    x, y = uopc.param("x", (37,)), uopc.param("y", (37,))
    (found,) = kernels(x * y - 1.0, opts=tuple(opts))
    linear, pairs = found
    assert linear.arg.opts == tuple(opts)
    twice = problems(linear, (0, 1)) != ""
    assert twice == any(o.op in ("OVERLAP", "REPEAT") for o in opts)
    guarded = any(o.op == "PADTO" for o in opts)
    assert pairs == (() if twice or guarded else ((0, 1), (0, 2)))


QUICK = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def test_random_graphs():
    found = []

    @QUICK
    @given(case=graphs())
    def run(case):
        found.append(checked(case[0]))

    run()
    assert sum(found) > 20


@pytest.mark.parametrize("n", [1, 7, 8, 50])
def test_lengths_that_are_given_later(n):
    size = uopc.variable("n", 1, 50)
    x, y = uopc.param("x", (size, 8)), uopc.param("y", (size, 8))
    assert checked((x + y).relu(), {"n": n}) == 2


REFUSED = {
    "another element": lambda x: x + x[::-1],
    "a neighbour": lambda x: x[1:] + x[:-1],
    "the sum of all": lambda x: x / x.sum(),
    "another dtype of the same size": lambda x: x.cast(dtypes.int32),
    "a larger dtype": lambda x: x.cast(dtypes.float64),
    "a copy for each row": lambda x: x.expand(3, 64),
    "a part": lambda x: x[:32] * 2.0,
    "a place that is read": lambda x: x.take(uopc.param("i", (64,), dtypes.int32)),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_read_at_its_own_place(body):
    x = uopc.param("x", (64,))
    for linear, pairs in kernels(body(x)):
        slots = {u.arg.slot for u in linear.src if u.op is Ops.PARAM and u.dtype is x.dtype}
        assert not pairs or body is REFUSED["a part"], (pairs, slots)
        for pair in pairs:
            assert not problems(linear, pair)


# ---------------------------------------------------------------- nobody reads it afterwards
def storages(count):
    return [creation.buffer((16,), dtypes.float32) for _ in range(count)]


@st.composite
def programs(draw):
    """Calls that each write one storage and read some, a row of them that repeats, and pairs."""
    known, calls, over = [], [], {}
    for i in range(draw(st.integers(2, 9))):
        reads = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
        again = [u for u in known if u not in reads]
        fresh = not again or draw(st.integers(0, 5)) > 0
        result = storages(1)[0] if fresh else draw(st.sampled_from(again))
        known += [result] * fresh
        calls.append((0, [result, *reads]))
        over[i] = [(result, u) for u in reads]
    first = draw(st.integers(0, len(calls) - 1))
    row = Repeat(first, draw(st.integers(first + 1, len(calls))), 3)
    return calls, over, (row,) if draw(st.booleans()) else ()


@settings(QUICK, max_examples=400)
@given(case=programs())
def test_what_a_call_reads_is_still_there(case):
    calls, over, rows = case
    blocks, _ = planner.arena(calls, (), rows, over=over)
    offsets = {b.storage: b.offset for b in blocks}
    order = list(range(len(calls)))
    for row in rows:
        order[row.first : row.end] = list(range(row.first, row.end)) * 3
    memory = {}
    for i in order:
        result, *reads = calls[i][1]
        for u in reads:
            assert memory[offsets[u]] is u
        memory[offsets[result]] = result


def test_a_chain_takes_the_memory_of_one():
    made = storages(6)
    calls = [(0, [made[0]]), *[(0, [b, a]) for a, b in itertools.pairwise(made)]]
    over = {i: [(b, a)] for i, (a, b) in enumerate(itertools.pairwise(made), 1)}
    assert planner.arena(calls, (), over=over)[1] == 64
    assert planner.arena(calls, ())[1] == 128


def test_what_an_exchange_or_another_device_reads():
    """Calls 2 and 3 write over what call 0 wrote; call 1, an exchange, may still be running."""
    a, b, c, d = storages(4)
    calls = [(0, [a]), (0, [b, a]), (0, [c, a]), (0, [d, b, c])]
    over = {2: [(c, a)]}

    def shared(**options):
        blocks, _ = planner.arena(calls, (), over=over, **options)
        offsets = {block.storage: block.offset for block in blocks}
        return offsets[a] == offsets[c]

    assert shared() and not shared(busy={1: 3})
    one, two = [LaunchPlace(device, 0) for device in (0, 1)]
    assert shared(placed=(one, one, one, two)) and not shared(placed=(one, two, one, two))
    assert not shared(buckets={3: (c, d)})


# ---------------------------------------------------------------- it happens, and is right
def overwritten(program):
    """The launches that write to the memory of what they read."""
    places = [
        [(b.kind, b.offset, b.writes) for b in launch.buffers] for launch in program.launches
    ]
    return [i for i, found in enumerate(places) for kind, offset, writes in found
            if kind == "arena" and writes and (kind, offset, False) in found]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_blocks_with_a_value_beside_them(threads, dtype):
    """As in a residual network: each block adds what it got to what it made of that."""
    x = RNG.integers(-2, 3, (96, 64)).astype(dtype)
    weights = [RNG.integers(-1, 2, (64, 64)).astype(dtype) for _ in range(3)]


    t = dtypes.by_name(dtype)
    y = (uopc.param("x", x.shape, t) * 3).contiguous()
    for i in range(3):
        w = uopc.param(f"w{i}", (64, 64), t)
        inner = (y @ w).maximum(-3).minimum(3).contiguous()
        y = (inner @ w + y).maximum(-3).minimum(3).contiguous()
    program = uopc.compile(y.sum(0), threads=threads)
    wanted = x * 3
    for w in weights:
        wanted = np.clip(np.clip(wanted @ w, -3, 3) @ w + wanted, -3, 3)
    np.testing.assert_array_equal(program(x, *weights), wanted.sum(0))
    assert len(overwritten(program)) == (3 if t.is_float else 0)


def test_a_value_that_is_read_again_stays():
    x = uopc.param("x", (64,))
    y = (x * 2.0).contiguous()
    z = (y + 1.0).contiguous()
    program = uopc.compile((z * 3.0).contiguous() + y[::-1])
    a = np.arange(64, dtype="f4")
    np.testing.assert_array_equal(program(a), (a * 2 + 1) * 3 + a[::-1] * 2)
    assert 1 not in overwritten(program)


def test_the_value_is_read_in_two_ways_by_the_launch():
    """One of its arguments is the value itself, another the value in reverse."""
    x = uopc.param("x", (64,))
    y = (x * 2.0).contiguous()
    program = uopc.compile((y + y[::-1]).contiguous()[::-1] * 2.0)
    a = np.arange(64, dtype="f4")
    np.testing.assert_array_equal(program(a), np.full(64, 252.0, "f4"))
    assert not overwritten(program)


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
def test_c_does_not_promise_that_they_lie_apart(tmp_path):
    """gcc has the numbers of machine code, with sanitizers and with all that -O3 may assume."""
    x, w = uopc.param("x", (24, 32)), uopc.param("w", (32, 32))
    y = (x * 3.0).contiguous()
    inner = (y @ w).relu().contiguous()
    graph = (inner @ w + y).contiguous().sum(0)
    arrays = {"x": RNG.integers(-2, 3, x.shape), "w": RNG.integers(-1, 2, w.shape)}
    given = {name: a.astype("f4") for name, a in arrays.items()}
    uopc.export(graph, tmp_path / "f", kind="c", target="x86-64", examples=given)
    text = (tmp_path / "f.c").read_text("utf-8")
    heads = re.findall(r"^static void f_r_24_32_32\w*\(([^)]*)", text, re.M)
    assert sorted("restrict" in head for head in heads) == [False, True]
    for flags in (export_corpus.sanitized(str(CC)), ("-O3",)):
        wrong = export_corpus.compiled_and_run(tmp_path, str(CC), *flags)
        assert not wrong, wrong


def test_a_launch_by_hand_writes_over_what_it_reads():
    """It takes the memory that it has in the program, and no other that overlaps."""
    x, w = uopc.param("x", (16, 32)), uopc.param("w", (32, 32))
    value = (x * 2).contiguous()
    program = uopc.compile(((x @ w + value).contiguous() @ w).relu(), threads=1)
    (launch,) = [n for n in program.launches if len({str(b) for b in n.buffers}) < len(n.buffers)]
    given = [RNG.random(b.shape, np.float32) for b in launch.buffers]
    result, same = [i for i, b in enumerate(launch.buffers) if str(b).startswith("arena")][:2]
    apart = [a.copy() for a in given]
    launch.run(*apart)
    given[result] = given[same]
    launch.run(*given)
    np.testing.assert_array_equal(given[result], apart[result])
    memory = np.zeros(16 * 32 + 32, np.float32)
    given[same], given[result] = memory[: 16 * 32].reshape(16, 32), memory[32:].reshape(16, 32)
    with pytest.raises(uopc.UserError, match="overlaps"):
        launch.run(*given)
