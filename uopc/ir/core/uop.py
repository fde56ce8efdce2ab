"""UOp: the one class of nodes, and the list of its methods. Each method is a function elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from uopc.ir.builder import alu as build
from uopc.ir.builder import kernel, movement
from uopc.ir.core import analysis, dtypes, node
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import Node
from uopc.ir.core.ops import Op, Ops
from uopc.tensor import methods as tensor

_KEEP: Final[Any] = object()


def _operator(op: Op, reverse: bool = False) -> Callable[[UOp, Any], UOp]:
    if reverse:
        return lambda a, b: build.binary(op, b, a)
    return lambda a, b: build.binary(op, a, b)


class UOp(Node):
    """A node of the graph: `op` applied to `src`, with a typed constant `arg` and a `dtype`.

    Immutable and interned: building the same node twice gives the same object, so `==` is identity
    (`eq` compares values). `UOp(op, dtype, src, arg, tag)` folds nothing; the methods below fold.
    """

    __slots__ = ()
    __array_ufunc__ = None  # an array on the left leaves the operator to the UOp

    # ------------------------------------------------------------ the graph
    def toposort(self, gate: Any = None) -> dict[UOp, None]:
        """Every node below this one, sources first; `gate(u)` says whether to go below u."""
        return analysis.toposort(self, gate)

    backward_slice = toposort

    def variables(self) -> list[UOp]:
        """The variables below this node, by name."""
        return analysis.variables(self)

    def replace(self, **fields: Any) -> UOp:
        """A copy with some of op, dtype, src, arg, tag changed; the rest, the tag too, is kept."""
        known = {k: getattr(self, k) for k in ("op", "dtype", "src", "arg", "tag")}
        unknown = fields.keys() - known.keys()
        if unknown:
            raise TypeError(f"replace: no field {sorted(unknown)[0]!r}")
        return UOp(**(known | fields))

    def rtag(self, tag: Any = True) -> UOp:
        """This node with another tag; None takes the tag off."""
        return node.intern(self.op, self.dtype, self.src, self.arg, tag)

    @property
    def shape(self) -> analysis.Shape:
        """Dimensions: ints, or UOps of dtype index."""
        return analysis.shape(self)

    @property
    def ndim(self) -> int:
        return len(analysis.shape(self))

    @property
    def size(self) -> analysis.Dim:
        """The number of elements."""
        return analysis.size(analysis.shape(self))

    @property
    def vmin(self) -> Any:
        """A lower bound of every element."""
        return analysis.bounds(self)[0]

    @property
    def vmax(self) -> Any:
        """An upper bound of every element."""
        return analysis.bounds(self)[1]

    @property
    def ranges(self) -> tuple[UOp, ...]:
        """The loops this value is inside of, outer first."""
        return tuple(sorted(analysis.ranges(self), key=lambda r: r.arg.axis))

    def __int__(self) -> int:
        return int(build.evaluate(self))

    def __float__(self) -> float:
        return float(build.evaluate(self))

    def __str__(self) -> str:
        from uopc.ir.text import printer as text

        return text.print_graph(self)

    def __repr__(self) -> str:
        from uopc.ir.text import printer as text

        return text.tree(self)

    render = build.render
    simplify = build.simplify

    def substitute(self, mapping: dict[UOp, UOp], extra_pm: Any = None, walk: bool = False) -> UOp:
        """The graph with every key of the mapping replaced by its value."""
        from uopc.ir.rewrite import engine as rewrite

        return rewrite.substitute(self, mapping, extra_pm, walk)

    # ------------------------------------------------------------ scalars
    const = staticmethod(build.const)
    const_like = build.const_like
    variable = staticmethod(build.variable)
    alu = build.alu
    cast = build.cast
    bitcast = build.bitcast

    @staticmethod
    def invalid(dtype: DType = dtypes.bool_) -> UOp:
        """No value."""
        return node.intern(Ops.INVALID, dtype)

    __add__ = _operator(Ops.ADD)
    __radd__ = _operator(Ops.ADD, reverse=True)
    __sub__ = _operator(Ops.SUB)
    __rsub__ = _operator(Ops.SUB, reverse=True)
    __mul__ = _operator(Ops.MUL)
    __rmul__ = _operator(Ops.MUL, reverse=True)
    __truediv__ = tensor.divide
    __rtruediv__ = tensor.divide_reversed
    __floordiv__ = tensor.floor_divide
    __rfloordiv__ = tensor.floor_divide_reversed
    __mod__ = tensor.remainder
    __rmod__ = tensor.remainder_reversed
    __pow__ = tensor.power
    __rpow__ = tensor.power_reversed
    __matmul__ = tensor.matmul
    __rmatmul__ = tensor.matmul_reversed
    __and__ = tensor.bitwise(Ops.AND)
    __rand__ = tensor.bitwise(Ops.AND, reverse=True)
    __or__ = tensor.bitwise(Ops.OR)
    __ror__ = tensor.bitwise(Ops.OR, reverse=True)
    __xor__ = tensor.bitwise(Ops.XOR)
    __rxor__ = tensor.bitwise(Ops.XOR, reverse=True)
    __lshift__ = tensor.bitwise(Ops.SHL)
    __rlshift__ = tensor.bitwise(Ops.SHL, reverse=True)
    __rshift__ = tensor.bitwise(Ops.SHR)
    __rrshift__ = tensor.bitwise(Ops.SHR, reverse=True)
    __lt__ = _operator(Ops.CMPLT)
    __le__ = _operator(Ops.CMPLE)
    __gt__ = _operator(Ops.CMPLT, reverse=True)
    __ge__ = _operator(Ops.CMPLE, reverse=True)
    eq = _operator(Ops.CMPEQ)
    ne = _operator(Ops.CMPNE)
    __neg__ = tensor.negative
    __invert__ = tensor.invert
    __abs__ = tensor.absolute
    maximum = _operator(Ops.MAX)
    minimum = _operator(Ops.MIN)
    where = tensor.where
    mulacc = tensor.mulacc

    # ------------------------------------------------------------ tensors: see tensor.py
    reshape = movement.reshape
    expand = movement.expand
    permute = movement.permute
    flip = movement.flip
    pad = movement.pad
    shrink = movement.shrink
    reduce = movement.reduce
    stack = movement.stack
    cat = movement.cat
    __getitem__ = tensor.getitem
    transpose = tensor.transpose
    flatten = tensor.flatten
    squeeze = tensor.squeeze
    unsqueeze = tensor.unsqueeze
    sum = tensor.sum
    prod = tensor.prod
    max = tensor.max
    min = tensor.min
    mean = tensor.mean
    var = tensor.var
    std = tensor.std
    argmax = tensor.argmax
    argmin = tensor.argmin
    any = tensor.any
    all = tensor.all
    cumsum = tensor.cumsum
    exp = tensor.exp
    exp2 = tensor.exp2
    log = tensor.log
    log2 = tensor.log2
    sin = tensor.sin
    cos = tensor.cos
    tan = tensor.tan
    tanh = tensor.tanh
    erf = tensor.erf
    sqrt = tensor.sqrt
    rsqrt = tensor.rsqrt
    reciprocal = tensor.reciprocal
    sigmoid = tensor.sigmoid
    relu = tensor.relu
    gelu = tensor.gelu
    silu = tensor.silu
    abs = tensor.absolute
    sign = tensor.sign
    trunc = tensor.trunc
    floor = tensor.floor
    ceil = tensor.ceil
    round = tensor.round
    clip = tensor.clip
    pow = tensor.power
    softmax = tensor.softmax
    log_softmax = tensor.log_softmax
    layer_norm = tensor.layer_norm
    rms_norm = tensor.rms_norm
    matmul = tensor.matmul
    conv2d = tensor.conv2d
    avg_pool2d = tensor.avg_pool2d
    max_pool2d = tensor.max_pool2d
    gather = tensor.gather
    take = tensor.take
    one_hot = tensor.one_hot
    tril = tensor.tril
    triu = tensor.triu
    contiguous = tensor.contiguous
    detach = tensor.detach
    assign = tensor.assign
    bind = tensor.bind
    unbind = tensor.unbind

    # ------------------------------------------------------------ kernels: see kernel.py
    index = movement.index
    load = kernel.load
    store = kernel.store
    range = staticmethod(kernel.range)
    end = kernel.end
    after = kernel.after
    sink = kernel.sink
    group = kernel.group


node.set_node_class(UOp)
