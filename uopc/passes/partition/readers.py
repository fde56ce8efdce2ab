"""Layouts from readers: a value that every device would compute whole, though its reader takes a
part, is computed in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Spec, used_axes
from uopc.ir.devices.part_sizes import PartSizes
from uopc.passes.partition.groups import groups
from uopc.passes.partition.layout import Value, changed, of_operand


def taken_in_parts(
    order: Sequence[UOp], readers: Counter[UOp], values: Mapping[UOp, object],
    outputs: Mapping[UOp, Spec], sizes: PartSizes,
) -> dict[UOp, Spec]:  # fmt: skip
    """The REDUCEs that are complete on every device though their only reader takes a part, with
    that part's layout. `values`: of a first partition, whose results have the layouts `outputs`."""
    taken: dict[UOp, Spec] = dict(outputs)
    for u in reversed(order):
        own = values.get(u)
        if not isinstance(own, Value):
            continue
        spec = own.spec if used_axes(own.spec) else taken.get(u)
        if spec is None or not used_axes(spec):
            continue
        for s in u.src:
            v = values.get(s)
            if readers[s] == 1 and isinstance(v, Value) and _is_whole(v):
                found = _of_source(u, s, spec, sizes)
                if found is not None:
                    taken[s] = found
    return {
        u: spec for u, spec in taken.items()
        if u.op is Ops.REDUCE and used_axes(spec) and _is_whole(values[u])
    }  # fmt: skip


def _is_whole(v: object) -> bool:
    return isinstance(v, Value) and not v.partial and not used_axes(v.spec)


def before_reduce(u: UOp, spec: Spec) -> Spec:
    """The layout of a reduce's operand, from that of its result."""
    for d in sorted(u.arg.axes):
        spec = (*spec[:d], (), *spec[d:])
    return spec


def _of_source(u: UOp, s: UOp, spec: Spec, sizes: PartSizes) -> Spec | None:
    """The layout in which u takes its source if u has layout `spec`; None if unknown."""
    old, new = shapes.shape(s), shapes.shape(u)
    match u.op.shape:
        case "first":
            return spec
        case "broadcast" | "expand":
            return of_operand(spec, old, new)
        case "permute":
            at = {axis: d for d, axis in enumerate(u.arg)}
            return tuple([spec[at[d]] for d in range(len(old))])
        case "reduce":
            return before_reduce(u, spec)
        case "reshape":
            return _reshaped(old, new, spec, sizes)
    return None


def _reshaped(old: shapes.Shape, new: shapes.Shape, spec: Spec, sizes: PartSizes) -> Spec:
    """The cuts of major dimensions, where these are cut evenly on both sides."""
    found: Spec = ((),) * len(old)
    for olds, news in groups(old, new):
        of, to = [[d for d in ds if dims[d] != 1] for ds, dims in ((olds, old), (news, new))]
        if not of or not to or not spec[to[0]]:
            continue
        axes, n, m = spec[to[0]], old[of[0]], new[to[0]]
        even = sizes.is_even(n, axes) and sizes.is_even(m, axes)
        if even or (len(of) == len(to) == 1):
            found = changed(found, of[0], axes)
    return found
