"""compile(rules=...): the user's rules after every pass, a target's own, ctx, identity, errors."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from typing import Any

import numpy as np
import pytest

import uopc
from uopc import Ops, PatternMatcher, UOp, UPat
from uopc.errors import InvalidIR, UserError
from uopc.passes import PIPELINE
from uopc.program import cpu, rules
from uopc.program.program import Program

STAGES = [p.name for _, p in PIPELINE]
X = np.arange(37, dtype="f4")
SIX = UPat(Ops.MUL, src=[UPat.var("v"), UPat.const(None, 6.0)], name="u")


def graph() -> UOp:
    return uopc.param("x", (37,)) * 6.0


def with_seven(u: UOp, v: UOp) -> UOp:
    return u.replace(src=(v, v.const_like(7.0)))


SEVENS = PatternMatcher([(SIX, with_seven)])


def result(given: Any, **more: Any) -> Any:
    return uopc.compile(graph(), rules=given, verify=True, **more)(X)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.few(22)
def test_rules_rewrite_the_result_of_every_pass(stage: str, optimize: bool) -> None:
    np.testing.assert_array_equal(result({stage: SEVENS}, optimize=optimize), X * 7)


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_sees_the_stage_and_the_target(stage: str) -> None:
    seen = set()

    def look(node: UOp, ctx: Any) -> None:
        seen.add((ctx.stage, ctx.target.device, node in ctx.kernel.toposort()))

    result({stage: look})
    assert seen == {(stage, "cpu", True)}


def test_rules_may_be_a_rule_a_list_or_a_function() -> None:
    pair = (SIX, with_seven)

    def function(u: UOp, ctx: Any) -> UOp | None:
        six = u.op is Ops.MUL and u.src[1].op is Ops.CONST and 6.0 in np.atleast_1d(u.src[1].arg)
        return u.replace(src=(u.src[0], u.src[0].const_like(7.0))) if six else None

    for given in (SEVENS, pair, [pair], [SEVENS], function, [function, SEVENS]):
        np.testing.assert_array_equal(result(given), X * 7)
        np.testing.assert_array_equal(result({"devectorize": given}), X * 7)
    for nothing in ([], {}, {"expand": []}, None):
        np.testing.assert_array_equal(result(nothing), X * 6)


def test_rules_of_two_stages_run_in_the_order_of_the_passes() -> None:
    def times(before: float, after: float) -> Any:
        six = UPat(Ops.MUL, src=[UPat.var("v"), UPat.const(None, before)], name="u")
        return six, lambda u, v: u.replace(src=(v, v.const_like(after)))

    given = {"expand": times(7.0, 8.0), "rangeify": times(6.0, 7.0)}
    np.testing.assert_array_equal(result(given), X * 8)
    np.testing.assert_array_equal(
        result({"expand": times(6.0, 7.0), "rangeify": times(7.0, 8.0)}), X * 7
    )


def test_rules_reach_functions_that_are_scheduled_once() -> None:
    @uopc.function(precompile=True)
    def six(v: UOp) -> UOp:
        return v * 6.0

    for stage in ("canonicalize", "rangeify", "expand"):
        f = uopc.compile(six(uopc.param("x", (37,))), rules={stage: SEVENS}, verify=True)
        np.testing.assert_array_equal(f(X), X * 7)


def test_rules_reach_kernels_written_by_hand_and_gpus() -> None:
    o, x = uopc.kernel_param(0, (37,)), uopc.kernel_param(1, (37,))
    kernel = o.store(x * 6.0).sink(name="k")
    out = np.zeros(37, "f4")
    uopc.compile(kernel, rules={"flatten-indices": SEVENS}, verify=True)(out, X)
    np.testing.assert_array_equal(out, X * 7)
    ptx = uopc.compile(graph(), rules={"place-threads": SEVENS}, device="cuda:sm_80").kernels[0].asm
    assert "0f40E00000" in ptx and "0f40C00000" not in ptx


_PRODUCT = UPat(Ops.MUL, src=(UPat.var("v"), UPat.var("w")))
FUSING = (UPat(Ops.ADD, src=(_PRODUCT, UPat.var("u"))), lambda v, w, u: v.alu(Ops.MULACC, w, u))


def _fused(dtype: Any, stage: str, cpu: str = "") -> Any:
    a, b, c = (uopc.param(n, (37,), dtype) for n in "abc")
    with uopc.options(target_cpu=cpu):
        return uopc.compile(a * b + c, inputs=list("abc"), rules={stage: FUSING})


@pytest.mark.machine("laptop")  # with FMA
@pytest.mark.parametrize("dtype", [uopc.dtypes.int32, uopc.dtypes.float32])
def test_a_late_rule_may_make_a_mulacc_of_any_dtype(dtype: Any) -> None:
    f = _fused(dtype, "apply-rules")
    assert "mulacc" in f.stages["apply-rules"]
    x, y, z = (np.arange(i, i + 37).astype(f.inputs[0].dtype.name) for i in range(3))
    np.testing.assert_array_equal(f(x, y, z), x * y + z)


def test_a_late_rule_makes_no_mulacc_of_floats_without_fma() -> None:
    x, y, z = (np.arange(i, i + 37).astype("float32") for i in range(3))
    early = _fused(uopc.dtypes.float32, "expand", "x86-64")
    np.testing.assert_array_equal(early(x, y, z), x * y + z)
    with pytest.raises(uopc.Unsupported, match=r"calls fmaf: .*no rule of a later pass"):
        _fused(uopc.dtypes.float32, "apply-rules", "x86-64")


def test_a_late_rule_that_makes_what_has_no_instruction_is_told_where_to_go() -> None:
    rule = (UPat(Ops.SUB, name="u"), lambda u: u.src[0].alu(Ops.SIN))
    difference = uopc.param("x", (8,)) - uopc.param("y", (8,))
    with pytest.raises(uopc.Unsupported, match=r"no code for Ops.SIN .*no rule of a later pass"):
        uopc.compile(difference, rules={"decompose": rule})


def test_a_pickle_and_the_stages_keep_the_rules() -> None:
    f = uopc.compile(graph(), rules={"rangeify": SEVENS}, optimize=False)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(f))(X), X * 7)
    assert "7.0:f32" in f.stages["rangeify"] and "7.0:f32" not in f.stages["place-stages"]


def test_a_target_brings_rules_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's are tried first, at a node that both fit."""

    machine = cpu.BACKEND.target

    def target(device: str, name: str) -> Any:
        return dataclasses.replace(machine(device, name), rules={"expand": SEVENS})

    backend = dataclasses.replace(cpu.BACKEND, target=target)
    monkeypatch.setattr(cpu, "BACKEND", backend)
    np.testing.assert_array_equal(result(None), X * 7)
    eight = (SIX, lambda u, v: u.replace(src=(v, v.const_like(8.0))))
    np.testing.assert_array_equal(result({"expand": eight}), X * 8)
    np.testing.assert_array_equal(result(eight), X * 7)


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize("stage", STAGES)
def test_endless_rules_are_named_with_their_cycle(stage: str) -> None:
    swapped = PatternMatcher(
        [
            (
                UPat(Ops.MUL, src=(UPat.var("a"), UPat.var("b"))),
                lambda a, b: UOp(Ops.MUL, a.dtype, (b, a)),
            ),
        ]
    )
    with pytest.raises(uopc.Error, match=f"rules of {stage} never ends at .*cycle of rules: ") as e:
        result({stage: swapped})
    assert "test_rules.py" in str(e.value)


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(UserError, match="unknown stage 'lower'; choose canonicalize, narrow"):
        result({"lower": SEVENS})
    with pytest.raises(TypeError, match="rules must be a PatternMatcher, a rule, a list"):
        result({"expand": 3})
    with pytest.raises(TypeError, match="must take one argument, the node, and maybe ctx"):
        result(lambda a, b: None)


WRONG: dict[str, tuple[str, Any]] = {
    "invariant result-dtype": (
        "expand",
        lambda u: (
            u.replace(src=(u.src[0], u.src[1].cast(uopc.dtypes.float64)))
            if u.op is Ops.STORE
            else None
        ),
    ),
    "invariant in-bounds": (
        "flatten-indices",
        lambda u: (
            u.replace(src=(u.src[0], u.src[1] + 9))
            if u.op is Ops.INDEX and u.src[1].op is Ops.RANGE
            else None
        ),
    ),
    "is new: rules must not add arguments": (
        "rangeify",
        lambda u: uopc.param("y", (37,)) if u.op is Ops.PARAM else None,
    ),
    "expected .'float32.37.'": (
        "canonicalize",
        lambda u: u.src[0][:5] if u.op is Ops.MUL else None,
    ),
    "not a UOp": ("optimize", lambda u: 3),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_result_is_an_error_without_verify_too(message: str) -> None:
    stage, function = WRONG[message]
    with pytest.raises(uopc.Error, match=message):
        uopc.compile(graph(), rules={stage: function})


def test_a_rule_that_removes_an_end_is_an_error() -> None:
    end = UPat(Ops.END, src=(UPat.var("e"),), allow_any_len=True)
    with pytest.raises(InvalidIR, match="opened and never closed"):
        uopc.compile(graph(), rules={"rangeify": (end, lambda e: e)})


# ---------------------------------------------------------------- identity
FACTOR = 2.0


def reads_a_global(v: UOp) -> UOp:
    return v * FACTOR


def calls_another(v: UOp) -> UOp:
    return reads_a_global(v)


def test_the_identity_follows_code_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(function: Any, pattern: UPat = UPat.var("v") * 6.0) -> str:  # noqa: B008
        found = rules.identity(rules.by_stage({"expand": (pattern, function)}))
        assert found is not None
        return found

    def captured(n: Any) -> Any:
        return lambda v: v * n

    functions = [
        captured(2.0),
        captured(2),
        captured(True),
        captured((1, 2)),
        captured(Ops.ADD),
        captured(uopc.variable("n", 0, 3)),
        lambda v: v + 1,
        lambda v: v + 2,
        lambda v: v - 1,
        lambda v, w=3: v,
        lambda v, w=4: v,
        functools.partial(lambda v, w: v, w=1),
        functools.partial(lambda v, w: v, w=2),
        reads_a_global,
        calls_another,
    ]
    digests = [made(f) for f in functions]
    assert len(set(digests)) == len(functions)
    assert made(captured(2.0)) == digests[0] and made(reads_a_global) == digests[-2]
    assert made(captured(2.0), UPat.var("v") * 5.0) != digests[0]
    assert made(captured(2.0), UPat.var("v", uopc.dtypes.int32) * 6.0) != digests[0]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert made(reads_a_global) != digests[-2] and made(calls_another) != digests[-1]


class Callable:
    def __call__(self, v: UOp) -> None:
        return None


def test_what_may_change_unseen_has_no_identity() -> None:
    values: list[Any] = []

    def imports(v: UOp) -> None:
        import os

        return os.environ.get("A")  # type: ignore[return-value]

    unknown = [lambda v: values.append(v), Callable(), lambda v: pytest.skip(), imports]
    for function in unknown:
        assert rules.identity(rules.by_stage(function)) is None, function


def test_programs_with_different_rules_are_told_apart() -> None:
    programs: list[Program] = []
    for stage in ("rangeify", "expand"):
        for n in (2.0, 3.0):
            rule = (SIX, lambda u, v, n=n: u.replace(src=(v, v.const_like(n))))
            programs += [uopc.compile(graph(), rules={stage: rule}) for _ in range(2)]
    assert [float(f(X)[1]) for f in programs] == [2, 2, 3, 3] * 2
    assert [f.stats["cache"] for f in programs] == ["", "memory"] * 4


@pytest.mark.parametrize("stage", STAGES[STAGES.index("rangeify") :])
@pytest.mark.parametrize("op", [Ops.STORE, Ops.INDEX, Ops.BUFFER, Ops.PARAM])
def test_rules_that_lose_stores_or_storage_are_errors(stage: str, op: Any) -> None:
    """They read foreign memory, or an output that nothing wrote."""

    def lose(u: UOp) -> UOp | None:
        nothing = UOp(Ops.NOOP, uopc.dtypes.void)
        return None if u.op is not op else nothing if op is Ops.STORE else u.const_like(1)

    x = uopc.param("x", (37,))
    graph = (x * 6.0).sum() + x
    if (
        op is Ops.BUFFER
        and stage not in STAGES[STAGES.index("rangeify") : STAGES.index("flatten-indices")]
    ):
        return  # kernels have no buffers
    with pytest.raises(uopc.Error):
        uopc.compile(graph.contiguous(), rules={stage: lose})
