"""The methods of UOp, one line each. Importing this module installs them on the class.

A method is a free function whose first parameter is the node. `ir/core/uop.pyi`, which type
checkers read, is generated from this list (`python -m pytest tests/test_style.py --bless`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, fold, kernel, leaves, movement, operands
from uopc.ir.builder.leaves import Scalar
from uopc.ir.core import bounds, dtypes, ranges, serialize, shapes, storage, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import device as devices
from uopc.tensor import (
    elementwise,
    functions,
    indexing,
    nn,
    numpy_protocols,
    scatter,
    statistics,
    table,
    updates,
)
from uopc.tensor.examples import with_name
from uopc.tensor.matrices import products
from uopc.tensor.signals import convolution, fourier, geometry, pooling, resizing
from uopc.tensor.sorts import compaction

Operator = Callable[[UOp, Operand], UOp]
Result = TypeVar("Result")


# ---------------------------------------------------------------- facts
def _number_of_elements(u: UOp) -> Dim:
    """The number of elements.

    Examples:
        >>> x = uopc.zeros((2, 3))
        >>> x.size, x.numel()
        (6, 6)
    """
    return shapes.size(shapes.shape(u))


def _vmin(u: UOp) -> Any:
    """A lower bound of every element.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> (n * 2 - 3).vmin
        -1
    """
    return bounds.bounds(u)[0]


def _vmax(u: UOp) -> Any:
    """An upper bound of every element.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> (n * 2 - 3).vmax, (n < 9).vmax
        (13, True)
    """
    return bounds.bounds(u)[1]


def _ranges(u: UOp) -> tuple[UOp, ...]:
    """The loops around this value, outer first.

    Examples:
        >>> x, i, j = uopc.kernel_param(0, (3, 4)), uopc.UOp.range(3), uopc.UOp.range(4)
        >>> x[i, j].ranges == (i, j)
        True
    """
    return tuple(sorted(ranges.ranges(u), key=lambda r: r.arg.axis))


def _toposort(u: UOp, gate: Any = None) -> dict[UOp, None]:
    """Every node below this node, sources first; `gate(u)` says whether to go below u.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> [u.op for u in (n * 2).toposort()]
        [Ops.VARIABLE, Ops.CONST, Ops.MUL]
    """
    return walk.toposort(u, gate)


# ---------------------------------------------------------------- scalar graphs, text, rewriting
def _evaluate(u: UOp) -> Scalar:
    """The value of a scalar graph of constants. UserError when it depends on anything else."""
    value = _simplify(u)
    if value.op is not Ops.CONST or type(value.arg) is tuple:
        raise UserError(f"{_described(u)} is not a constant: compile it, and call the program")
    return value.arg  # type: ignore[no-any-return]


def _described(u: UOp) -> str:
    if u.op is Ops.PARAM:
        return str(u.arg.name)
    return _render(u) if u.dtype is dtypes.index else shapes.show_value(u)


def _int(u: UOp) -> int:
    return int(_evaluate(u))


def _float(u: UOp) -> float:
    return float(_evaluate(u))


def _simplify(u: UOp) -> UOp:
    """An equal graph, no larger: symbolic rules to a fixed point, in short form.

    Simplifying the result again does not change it.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> (n * 6 // 3).simplify() is n * 2, (n < 9).simplify().arg
        (True, True)
    """
    from uopc.ir.symbolic.simplify import simplified

    return simplified(u)


def _in_python(u: UOp) -> str:
    from uopc.ir.text import printer

    return printer.render(u)


# The writers of expressions by style. `uopc` adds "c", whose rows are those of a backend.
STYLES: dict[str, Callable[[UOp], str]] = {"python": _in_python}


def _render(u: UOp, simplify: bool = True, style: Literal["python", "c"] = "python") -> str:
    """An infix expression such as `((n*4)+3)`; a graph without an infix form prints as by `str`.

    With `style="c"`, an expression of C99 on integers and bools, such as `((n < 3) ? m : 0)`,
    with the value that the graph has. Each variable and range in it is an `int64_t`, or an `int` if
    its bounds fit; values of dtype index must fit in 64 bits. Unsupported when C has no expression,
    UserError for another style.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> (n * 4 + 3).render(), (n // 3).render(style="c")
        ('((n*4)+3)', '(n / 3)')
    """
    if not isinstance(style, str) or style not in STYLES:
        raise UserError(f"render: the style must be python or c, got {style!r}")
    return STYLES[style](_simplify(u) if simplify else u)


def _print(u: UOp) -> str:
    from uopc.ir.text import printer

    return printer.print_graph(u)


def _short(u: UOp) -> str:
    from uopc.ir.text import printer

    return printer.short(u)


def _tree(u: UOp) -> str:
    """The node above its operands, each below its user; the first lines of a big graph.

    A shared node is shown in full once, as `%1 = …`, and then as `%1`.

    Examples:
        >>> x = uopc.param("x", (3,))
        >>> print((x * 2 + x).tree())
        add : f32[3]
          mul : f32[3]
            %1 = param x : f32[3]
            2.0:f32
          %1
    """
    from uopc.ir.text import printer

    return printer.tree(u)


def _substitute(
    u: UOp, mapping: dict[UOp, UOp], extra_pm: Any = None, walk: bool = False
) -> UOp:
    """The graph with every key of the mapping replaced by its value.

    Examples:
        >>> n, m = uopc.variable("n", 1, 8), uopc.variable("m", 1, 8)
        >>> (n * 2 + 1).substitute({n: m}).render()
        '((m*2)+1)'
    """
    from uopc.ir.rewrite import engine

    return engine.substitute(u, mapping, extra_pm, walk)


def _invalid(dtype: DType = dtypes.bool_) -> UOp:
    """No value. As an index it means no access: a read gives 0 and a write does nothing.

    Examples:
        >>> x, i = uopc.constant([1.0, 2.0]), uopc.arange(2)
        >>> place = (i < 1).where(i, uopc.UOp.invalid(dtypes.int32))
        >>> uopc.compile(x[place])()
        array([1., 0.])
    """
    return intern(Ops.INVALID, checks.any_dtype("invalid", dtype))


# ---------------------------------------------------------------- the list
def _reversed(operator: Callable[[Operand, Operand], UOp]) -> Operator:
    return lambda a, b: operator(b, a)


def _left(function: Callable[[UOp, Operand], Result]) -> Callable[[UOp, Operand], Result]:
    """Wrap an operator with a UOp on the left. If the right operand is an Array, let the Array
    answer by its own dtype rules, so that both orders give the same."""

    @functools.wraps(function)
    def operator(a: UOp, b: Any) -> Any:
        return NotImplemented if operands.answers(b) else function(a, b)

    return operator


# With an operand on either side.
_OPERATORS: dict[str, Callable[..., UOp]] = {
    "add": elementwise.operator(Ops.ADD),
    "sub": elementwise.operator(Ops.SUB),
    "mul": elementwise.operator(Ops.MUL),
    "truediv": elementwise.divide,
    "floordiv": elementwise.floored(Ops.FLOORDIV),
    "mod": elementwise.floored(Ops.FLOORMOD),
    "pow": elementwise.power,
    "matmul": products.matmul,
    "and": elementwise.bitwise(Ops.AND),
    "or": elementwise.bitwise(Ops.OR),
    "xor": elementwise.bitwise(Ops.XOR),
    "lshift": elementwise.bitwise(Ops.SHL),
    "rshift": elementwise.bitwise(Ops.SHR),
}


class Methods:
    """A node of the graph: `op` applied to `src`, with a typed constant `arg` and a `dtype`.

    Immutable and interned: building the same node twice gives the same object, so `==` is identity
    (`eq` compares values). `UOp(op, dtype, src, arg, tag)` folds nothing; the methods below fold.

    Examples:
        >>> x = uopc.param("x", (3,))
        >>> y = x * 2 + 1
        >>> y.op, y.dtype, y.shape, y is x * 2 + 1
        (Ops.ADD, dtypes.float32, (3,), True)
        >>> uopc.compile(y)(np.array([1, 2, 3], "f4"))
        array([3., 5., 7.], dtype=float32)
    """

    __array__ = numpy_protocols.array
    __array_ufunc__ = numpy_protocols.array_ufunc
    __array_function__ = numpy_protocols.array_function
    __array_namespace__ = numpy_protocols.array_namespace

    # ------------------------------------------------------------ the graph
    toposort = _toposort
    backward_slice = property(walk.backward_slice)
    get_consumer_map = walk.consumers
    variables = walk.variables
    shape = property(shapes.shape)
    ndim = property(shapes.rank)
    size = property(_number_of_elements)
    numel = _number_of_elements
    base = property(storage.base)
    device = property(devices.device)
    vmin = property(_vmin)
    vmax = property(_vmax)
    ranges = property(_ranges)
    substitute = _substitute
    simplify = _simplify
    render = _render
    __str__ = _print
    __repr__ = _short
    tree = _tree
    __reduce__ = serialize.reduce

    # ------------------------------------------------------------ scalars
    __int__ = _int
    __float__ = _float
    const = staticmethod(leaves.const)
    const_like = leaves.const_like
    variable = staticmethod(operands.variable)
    alu = alu.alu
    cast = elementwise.converted
    astype = elementwise.converted
    bitcast = fold.bitcast

    invalid = staticmethod(_invalid)

    __lt__ = _left(elementwise.operator(Ops.CMPLT))
    __le__ = _left(elementwise.operator(Ops.CMPLE))
    __gt__ = _left(_reversed(elementwise.operator(Ops.CMPLT)))
    __ge__ = _left(_reversed(elementwise.operator(Ops.CMPLE)))
    __neg__ = elementwise.negative
    __pos__ = elementwise.positive
    __invert__ = elementwise.invert
    __abs__ = elementwise.absolute
    __round__ = elementwise.rounded
    __divmod__ = _left(elementwise.divided)
    __rdivmod__ = lambda a, b: elementwise.divided(b, a)  # noqa: E731
    where = elementwise.where
    mulacc = elementwise.mulacc

    # ------------------------------------------------------------ tensors
    reshape = movement.reshape
    expand = movement.expand
    permute = movement.permute
    flip = movement.flip
    pad = movement.pad
    shrink = movement.shrink
    reduce = movement.reduce
    stack = movement.stack
    cat = movement.cat
    __getitem__ = compaction.getitem
    __setitem__ = updates.refused
    at = property(updates.at)
    bincount = scatter.bincount
    nonzero = compaction.nonzero
    histogram = statistics.histogram
    quantile = statistics.quantile
    __iter__ = indexing.iterate
    __contains__ = numpy_protocols.contains
    transpose = indexing.transpose
    T = property(indexing.transpose)
    flatten = indexing.flatten
    unsqueeze = indexing.unsqueeze
    gelu = elementwise.gelu
    softmax = nn.softmax
    log_softmax = nn.log_softmax
    layer_norm = nn.layer_norm
    rms_norm = nn.rms_norm
    conv = convolution.conv
    conv1d = convolution.conv1d
    conv2d = convolution.conv2d
    conv3d = convolution.conv3d
    conv_transpose = convolution.conv_transpose
    windows = geometry.windows
    avg_pool = pooling.avg_pool
    avg_pool2d = pooling.avg_pool2d
    max_pool = pooling.max_pool
    max_pool2d = pooling.max_pool2d
    max_pool_with_indices = pooling.max_pool_with_indices
    resize = resizing.resize
    fft = fourier.fft
    ifft = fourier.ifft
    rfft = fourier.rfft
    irfft = fourier.irfft
    gather = indexing.gather
    one_hot = indexing.one_hot
    contiguous = elementwise.contiguous
    detach = elementwise.detach
    contiguous_backward = elementwise.contiguous_backward
    copy = elementwise.copy
    shard = elementwise.shard
    assign = indexing.assign
    bind = elementwise.bind
    unbind = elementwise.unbind

    # ------------------------------------------------------------ functions
    call = functions.call
    maketuple = staticmethod(functions.maketuple)
    gettuple = functions.gettuple

    # ------------------------------------------------------------ kernels
    index = movement.index
    load = kernel.load
    store = kernel.store
    stage = kernel.stage
    shaped_wmma = kernel.shaped_wmma
    range = staticmethod(kernel.range)
    end = kernel.end
    after = kernel.after
    barrier = kernel.barrier
    sink = kernel.sink
    group = kernel.group


for _name, _function in table.methods().items():
    setattr(Methods, _name, with_name(_function, UOp, _name))
for _name, _function in _OPERATORS.items():
    setattr(Methods, f"__{_name}__", _left(_function))
    setattr(Methods, f"__r{_name}__", _reversed(_function))

_OF_EVERY_CLASS = vars(type("", (), {})).keys()
for _name in vars(Methods).keys() - _OF_EVERY_CLASS | {"__doc__"}:
    setattr(UOp, _name, vars(Methods)[_name])
for _name, _instead in numpy_protocols.OF_ARRAYS.items():
    setattr(UOp, _name, numpy_protocols.missing(_name, _instead))
