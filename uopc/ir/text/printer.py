"""Graphs as text, one node per line, sources first; `parse(print_graph(u)) is u` at every level.

    // level: kernel                     header lines: `// key: value`, see parse_header
    %1 = param a slot=0 : f32[4, 8]      storage; its dimensions are those of its type
    %2 = range 4 axis=0 kind=loop : index
    %3 = range 8 axis=1 kind=reduce : index
    %4 = reduce.add %1[%2, %3] over %3 : f32
    %5 = param o slot=1 : f32[4]
    %6 = store %5[%2], %4                an effect has no type
    %7 = end %6, %2
    sink %7 name=r_4_8                   the last line is the root

Grammar (`literals.py` has values, `op_syntax.py` what each op makes of the parts):

    text      = {line}
    line      = (statement | block) [comment]    comment = "//" …, at the start or after a space
    block     = [name "="] "linear" {field "=" value} "{" {["let"] statement | name} "}"
    statement = [name "="] op ["." suffix] [label] [operands] [dims] ["over" operands]
                {field "=" value} [" : " type]
    label     = word | string | "@" hash | value             param x, data @…, const 2.0
    operands  = operand {"," operand}
    operand   = name | name "[" operands "]" [":" dtype] | value [":" dtype]
    dims      = "(" [dim {"," dim}] ")"          dim = integer | operand
    type      = dtype ["[" dim {"," dim} "]"] ["!"]
    name      = "%" word

`%a[%i]` is the INDEX of that; a value is a CONST (an integer without dtype is of dtype index, true
and false are bool), or `invalid:f32`. A dimension that is not in the text is shown as infix. `!`
marks a dtype that the op's rule does not give, `[?]` a shape that the rule cannot give: broken
graphs print too. A field `tag=` is the tag, `arg=` an arg that the op's own form cannot express.

A LINEAR is a block: `linear {`, its list in order, `}`, with loops indented. A node that is needed
there but is not in the list stands before the block, or inside as `let %3 = …`. The kernels and
lists that CALLs call stand first, each complete: a statement may be repeated and means one node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from uopc.errors import UserTypeError
from uopc.ir.core import dtypes, walk
from uopc.ir.core.args import KernelArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text import op_syntax
from uopc.ir.text.infix import infix
from uopc.ir.text.literals import write_string
from uopc.ir.text.parser import parse, parse_header
from uopc.ir.text.types import TypeText

__all__ = ["Namer", "parse", "parse_header", "print_graph", "render", "short", "tree"]

_TREE_LINES = 60
_TREE_NODES = 10_000  # beyond this many a summary says "more than"
_LISTS = frozenset((Ops.CALL, Ops.LINEAR, Ops.SINK))  # ops that are, or refer to, a section
_INLINE = frozenset((Ops.CONST, Ops.INVALID, Ops.INDEX))  # ops that may be written inside of lines
_INSIDE = 60  # characters of an infix expression inside a line of a tree


class Namer:
    """Number nodes on first sight, and keep the numbers through all stages of one dump."""

    def __init__(self, given: Mapping[UOp, str] | None = None) -> None:
        self._names: dict[UOp, str] = dict(given or {})
        self._former: dict[UOp, str] = {}  # of nodes that handed theirs on
        self._count = max([int(name[1:]) for name in self._names.values()], default=0)
        self.types: dict[UOp, str] = {}  # those without names

    def name(self, u: UOp) -> str:
        """The name of a node, such as `%3`."""
        found = self._names.get(u)
        if found is None:
            self._count += 1
            found = self._names[u] = f"%{self._count}"
        return found

    def known(self, u: UOp) -> str | None:
        """The present or former name of a node."""
        return self._names.get(u) or self._former.get(u)

    def items(self) -> Iterator[tuple[UOp, str]]:
        """Each node with its present or former name."""
        return itertools.chain(self._former.items(), self._names.items())

    def hand_on(self, old: UOp, new: UOp) -> None:
        """`new` replaces `old` in the next stage and takes its name, unless it has one."""
        if old in self._names and new not in self._names:
            self._names[new] = self._former[old] = self._names.pop(old)


# ---------------------------------------------------------------- printing
def print_graph(u: UOp, names: Namer | None = None, order: dict[UOp, None] | None = None) -> str:
    """The graph below `u` as text. `order`: its nodes, if the caller knows them. Without `names`,
    number nodes in the order of the lines.

    `uopc.parse` reads it again. UserTypeError for anything but a UOp.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> print(uopc.print_graph(n * 4 + 1))
        %1 = variable n low=1 high=8 : index
        %2 = mul %1, 4 : index
        %3 = add %2, 1 : index
    """
    if not isinstance(u, UOp):
        raise UserTypeError(f"print_graph: expected a UOp, got {u!r}")
    nodes = walk.toposort(u) if order is None else order
    lists = [s for s in nodes if s.op in _LISTS]
    called = {c.src[0] for c in lists if c.op is Ops.CALL and c.src}
    blocks = {s for s in lists if _is_block(s)}
    below = [s for s in lists if s in blocks or (s.op is Ops.SINK and s in called)]
    inner = dict.fromkeys([s for s in below if s is not u])
    referenced = set(inner)
    for s in nodes:
        if s not in blocks:
            referenced.update(s.src)
    namer = names or Namer()
    lines: list[str] = []
    for root in (*inner, u):
        if inner:
            title = "program" if root is u else f"kernel {_kernel_name(root)}".rstrip()
            lines.append(f"// {title}")
        section = _RootLines(root, namer, referenced, inner)
        section.write(None if inner else nodes)
        lines += section.lines if root is u else ["  " + line for line in section.lines]
    return "\n".join(lines)


def _is_block(u: UOp) -> bool:
    """True for a void LINEAR, which is written as a block because a block has no type."""
    return u.op is Ops.LINEAR and u.dtype is dtypes.void


def _kernel_name(u: UOp) -> str:
    named = type(u.arg) is KernelArg and type(u.arg.name) is str
    return write_string(u.arg.name) if named else ""


class _RootLines:
    """The lines of a root and the nodes below."""

    def __init__(
        self, root: UOp, namer: Namer, referenced: set[UOp], inner: dict[UOp, None]
    ) -> None:
        self.root, self.namer, self.referenced = root, namer, referenced
        self.inner = inner.keys() - {root}  # roots of sections above
        self.listed = frozenset(root.src) if _is_block(root) else frozenset()
        self.operands: dict[UOp, str] = {}  # the text of each node so far, as an operand
        self.names: dict[UOp, str] = {}  # those of them that have a line
        self.types = TypeText(self.names, namer.types)
        self.lines: list[str] = []

    def write(self, order: dict[UOp, None] | None) -> None:
        """Fill `lines` with the nodes in order (None: not known yet), the root last."""
        order = order or walk.toposort(self.root, lambda u: u not in self.inner)
        if _is_block(self.root):
            self._block(order)
            return
        for u in order:
            within = u is not self.root and (u.op in _INLINE or u in self.inner)
            if not within or not self._inline(u):
                self._line(u)

    def _inline(self, u: UOp) -> bool:
        """Record the text of `u` for use inside other lines; False if `u` needs a separate line."""
        if op_syntax.is_literal(u):
            self.operands[u] = op_syntax.literal(u)
        elif u in self.inner:
            self.operands[u] = self.names[u] = self.namer.name(u)
        elif (  # one element, of named things, that nothing sets apart
            u.op is Ops.INDEX and u.tag is None and len(u.src) > 1 and u not in self.listed
            and u.src[0] in self.names
            and all([s in self.names or op_syntax.is_literal(s) for s in u.src])
            and self.types.text(u) == u.dtype.short
        ):  # fmt: skip
            base, *indices = [self.operands[s] for s in u.src]
            suffix = "" if u.dtype is u.src[0].dtype else f":{u.dtype.short}"
            self.operands[u] = f"{base}[{', '.join(indices)}]{suffix}"
        else:
            return False
        return True

    def _line(self, u: UOp, indent: str = "", entry: str = "") -> None:
        kind, operands = self.types.text(u), self.operands
        head, src, tail = u.op.name, u.src, ""
        if u.arg is not None or u.tag is not None or u.op not in op_syntax.PLAIN:
            head, src, tail = op_syntax.write(u, operands.__getitem__, "?" not in kind)
        text = " " + ", ".join([operands[s] for s in src]) if src else ""
        kind = " : " + kind if kind else ""
        name = ""
        if kind or u in self.referenced:
            self.names[u] = found = self.namer.name(u)
            name = found + " = "
            operands.setdefault(u, found)
        called = _kernel_name(u.src[0]) if u.op is Ops.CALL and u.src else ""
        note = f"  // {called}" if called else ""
        self.lines.append(f"{indent}{entry}{name}{head}{text}{tail}{kind}{note}")

    # ------------------------------------------------------------ LINEAR
    def _block(self, order: dict[UOp, None]) -> None:
        """Write a list in order, after the nodes that it needs and that do not depend on it."""
        within: set[UOp] = set(self.listed)
        for u in order:
            if u in within or u is self.root:
                continue
            if any(s in within for s in u.src):
                within.add(u)
            elif not self._inline(u):
                self._line(u)
        head, _, tail = op_syntax.write(self.root, self.operands.__getitem__)
        name = self.namer.name(self.root) + " = " if self.root in self.referenced else ""
        self.lines.append(f"{name}{head}{tail} {{")
        self._entries(iter(order), within)
        self.lines.append("}")

    def _entries(self, rest: Iterator[UOp], within: set[UOp]) -> None:
        depth = 1
        done: set[UOp] = set()
        for item in self.root.src:
            # The order has each item's sources before it: those not in the list come as `let`.
            while item not in done:
                u = next(rest)
                done.add(u)
                if u is not item and u in within and not self._inline(u):
                    self._line(u, "  " * depth, "let ")
            if item.op.closes and item.src and item.src[0].op.opens:
                depth = max(1, depth - 1)
            self._inline(item)
            if item in self.inner:
                self.lines.append("  " * depth + self.names[item])
            else:
                self._line(item, "  " * depth)
            depth += item.op.opens


# ---------------------------------------------------------------- one expression, one tree
def render(u: UOp) -> str:
    """An infix expression such as `(a+(b*4))`; the text of the graph if there is none."""
    found = infix(u)
    return print_graph(u) if found is None else found


def short(u: UOp) -> str:
    """One line: the op, the dtype, the shape, and the expression of a scalar or name of a param."""
    kind = f"{u.op.name.upper()} {u.dtype.name}"
    if u.dtype is dtypes.void:
        return f"<UOp {kind}>"
    dims = TypeText({}).dims(u)
    shown = infix(u, _INSIDE) if u.op is Ops.PARAM or not dims else None
    return f"<UOp {kind} ({dims}){': ' + shown if shown else ''}>"


def tree(u: UOp) -> str:
    """The node above its operands, each indented below its user; for a big graph, the first lines.

    A shared node is printed in full once, as `%1 = …`, and later as `%1`.
    """
    rows: list[tuple[int, UOp]] = []  # depth, node
    stack = [(0, u)]
    seen: set[UOp] = set()
    again: set[UOp] = set()
    while stack and len(rows) < _TREE_LINES:
        depth, node = stack.pop()
        rows.append((depth, node))
        if node in seen and not op_syntax.is_literal(node):
            again.add(node)
        elif not _shown_inside(node):
            stack.extend([(depth + 1, s) for s in reversed(node.src)])
        seen.add(node)
    namer, types = Namer(), TypeText({})
    lines, printed = [], set[UOp]()
    for depth, node in rows:
        repeated = node in again
        if repeated and node in printed:
            text = namer.name(node)
        else:
            text = (f"{namer.name(node)} = " if repeated else "") + _tree_line(node, types)
        printed.add(node)
        lines.append("  " * depth + text)
    return "\n".join([*lines, *([_summary(u, seen)] if stack else [])])


def _tree_line(u: UOp, types: TypeText) -> str:
    if op_syntax.is_literal(u):
        return op_syntax.literal(u)
    head, src, tail = op_syntax.write(u, lambda s: infix(s, _INSIDE) or "…")
    if _shown_inside(u):
        head += " " + ", ".join([op_syntax.literal(s) for s in src])
    kind = types.text(u)
    return f"{head}{tail} : {kind}" if kind else head + tail


def _shown_inside(u: UOp) -> bool:
    """True if all operands are constants, which the node's own line shows."""
    return bool(u.src) and all(op_syntax.is_literal(s) for s in u.src)


def _summary(u: UOp, printed: set[UOp]) -> str:
    """A line with the number of hidden nodes, counted up to a limit."""
    found = {u}
    stack = [u]
    while stack and len(found) <= _TREE_NODES:
        new = [s for s in stack.pop().src if s not in found]
        found.update(new)
        stack.extend(dict.fromkeys(new))
    more = len(found) - len(printed)
    return f"… {'more than ' if stack else ''}{more} more nodes"
