"""The pure-IR data: what uopc makes of an expression against what is recorded. One row a kind.

uopc's result must be right (checked on all points of a small domain, on many of a large one) and
go as far as the recorded one: no more nodes, bounds no wider. Matches, orders of visits and
substitutions must be equal. Rows marked `tinygrad_wrong` need only be right.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from operator import gt
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.conformance import corpus, expression
from tests.conformance.corpus import Place
from tests.conformance.expression import Record, number
from tests.conformance.runner import Outcome
from uopc.backends import memory_plan
from uopc.ir.builder import index_maps
from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.rewrite.engine import graph_rewrite, substitute
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.pattern import UPat
from uopc.ir.verify import in_bounds
from uopc.passes.place_threads.launch_grid import grid

Complaint = str | None
_LISTED = Path(__file__).with_name("ir_exceptions.toml").read_text("utf-8")
EXCEPTIONS: Final[dict[str, str]] = {
    row["id"]: row["reason"] for row in tomllib.loads(_LISTED)["row"]
}


def run(place: Place, out: Outcome) -> None:
    """Check one row and fill in its outcome."""
    row = corpus.read_row(place)
    check = KINDS.get(row["kind"])
    if check is None:
        raise NotImplementedError(f"no check for IR data of kind {row['kind']}")
    reason = EXCEPTIONS.get(row["id"])
    if reason is not None:  # need only be right
        row["tinygrad_wrong"], out.notes["exception"] = True, reason
    out.nodes = len(row.get("expr") or row.get("nodes") or ())
    complaint = check(row)
    if complaint is not None:
        out.fail(f"{row['kind']}: {complaint}")


def _root(records: list[Record]) -> UOp:
    return expression.load(records)[-1]


# ---------------------------------------------------------------- simplification
def _as_far(before: UOp, got: UOp, recorded: list[Record], wrong: bool = False) -> Complaint:
    """Equal to what it was, and no larger than what is recorded."""
    complaint = expression.difference(before, got)
    if complaint is not None:
        return f"{before.render(simplify=False)} → {got.render(simplify=False)} {complaint}"
    want = _root(recorded)
    if not wrong and expression.size(got) > expression.size(want):
        sizes = f"{expression.size(got)} nodes, recorded {expression.size(want)}"
        return f"{sizes}: {got.render(simplify=False)}, recorded {want.render(simplify=False)}"
    return None


def _as_tight(u: UOp, low: Any, high: Any) -> Complaint:
    """Bounds no wider than recorded."""
    a, b = bounds.bounds(u)
    if a < number(low) or b > number(high):
        return f"bounds {a}..{b} of {u.render(simplify=False)}, recorded {low}..{high}"
    return None


def _simplify(row: Record) -> Complaint:
    before = _root(row["before"])
    got = before.simplify()
    wrong = row.get("tinygrad_wrong", False)
    complaint = _as_far(before, got, row["after"], wrong)
    bounds = row.get("bounds_after")
    if complaint is None and bounds and not wrong and not before.dtype.is_float:
        return _as_tight(got, *bounds)
    return complaint


def _fuzz(row: Record) -> Complaint:
    before = _root(row["before"])
    got = before.simplify()
    for values, want in row["samples"]:
        at = {k: np.asarray(v) for k, v in values.items()}
        if expression.evaluate([got], at)[0][0].item() != number(want):
            return f"{got.render(simplify=False)} is not {want} at {values}"
    least = min((row[k]["after"] for k in ("symbolic", "sym")), key=len)
    return _as_far(before, got, least) or _as_tight(got, *row["sym"]["bounds"])


def _bounds(row: Record) -> Complaint:
    u = _root(row["expr"])
    low, high = bounds.bounds(u)
    value, present = expression.evaluate([u], expression.points([u]))[0]
    if row.get("tinygrad_wrong"):
        row["vmin"], row["vmax"] = -math.inf, math.inf
    outside = ((value < low) | (value > high)) & (True if present is None else present)
    if np.any(outside):
        return f"bounds {low}..{high} of {u.render(simplify=False)} are wrong"
    return _as_tight(u, row["vmin"], row["vmax"])


def _ssimplify(row: Record) -> Complaint:
    before = _root(row["expr"])
    if isinstance(row["result"], list):
        return _as_far(before, before.simplify(), row["result"])
    got = before.simplify()
    fits = got.op is Ops.CONST and got.arg == number(row["result"])
    return None if fits else f"{got.render()} is not {row['result']}"


# ---------------------------------------------------------------- values and factors
def _eval(row: Record) -> Complaint:
    u = _root(row["expr"])
    got = float(u) if row["type"] == "float" else int(u)
    return None if got == number(row["result"]) else f"{got}, want {row['result']}"


def _infer(row: Record) -> Complaint:
    u = _root(row["expr"])
    known = {v: v.const_like(row["vars"][v.arg.name]) for v in u.variables()}
    got = float(substitute(u, known))
    return None if got == number(row["result"]) else f"{got}, want {row['result']}"


def _const_factor(row: Record) -> Complaint:
    u = _root(row["expr"])
    constant, terms = affine.form(u)
    got = math.gcd(constant, *terms.values())
    return None if got % row["result"] == 0 else f"{got}, want {row['result']}"


def _divides(row: Record) -> Complaint:
    u = _root(row["expr"])
    by = affine.const(row["by"]) if isinstance(row["by"], int) else _root(row["by"])
    quotient, rest = affine.divmod_(u, by)
    if row["result"] is None:
        return None
    if rest.simplify() is not affine.const(0):
        return f"{u.render()} % {by.render()} is {rest.render()}, recorded 0"
    return _as_far(u // by, quotient, row["result"])


# ---------------------------------------------------------------- validity
def _get_valid(row: Record) -> Complaint:
    _, condition = index_maps.ungated(_root(row["expr"]))
    got = index_maps.true() if condition is None else condition
    return expression.difference(_root(row["result"]), got)


def _simplify_valid(row: Record) -> Complaint:
    before = _root(row["before"])
    return _as_far(before, before.simplify(), row["after"] or row["before"])


def _valid_index(row: Record) -> Complaint:
    """Every index of the gated load: the same where valid, no value where not, and no larger.

    Of an image the recorded load may have lost its guard: a read outside of an image gives 0. uopc
    has no images, its guards stay, and only the indices are compared.
    """
    nodes = expression.load(row["before"]["nodes"])
    load, want = nodes[row["before"]["roots"][0]], _root(row["after"])
    got = load.simplify()
    for before, after in zip(load.src[0].src[1:], got.src[0].src[1:]):
        complaint = expression.difference(before, after)
        if complaint is not None:
            return f"{before.render(simplify=False)} → {after.render(simplify=False)} {complaint}"
    if row["image"]:
        got, want = _unguarded(got), _unguarded(want)
    sizes = expression.size(got), expression.size(want)
    if sizes[0] > sizes[1]:
        texts = [u.src[0].src[-1].render(simplify=False) for u in (got, want)]
        return f"{sizes[0]} nodes, recorded {sizes[1]}: {texts[0]}, recorded {texts[1]}"
    return None


def _unguarded(load: UOp) -> UOp:
    address = load.src[0]
    index = [index_maps.ungated(x)[0] for x in address.src[1:]]
    bare = intern(address.op, address.dtype, (address.src[0], *index))
    return intern(load.op, load.dtype, (bare,))


def _oob(row: Record) -> Complaint:
    """An access that may be outside is never called inside, and what is recorded as inside is."""
    nodes = expression.load(row["nodes"])
    found = [a for i in row["roots"] for a in in_bounds.accesses(nodes[i])]
    inside = all(a.verdict is in_bounds.Verdict.INSIDE for a in found)
    return None if inside is row["in_bounds"] else "; ".join(map(str, found))


# ---------------------------------------------------------------- the rewrite engine
def _substitute(row: Record) -> Complaint:
    mapping = {_root(a): _root(b) for a, b in row["map"]}
    mode = row["mode"]
    in_one_walk, bottom_up = mode.startswith("walk"), mode.endswith("bottom_up")
    got = substitute(_root(row["before"]), mapping, walk=in_one_walk, bottom_up=bottom_up)
    want = _root(row["after"])
    return None if got is want else f"{got.render(simplify=False)}, want {row['after']}"


def _pattern(p: Record) -> UPat:
    if "any" in p:
        return UPat.any(*[_pattern(q) for q in p["any"]])
    given: dict[str, Any] = {"allow_any_len": p.get("allow_any_len", False)}
    if "op" in p:
        given["op"] = [_OPS.get(name) or Op.by_name(name.lower()) for name in p["op"]]
    if "dtype" in p:
        given["dtype"] = [_dtype(name) for name in p["dtype"]]
    if "arg" in p:
        given["arg"] = number(p["arg"])
    if "tag" in p:
        (given["tag"],) = p["tag"]
    if "src" in p:
        given["src"] = tuple([_pattern(q) for q in p["src"]])
    elif "src_any_order" in p:
        given["src"] = [_pattern(q) for q in p["src_any_order"]]
    elif "src_repeat" in p:
        given["src"] = _pattern(p["src_repeat"])
    return UPat(name=p.get("name"), **given)


_OPS: Final = {"PARAM": Ops.VARIABLE}


def _dtype(name: str) -> dtypes.DType:
    return dtypes.float64 if name == "weakfloat" else dtypes.by_name(name)


def _match(row: Record) -> Complaint:
    nodes = expression.load(row["expr"])
    found: list[dict[str, int]] = []

    def note(**names: UOp) -> None:
        found.append({k: nodes.index(v) for k, v in names.items()})

    PatternMatcher([(_pattern(row["pattern"]), note)]).rewrite(nodes[-1])
    return None if found == row["matches"] else f"{found}, want {row['matches']}"


def _rewrite_order(row: Record) -> Complaint:
    nodes = expression.load(row["expr"])
    order = [nodes.index(u) for u in walk.toposort(nodes[-1])]
    if order != row["toposort"]:
        return f"toposort {order}, want {row['toposort']}"
    for mode, want in row["visits"].items():
        seen: list[int] = []

        def note(x: UOp, seen: list[int] = seen) -> None:
            seen.append(nodes.index(x))

        in_one_walk, bottom_up = mode.startswith("walk"), mode.endswith("bottom_up")
        rules = PatternMatcher([(UPat(name="x"), note)])
        graph_rewrite(nodes[-1], rules, bottom_up=bottom_up, walk=in_one_walk)
        if seen != want:
            return f"{mode} visits {seen}, want {want}"
    return None


# ---------------------------------------------------------------- plans
def _memory_plan(row: Record) -> Complaint:
    """The arenas are no larger; that lifetimes do not overlap is checked here too."""
    spans: dict[int, list[int]] = {}
    for step, buffers in enumerate(row["steps"]):
        for b in buffers:
            if b not in row["held"]:
                spans.setdefault(b, [step, step])[1] = step
    total = 0
    for device in dict.fromkeys(row["device"].values()):
        own = {b: s for b, s in spans.items() if row["device"][str(b)] == device}
        blocks = [
            memory_plan.Lifetime(row["nbytes"][str(b)], first, last)
            for b, (first, last) in own.items()
        ]
        offsets, size = memory_plan.plan(blocks)
        total += size
        if _overlap(blocks, offsets):
            return "two buffers alive at once overlap"
    want = sum(row["arena_nbytes"])
    return None if total <= want else f"{total} bytes, recorded {want}"


def _overlap(blocks: list[memory_plan.Lifetime], offsets: list[int]) -> bool:
    placed = list(zip(blocks, offsets))
    return any(
        a.first <= b.last and b.first <= a.last and i < j + b.nbytes and j < i + a.nbytes
        for n, (a, i) in enumerate(placed)
        for b, j in placed[:n]
    )


def _grouped_dims(row: Record) -> Complaint:
    """Every combination of indices at exactly one place, the sizes within the maxima."""
    dims, most = row["dims"], row["max_sizes"]
    made = grid(row["prefix"], dims, most, innermost_first=row["reverse"])
    if most is not None and (len(made.sizes) > len(most) or any(map(gt, made.sizes, most))):
        return f"sizes {made.sizes}, maxima {most}"
    places = np.indices(made.sizes).reshape(len(made.sizes), math.prod(made.sizes))
    values = expression.evaluate(made.index, dict(zip(made.names, places)))
    index = [np.broadcast_to(v[:, 0], places.shape[1]) for v, _ in values]
    found = np.ravel_multi_index(index, dims)
    once = np.array_equal(np.sort(found), np.arange(math.prod(dims)))
    return None if once else f"{[u.render(simplify=False) for u in made.index]} repeats or omits"


def _render(row: Record) -> Complaint:
    """Not binding: only that there is a text."""
    text = _root(row["expr"]).render(simplify=row["simplify"])
    return None if text else "no text"


KINDS: Final[dict[str, Callable[[Record], Complaint]]] = {
    "simplify": _simplify,
    "fuzz": _fuzz,
    "bounds": _bounds,
    "ssimplify": _ssimplify,
    "eval": _eval,
    "sym_infer": _infer,
    "const_factor": _const_factor,
    "divides": _divides,
    "divide_exact": _divides,
    "get_valid": _get_valid,
    "simplify_valid": _simplify_valid,
    "valid_index": _valid_index,
    "oob": _oob,
    "substitute": _substitute,
    "match": _match,
    "rewrite_order": _rewrite_order,
    "memory_plan": _memory_plan,
    "grouped_dims": _grouped_dims,
    "render": _render,
}
