"""The PTX machine's memory, warps and control flow: what it computes, and what it refuses."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ptx import machine, parse
from tests.ptx.memory import Memory

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{
  .reg .pred %p<20>; .reg .b16 %rs<40>; .reg .b32 %r<99>; .reg .b64 %rd<40>;
  .shared .align 16 .b8 sm[1024];
  .local .align 8 .b8 depot[16];
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %rd4, %r4, 4;
  add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4;
  mov.u32 %r5, sm; shl.b32 %r6, %r1, 2; add.s32 %r7, %r5, %r6;
"""


def execute(body, *arrays, blocks=1, threads=32):
    """%rd5 and %rd6 point at the thread's word of the first two arrays, %r7 at its shared one."""
    kernel = parse.parse(HEAD + body + "\nret; }")["k"]
    memory = Memory()
    places = [memory.place(a) for a in arrays] + [0] * (3 - len(arrays))
    args = machine.pack(kernel, places)
    machine.run(kernel, (blocks, 1, 1), (threads, 1, 1), args, memory)


def words(n, start=0):
    return np.arange(start, start + n, dtype=np.uint32)


# ---------------------------------------------------------------- control flow
def test_lanes_that_part_meet_again():
    """Each thread sums 0..i-1 in a loop of its own length, then all take one way."""
    out = np.zeros(128, np.uint32)
    execute("""
      mov.b32 %r10, 0; mov.b32 %r11, 0;
      setp.eq.u32 %p1, %r4, 0;
      @%p1 bra $done;
    $loop:
      add.s32 %r10, %r10, %r11; add.s32 %r11, %r11, 1;
      setp.lt.u32 %p2, %r11, %r4;
      @%p2 bra $loop;
    $done:
      bar.sync 0;
      st.global.b32 [%rd5], %r10;""", out, blocks=4)  # fmt: skip
    assert out.tolist() == [i * (i - 1) // 2 for i in range(128)]


def test_guards_and_tables():
    out = np.zeros(32, np.uint32)
    execute("""
      and.b32 %r10, %r1, 3; mov.b32 %r11, 9;
      brx.idx %r10, $table;
      $table: .branchtargets $a, $b, $c, $c;
    $a: mov.b32 %r11, 1; bra.uni $end;
    $b: mov.b32 %r11, 2; bra.uni $end;
    $c: mov.b32 %r11, 3;
    $end:
      setp.gt.u32 %p1, %r1, 15; @%p1 add.s32 %r11, %r11, 10; @!%p1 add.s32 %r11, %r11, 20;
      st.global.b32 [%rd5], %r11;""", out)  # fmt: skip
    assert out.tolist() == [(1, 2, 3, 3)[i % 4] + (10 if i > 15 else 20) for i in range(32)]


def test_a_barrier_that_not_all_reach():
    body = "setp.gt.u32 %p1, %r1, 7; @%p1 bra $end; bar.sync 0; $end: st.global.b32 [%rd5], %r1;"
    with pytest.raises(parse.PtxError, match=r"thread \(0, 0, 0\).*waits.*thread \(8, 0, 0\)"):
        execute(body, words(32))


# ---------------------------------------------------------------- memory
@pytest.mark.parametrize(
    "body, words_of_error",
    [("st.global.b32 [%rd5+4], %r1;", r"thread \(31, 0, 0\) of block \(3, 0, 0\).*out of bounds"),
     ("add.s64 %rd7, %rd5, 2; ld.global.b32 %r9, [%rd7];", "not a multiple of 4"),
     ("ld.global.v2.b32 {%r9, %r10}, [%rd5];", r"thread \(1, 0, 0\).*not a multiple of 8"),
     ("ld.global.nc.b32 %r9, [%rd5]; st.global.b32 [%rd5], %r9;", "ld.global.nc"),
     ("ld.shared.b32 %r9, [%r7+1024];", "outside of the 1024"),
     ("ld.local.b32 %r9, [depot+16];", "16 bytes of local"),
     ("mov.b64 %rd7, 0; ld.global.b32 %r9, [%rd7];", "below every allocation"),
     ("st.global.b32 [%rd5], undeclared;", "not declared"),
     ("$l: bra.uni $l;", "does not end")],
)  # fmt: skip
def test_faults_name_the_place(body, words_of_error, monkeypatch):
    monkeypatch.setattr(machine, "MOST_STEPS", 10_000)
    with pytest.raises(parse.PtxError, match=words_of_error):
        execute(body, words(128), blocks=4)


def test_spaces_and_generic_addresses():
    """Through local and shared memory by generic addresses, mixed in one instruction."""
    out = np.zeros(64, np.uint32)
    execute("""
      mov.b64 %rd10, depot; cvta.local.u64 %rd11, %rd10;
      cvt.u64.u32 %rd12, %r7; cvta.shared.u64 %rd13, %rd12;
      and.b32 %r8, %r1, 1; setp.eq.b32 %p1, %r8, 0;
      selp.b64 %rd14, %rd11, %rd13, %p1;
      st.b32 [%rd14], %r4; ld.b32 %r9, [%rd14];
      @%p1 ld.local.b32 %r10, [depot]; @!%p1 ld.shared.b32 %r10, [%r7];
      add.s32 %r11, %r9, %r10; st.global.b32 [%rd5], %r11;""", out, blocks=2)  # fmt: skip
    assert out.tolist() == [2 * i for i in range(64)]


def test_vectors_and_narrow_values():
    data, out = np.arange(256, dtype=np.uint8), np.zeros(128, np.int32)
    execute("""
      ld.global.v4.b8 {%rs1, %rs2, %rs3, %rs4}, [%rd5];
      ld.global.s8 %r10, [%rd5+3];
      mul.wide.u32 %rd8, %r4, 16; add.s64 %rd9, %rd2, %rd8;
      cvt.u32.u16 %r11, %rs1; cvt.u32.u16 %r12, %rs2; cvt.u32.u16 %r13, %rs4;
      st.global.v4.b32 [%rd9], {%r11, %r12, %r13, %r10};""", data, out)  # fmt: skip
    rows = np.arange(128, dtype=np.uint8).reshape(32, 4)
    want = np.stack([rows[:, 0], rows[:, 1], rows[:, 3], rows[:, 3].view(np.int8)], 1)
    assert np.array_equal(out.reshape(32, 4), want)


@pytest.mark.parametrize("op, f", [("add", sum), ("min", min), ("max", max)])
def test_atomics(op, f):
    data, out = words(256, 7), np.array([5], np.uint32)
    execute(f"ld.global.b32 %r9, [%rd5]; atom.global.{op}.u32 %r10, [%rd2], %r9;", data, out,
            blocks=8)  # fmt: skip
    assert out[0] == f([5, *data.tolist()])


def test_atomic_add_counts_and_compare_and_swap():
    out, count = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    execute("""atom.acq_rel.gpu.global.add.u32 %r9, [%rd2], 1; fence.acq_rel.gpu;
      st.global.b32 [%rd5], %r9;
      atom.global.cas.b32 %r10, [%rd2], 64, 99; red.global.add.u32 [%rd2], 0;""",
            out, count, blocks=2)  # fmt: skip
    assert sorted(out.tolist()) == list(range(64)) and count[0] == 99


# ---------------------------------------------------------------- races
NEIGHBOUR = """
  add.s32 %r8, %r1, {d}; and.b32 %r8, %r8, {mask}; shl.b32 %r8, %r8, 2; add.s32 %r9, %r5, %r8;
  st.shared.b32 [%r7], %r4;
  {between}
  ld.shared.b32 %r10, [%r9];
  {behind}
  st.shared.b32 [%r7], %r10;
  {last}
  ld.shared.b32 %r11, [%r7]; st.global.b32 [%rd5], %r11;"""


@pytest.mark.parametrize(
    "threads, between, behind, error",
    [(64, "bar.sync 0;", "bar.sync 0;", ""),
     (64, "", "bar.sync 0;", "reads what another thread wrote"),
     (64, "bar.sync 0;", "", "writes what another thread read"),
     (32, "bar.warp.sync -1;", "bar.warp.sync -1;", ""),
     (32, "", "bar.warp.sync -1;", "reads what another thread wrote"),
     (32, "bar.warp.sync -1;", "", "writes what another thread read"),
     (64, "bar.warp.sync -1;", "bar.sync 0;", "reads what another thread wrote")],
)  # fmt: skip
def test_races(threads, between, behind, error):
    d = 33 if threads == 64 else 1
    body = NEIGHBOUR.format(d=d, mask=threads - 1, between=between, behind=behind, last="")
    out = np.zeros(threads * 2, np.uint32)
    if error:
        with pytest.raises(parse.PtxError, match=error):
            execute(body, out, blocks=2, threads=threads)
        return
    execute(body, out, blocks=2, threads=threads)
    want = [(i + d) % threads + threads * b for b in range(2) for i in range(threads)]
    assert out.tolist() == want


def test_two_writers():
    with pytest.raises(parse.PtxError, match="different values at once"):
        execute("st.shared.b32 [sm], %r1;", words(32))
    with pytest.raises(parse.PtxError, match="writes what another thread wrote"):
        execute("st.shared.b32 [%r7], %r1; mov.b32 %r9, 1; st.shared.b32 [sm+4], %r9;", words(32))


SWAP = """
  xor.b32 %r8, %r4, {other}; mul.wide.u32 %rd8, %r8, 4; add.s64 %rd9, %rd1, %rd8;
  ld.global.b32 %r9, [%rd9];
  {between}
  st.global.b32 [%rd5], %r9;"""


@pytest.mark.parametrize(
    "other, between, error",
    [(1, "bar.sync 0;", ""), (1, "", "writes what another thread of this launch reads"),
     (32, "bar.sync 0;", "writes what another thread of this launch reads"), (0, "", "")],
)  # fmt: skip
def test_races_in_global_memory(other, between, error):
    """Neighbours swap their elements: in one block with a barrier, between blocks not at all."""
    data = words(64)
    body = SWAP.format(other=other, between=between)
    if error:
        with pytest.raises(parse.PtxError, match=error):
            execute(body, data, blocks=2)
        return
    execute(body, data, blocks=2)
    assert data.tolist() == [i ^ other for i in range(64)]


def test_reading_what_another_block_wrote():
    with pytest.raises(parse.PtxError, match="reads what another thread of this launch wrote"):
        execute("st.global.b32 [%rd5], %r1; bar.sync 0; ld.global.b32 %r9, [%rd1];", words(64),
                blocks=2)  # fmt: skip
    with pytest.raises(parse.PtxError, match="different values at once"):
        execute("st.global.b32 [%rd1], %r1;", words(64))
    execute("mov.b32 %r9, 7; st.global.b32 [%rd1], %r9;", words(64), blocks=2)


COPY = """
  mul.wide.u32 %rd8, %r1, 16; add.s64 %rd9, %rd1, %rd8;
  shl.b32 %r8, %r1, 4; add.s32 %r9, %r5, %r8;
  cp.async.cg.shared.global [%r9], [%rd9], 16{size};
  cp.async.commit_group;
  {wait}
  {barrier}
  xor.b32 %r10, %r8, 16; add.s32 %r11, %r5, %r10;
  ld.shared.b32 %r12, [%r11];
  st.global.b32 [%rd6], %r12;"""


@pytest.mark.parametrize(
    "wait, barrier, error",
    [("cp.async.wait_group 0;", "bar.sync 0;", ""), ("cp.async.wait_all;", "bar.sync 0;", ""),
     ("cp.async.wait_group 1;", "bar.sync 0;", "has not been waited for"),
     ("", "bar.sync 0;", "has not been waited for"),
     ("cp.async.wait_group 0;", "", "reads what another thread wrote")],
)  # fmt: skip
def test_asynchronous_copies(wait, barrier, error):
    data, out = words(128), np.zeros(32, np.uint32)
    body = COPY.format(size="", wait=wait, barrier=barrier)
    if error:
        with pytest.raises(parse.PtxError, match=error):
            execute(body, data, out)
        return
    execute(body, data, out)
    assert out.tolist() == [4 * (i ^ 1) for i in range(32)]


def test_a_short_copy_is_filled_with_zeros():
    data, out = words(128, 1), np.zeros(32, np.uint32)
    body = COPY.format(size=", %r13", wait="cp.async.wait_all;", barrier="bar.sync 0;")
    execute("setp.lt.u32 %p1, %r1, 4; selp.b32 %r13, 16, 0, %p1;" + body, data, out)
    assert out.tolist() == [1 + 4 * (i ^ 1) if i < 4 else 0 for i in range(32)]


# ---------------------------------------------------------------- warps
def shuffled(how, lane, b, c):
    limit, segment = c & 31, c >> 8 & 31
    most = lane & segment | limit & ~segment
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b,
              "idx": lane & segment | b & ~segment}[how]  # fmt: skip
    fine = source >= most if how == "up" else source <= most
    return (source if fine else lane), fine


@pytest.mark.parametrize("how", ["up", "down", "bfly", "idx"])
def test_shuffles(how):
    @settings(max_examples=12, deadline=None)
    @given(st.integers(0, 31), st.sampled_from([1, 2, 4, 8, 16, 32]))
    def check(b, width):
        c = (32 - width) << 8 | (0 if how == "up" else 31)
        out = np.zeros(64, np.uint32)
        execute(f"""shfl.sync.{how}.b32 %r9|%p1, %r4, {b}, {c}, -1;
          selp.b32 %r10, 1000, 0, %p1; add.s32 %r9, %r9, %r10; st.global.b32 [%rd5], %r9;""",
                out, threads=64)  # fmt: skip
        want = []
        for i in range(64):
            source, fine = shuffled(how, i % 32, b % 32, c)
            want.append(i // 32 * 32 + source + 1000 * fine)
        assert out.tolist() == want

    check()


def test_a_shuffle_without_all_its_lanes():
    body = """setp.lt.u32 %p1, %r1, 8; @%p1 bra $end;
      shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1; $end: st.global.b32 [%rd5], %r1;"""
    with pytest.raises(parse.PtxError, match="elsewhere"):
        execute(body, words(32))
    execute(body.replace("-1;", "0xFFFFFF00;"), words(32))


def test_votes_and_reductions():
    out = np.zeros(64, np.uint32)
    execute("""
      setp.gt.u32 %p1, %r4, 40;
      vote.sync.ballot.b32 %r9, %p1, -1; vote.sync.any.pred %p2, %p1, -1;
      vote.sync.all.pred %p3, %p1, -1; redux.sync.add.u32 %r10, %r4, -1;
      redux.sync.max.s32 %r11, %r4, -1; activemask.b32 %r12;
      selp.b32 %r13, 1, 0, %p2; selp.b32 %r14, 2, 0, %p3;
      xor.b32 %r9, %r9, %r12; add.s32 %r15, %r10, %r11; add.s32 %r15, %r15, %r13;
      add.s32 %r15, %r15, %r14; add.s32 %r15, %r15, %r9; st.global.b32 [%rd5], %r15;""",
            out, threads=64)  # fmt: skip
    for warp in range(2):
        mine = range(32 * warp, 32 * warp + 32)
        ballot = sum(1 << (i % 32) for i in mine if i > 40) ^ 0xFFFFFFFF
        want = sum(mine) + max(mine) + (1 if max(mine) > 40 else 0) + ballot
        assert set(out[32 * warp : 32 * warp + 32].tolist()) == {want & 0xFFFFFFFF}


# Where element i of a lane's fragment lies, as the PTX manual has it: g = lane / 4, t = lane % 4.
def _two(i, g, t):
    return g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)


def _four(i, g, t):
    return g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)


def _one(i, g, t):
    return g + 8 * (i % 2), t + 4 * (i // 2)


def _column(packed):
    """The second matrix: column g, `packed` neighbours of k in a register."""
    return lambda i, g, t: (packed * t + i % packed + 4 * packed * (i // packed), g)


MMA = [
    ("m16n8k16", "f32", "f16", np.float16, 16, _two, _column(2)),
    ("m16n8k16", "f32", "bf16", ml_dtypes.bfloat16, 16, _two, _column(2)),
    ("m16n8k8", "f32", "f16", np.float16, 8, _two, _column(2)),
    ("m16n8k8", "f32", "tf32", np.float32, 8, _one, _column(1)),
    ("m16n8k4", "f32", "tf32", np.float32, 4, _one, _column(1)),
    ("m16n8k32", "s32", "s8", np.int8, 32, _four, _column(4)),
    ("m16n8k32", "f32", "e4m3", ml_dtypes.float8_e4m3fn, 32, _four, _column(4)),
]


def fragments(matrix, place, count, dtype):
    """(32, registers): what each lane holds of a matrix."""
    out = np.zeros((32, count), dtype)
    for lane in range(32):
        for i in range(count):
            out[lane, i] = matrix[place(i, lane // 4, lane % 4)]
    return np.ascontiguousarray(out).view(np.uint32)


@pytest.mark.parametrize("shape, acc, kind, dtype, k, at_a, at_b", MMA, ids=lambda v: str(v)[:12])
def test_matrix_products(shape, acc, kind, dtype, k, at_a, at_b):
    random = np.random.default_rng(5)
    a, b = (random.integers(-8, 8, s).astype(dtype) for s in ((16, k), (k, 8)))
    wide = np.int32 if acc == "s32" else np.float32
    c = random.integers(-50, 50, (16, 8)).astype(wide)
    fa, fb = fragments(a, at_a, 16 * k // 32, dtype), fragments(b, at_b, 8 * k // 32, dtype)
    fc = fragments(c, _two, 4, wide)
    na, nb = fa.shape[1], fb.shape[1]
    data = np.concatenate([fa, fb, fc], axis=1)
    total = na + nb + 4
    out = np.zeros((32, 4), wide)
    loads = "".join(f"ld.global.b32 %r{20 + i}, [%rd9+{4 * i}];" for i in range(total))
    regs = [f"%r{20 + i}" for i in range(total)]
    lists = [", ".join(regs[x:y]) for x, y in ((0, na), (na, na + nb), (na + nb, total))]
    execute(f"""mul.wide.u32 %rd8, %r1, {4 * total}; add.s64 %rd9, %rd1, %rd8; {loads}
      mma.sync.aligned.{shape}.row.col.{acc}.{kind}.{kind}.{acc}
        {{%r60, %r61, %r62, %r63}}, {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}};
      mul.wide.u32 %rd8, %r1, 16; add.s64 %rd9, %rd2, %rd8;
      st.global.v4.b32 [%rd9], {{%r60, %r61, %r62, %r63}};""", data, out)  # fmt: skip
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    assert np.array_equal(out.view(np.uint32), fragments(want.astype(wide), _two, 4, wide))


@pytest.mark.parametrize("turned", [False, True])
def test_ldmatrix_and_stmatrix(turned):
    """ldmatrix gives each lane its elements, and stmatrix puts them back."""
    random = np.random.default_rng(6)
    data = random.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    out, back = np.zeros((32, 4), np.uint32), np.zeros((4, 8, 8), np.uint16)
    trans = ".trans" if turned else ""
    execute(f"""
      mul.wide.u32 %rd8, %r1, 16; add.s64 %rd9, %rd1, %rd8; shl.b32 %r8, %r1, 4;
      add.s32 %r9, %r5, %r8;
      ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd9];
      st.shared.v4.b32 [%r9], {{%r10, %r11, %r12, %r13}};
      bar.sync 0;
      ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r9];
      add.s64 %rd10, %rd2, %rd8; st.global.v4.b32 [%rd10], {{%r20, %r21, %r22, %r23}};
      stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r9+512], {{%r20, %r21, %r22, %r23}};
      bar.sync 0;
      ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r9+512];
      add.s64 %rd11, %rd3, %rd8; st.global.v4.b32 [%rd11], {{%r10, %r11, %r12, %r13}};""",
            data, out, back)  # fmt: skip
    for lane in range(32):
        for m in range(4):
            source = data[m].T if turned else data[m]
            low, high = (int(source[lane // 4, 2 * (lane % 4) + e]) for e in range(2))
            assert int(out[lane, m]) == low | high << 16
    assert np.array_equal(back, data)


# ---------------------------------------------------------------- text
def test_parse_errors():
    with pytest.raises(parse.PtxError, match=r"\.func"):
        parse.parse(".extern .func f; " + HEAD + "ret; }")
    with pytest.raises(parse.PtxError, match="not an operand"):
        parse.parse(HEAD + "add.s32 %r1, %r2, (3); ret; }")
    kernel = parse.parse(re.sub(r"\)\n\{", ")\n.reqntid 64, 2, 1\n{", HEAD) + "ret; }")["k"]
    assert kernel.block == (64, 2, 1) and kernel.shared_bytes == 1024 and kernel.local_bytes == 16
    with pytest.raises(parse.PtxError, match="wants blocks of"):
        machine.run(kernel, (1, 1, 1), (64, 1, 1), bytes(24), Memory())


def test_a_table_of_constants():
    text = HEAD.replace(".visible", ".global .align 4 .b32 table[4] = {10, 20, 30, 40};\n.visible")
    kernel = parse.parse(text + """and.b32 %r8, %r1, 3; mul.wide.u32 %rd8, %r8, 4;
      mov.b64 %rd9, table; add.s64 %rd9, %rd9, %rd8; ld.global.b32 %r9, [%rd9];
      st.global.b32 [%rd5], %r9; ret; }""")["k"]  # fmt: skip
    memory, out = Memory(), np.zeros(32, np.uint32)
    args = machine.pack(kernel, [memory.place(out), 0, 0])
    machine.run(kernel, (1, 1, 1), (32, 1, 1), args, memory)
    assert out.tolist() == [10, 20, 30, 40] * 8
