"""The conditions of passes: a pass without them changes nothing, so it is not even imported."""

from __future__ import annotations

from uopc.ir.core import walk
from uopc.ir.core.ops import GroupOp, Op
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context, RunCondition


def has(*ops: Op) -> RunCondition:
    """The graph has an op of these."""
    wanted, names = frozenset(ops), ", ".join(sorted([op.name for op in ops]))
    return RunCondition(f"it has {names}", lambda graph, _: not wanted.isdisjoint(walk.ops(graph)))


def _is_cut(graph: UOp, context: Context) -> bool:
    return context.sharding is not None and not context.sharding.is_done


def _is_unrolled(graph: UOp, context: Context) -> bool:
    if context.sharding is not None:
        return bool(context.sharding.mesh.devices)
    return not GroupOp.Several.isdisjoint(walk.ops(graph))


def _has_rounds(program: UOp, context: Context) -> bool:
    return len(context.devices) > 1 or bool(context.sharding and context.sharding.bucket)


OPTIMIZES = RunCondition("optimize=True", lambda _, context: context.optimize)
CHOOSES = RunCondition("no Opts are given", lambda _, context: context.opts is None)
ON_CPU = RunCondition("for a CPU", lambda _, context: context.target.gpu is None)
ON_GPU = RunCondition("for a GPU", lambda _, context: context.target.gpu is not None)
IS_CUT = RunCondition("on a mesh", _is_cut)
IS_UNROLLED = RunCondition("on several devices of a process", _is_unrolled)
HAS_ROUNDS = RunCondition("on several devices", _has_rounds)
SEVERAL_KERNELS = RunCondition("of several kernels", lambda program, _: len(program.src) > 1)
NO_RULES = RunCondition("without rules of the user", lambda _, context: not context.rules)
TRIMS = RunCondition("trim_stores", lambda _, context: context.options.trim_stores)
SPLITS = RunCondition("split_reduces", lambda _, context: context.options.split_reduces)
