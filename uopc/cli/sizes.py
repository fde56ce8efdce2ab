"""The option `--set NAME=VALUE`: sizes that a user gives; `--set NAME=LEAST:MOST`: their bounds."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from dataclasses import replace

from uopc.errors import UserError
from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.program.request import Request

Size = int | tuple[int, int]


def argument(parser: ArgumentParser, text: str) -> None:
    """Add the option. `dict(args.set)` is the values by name."""
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", type=_pair, default=[], help=text
    )


def _pair(text: str) -> tuple[str, int]:
    name, _, value = text.rpartition("=")
    if not name or not value.removeprefix("-").isdecimal():
        raise ArgumentTypeError(f"expected NAME=VALUE with an integer, got {text!r}")
    return name, int(value)


def bounds_argument(parser: ArgumentParser, text: str) -> None:
    """Add the option with bounds, also as `--dims`. `dict(args.set)`: numbers and pairs."""
    parser.add_argument(
        "--set", "--dims", metavar="NAME=N|LEAST:MOST", dest="set", action="append",
        type=_pair_or_bounds, default=[], help=text,
    )  # fmt: skip


def _pair_or_bounds(text: str) -> tuple[str, Size]:
    head, colon, most = text.rpartition(":")
    if not colon:
        return _pair(text)
    name, least = _pair(head)
    if not most.isdecimal():
        raise ArgumentTypeError(f"expected NAME=LEAST:MOST with two integers, got {text!r}")
    return name, (least, int(most))


def given(request: Request, sizes: Mapping[str, Size]) -> Request:
    """Set variables of the request to numbers, or tighten their bounds. UserError for an unknown
    name, or for a size outside its bounds."""
    variables = {v.arg.name: v for v in request.graph.toposort() if v.op is Ops.VARIABLE}
    became: dict[UOp, UOp] = {}
    for name, size in sizes.items():
        if name not in variables:
            known = ", ".join(variables) or "none"
            raise UserError(f"--set: unknown size {name!r}; the sizes of the graph are {known}")
        own = variables[name].arg
        least, most = size if isinstance(size, tuple) else (size, size)
        if not own.low <= least <= most <= own.high:
            shown = f"{least}:{most}" if isinstance(size, tuple) else f"{size}"
            raise UserError(f"--set: {name} must be within {own.low}:{own.high}, got {shown}")
        bounds = replace(own, low=least, high=most)
        became[variables[name]] = (
            leaves.const(dtypes.index, size) if isinstance(size, int)
            else intern(Ops.VARIABLE, dtypes.index, (), bounds)
        )  # fmt: skip
    both = intern(Ops.SINK, dtypes.void, (request.graph, *request.params))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return became[u] if u in became else _in_arg(u, src)

    graph, *params = rebuild.rewritten(both, change).src
    return replace(request, graph=graph, params=tuple(params))


def _in_arg(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Move sizes that became numbers from a node's sources to its arg; None if unchanged."""
    dims = getattr(u.arg, "dims", u.arg)
    if src == u.src or not isinstance(dims, tuple) or None not in dims:
        return None
    first = len(src) - dims.count(None)
    left = iter(src[first:])
    numbers = [next(left) if d is None else d for d in dims]
    known = tuple([None if isinstance(d, UOp) and d.op is not Ops.CONST
                   else d.arg if isinstance(d, UOp) else d for d in numbers])  # fmt: skip
    rest = src[:first] + tuple([d for d in src[first:] if d.op is not Ops.CONST])
    arg = known if u.arg is dims else replace(u.arg, dims=known)
    return rebuild.remake(intern(u.op, u.dtype, rest, arg, u.tag), rest)
