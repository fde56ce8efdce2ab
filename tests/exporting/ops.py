"""Every op on every dtype, with every kind of constant, as outputs of few graphs for exports.

    python -m tests.exporting.ops [--dtype float16] [--target c11] [--cc gcc] [--no-vectors]
        [FLAG ...]

exports the graphs of each dtype as C, compiles each with all warnings as errors and compares the
bits with those of machine code. Prints what differs; the exit status is 1 after a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import uopc
from tests.exporting import corpus as export_corpus
from tests.fuzz import vocabulary
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops

LENGTH = 37  # vectors of each length, and a part that fills none
_FLOATS = (1.5, -0.0, np.inf, -np.inf, np.nan, 3.0, -0.75, 0.0, 100.0, -2.5, 1e-3, 7.0)
_METHODS = ("sign", "signbit", "relu", "isnan", "isinf", "isfinite", "flip", "cumsum", "sum", "max",
            "argmax", "prod", "any", "sort", "sigmoid", "log1p", "expm1", "rsqrt")  # fmt: skip
_PAIRED = ("nextafter", "copysign", "maximum", "hypot", "logaddexp", "atan2", "dot")
PER_GRAPH = 40  # outputs


def values(t: DType, start: int = 0) -> npt.NDArray[Any]:
    """Some numbers of a dtype: the special ones, in an order of their own for each start."""
    if t.is_float:
        found: list[Any] = list(_FLOATS)
    elif t.kind == "bool":
        found = [True, False, True]
    else:
        low, high = t.bounds
        found = [low, low + 1, high, high - 1, 0, 1, 7, 2, 3, t.bits, 100, max(low, -3)]
    turned = [found[(start + i * (1 + start % 5)) % len(found)] for i in range(LENGTH)]
    with np.errstate(all="ignore"):
        return np.array(turned).astype(t.numpy)


def constants(t: DType) -> list[tuple[str, UOp]]:
    """Constants of a dtype, one number and arrays."""
    some = _FLOATS[:6] if t.is_float else [v.item() for v in values(t)[:3]]
    found = [(f"{v!r}", UOp.const(t, v)) for v in some]
    return [*found, ("array", uopc.constant(values(t, 3))), ("spread", uopc.constant(values(t, 8)))]


def outputs(t: DType) -> Iterator[tuple[str, UOp]]:
    """Results by name: of the arguments a and b, of one of them and a constant."""
    a, b = (uopc.param(name, (LENGTH,), t) for name in "ab")
    c = uopc.param("c", (LENGTH,), dtypes.bool_)
    for op in vocabulary.elementwise(t):
        arity = op.arity[0]
        if op is Ops.THREEFRY:
            continue
        if op is Ops.WHERE:
            yield "where", uopc.where(c, a, b)
            for label, k in constants(t):
                yield f"where a {label}", uopc.where(c, a, k)
                yield f"where {label} b", uopc.where(c, k, b)
                yield f"where {label} of a", uopc.where(a < b, k, a)
            continue
        yield op.name, a.alu(op, *(b, a)[: arity - 1])
        if arity == 1:
            for label, k in constants(t)[-2:]:
                yield f"{op.name} of {label}", k.alu(op) + a
            continue
        for label, k in constants(t):
            rest = (b,) * (arity - 2)
            if op in (Ops.SHL, Ops.SHR) or (op in (Ops.CDIV, Ops.CMOD) and t.is_int):
                continue
            yield f"{op.name} a {label}", a.alu(op, k, *rest)
            yield f"{op.name} {label} b", (k + a * 0 if arity > 2 else k).alu(op, b, *rest)
    for name in _METHODS:
        yield from _tried(name, lambda name=name: getattr(a, name)())
    for name in _PAIRED:
        yield from _tried(name, lambda name=name: getattr(a, name)(b))
        for label, k in constants(t):
            yield from _tried(f"{name} {label}", lambda name=name, k=k: getattr(a, name)(k))
    for to in dtypes.ARRAY_TYPES:
        yield f"to {to.name}", a.cast(to)
        if to.itemsize == t.itemsize and t.kind != "bool" and to.kind != "bool":
            yield f"bits as {to.name}", a.bitcast(to)
    yield "from index", uopc.arange(LENGTH).cast(t) + a
    yield "gathered", uopc.constant(values(t, 4)).take(c.cast(dtypes.int32), 0)
    yield "padded", a.pad(((3, 2),), value=values(t)[0].item())
    yield "joined", a.cat(uopc.constant(values(t, 5)), b)
    yield "strided", a[::-2] + b[: (LENGTH + 1) // 2]


def _tried(name: str, made: Any) -> Iterator[tuple[str, UOp]]:
    """A result, if the method takes the dtype."""
    try:
        yield name, made()
    except UserError:
        return


def graphs(t: DType, per_graph: int = PER_GRAPH) -> Iterator[dict[str, UOp]]:
    """The results in few graphs."""
    found = list(outputs(t))
    for first in range(0, len(found), per_graph):
        yield dict(found[first : first + per_graph])


def arguments(t: DType) -> dict[str, npt.NDArray[Any]]:
    """The arguments of all graphs."""
    return {"a": values(t), "b": values(t, 1), "c": values(dtypes.bool_, 2)}


def checked(t: DType, folder: Path, cc: str, flags: Sequence[str], **options: Any) -> list[str]:
    """What is wrong with the exports of a dtype."""
    wrong = []
    for number, graph in enumerate(graphs(t)):
        here = folder / f"{t.name}{number}"
        made = {f"r{i}": u for i, u in enumerate(graph.values())}
        read = {u.arg.name for r in made.values() for u in r.toposort() if u.op is Ops.PARAM}
        given = {name: array.copy() for name, array in arguments(t).items() if name in read}
        try:
            uopc.export(made, here / "f", kind="c", examples=given, **options)
        except uopc.errors.Unsupported as error:
            wrong.append(f"{t.name} {list(graph)}: {error}")
            continue
        found = export_corpus.compiled_and_run(here, cc, *flags)
        if found:
            wrong.append(f"{t.name} {list(enumerate(graph))}: {found[:1500]}")
    return wrong


def main(given: list[str] | None = None) -> int:
    """Check all dtypes, or one."""
    parser = argparse.ArgumentParser("tests.exporting.ops", description=__doc__.split("\n")[0])
    parser.add_argument("--dtype")
    parser.add_argument("--target", default="c11")
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--no-vectors", action="store_true")
    args, flags = parser.parse_known_args(given)
    failed = 0
    for t in dtypes.ARRAY_TYPES:
        if args.dtype not in (None, t.name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            options = {"target": args.target, "vectors": False if args.no_vectors else None}
            wrong = checked(t, Path(folder), args.cc, flags, **options)
        failed += len(wrong)
        print(t.name, "wrong:" if wrong else "right", *wrong, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
