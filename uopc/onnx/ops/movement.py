"""Operators that move elements, and constants."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import Unsupported, UserError
from uopc.ir.core import shapes
from uopc.ir.index.dims import maximum, minimum
from uopc.onnx.node import MOST_PARTS, Node, along, dims, few, normal, places
from uopc.onnx.registry import op
from uopc.onnx.values import DTYPES, Array, as_size, dtype_of_sizes, has_symbols, objects
from uopc.tensor import padding
from uopc.tensor.indexing import tiled


def sizes(values: Any) -> Array:
    """A shape as an array, of objects if a size is symbolic."""
    if all([isinstance(v, int) for v in values]):
        return np.asarray(values, np.int64).reshape(len(values))
    return objects(values)


@op("Shape")
def shape(n: Node) -> Array:
    """The sizes from `start` to `end`, known now."""
    x = n.raw(0)
    found = tuple(x.shape) if isinstance(x, np.ndarray) else dims(n.x(0))
    return sizes(found[slice(n.attr("start", 0), n.attr("end", None))])


@op("Size")
def size(n: Node) -> Any:
    """The number of elements, known now."""
    total: Any = 1
    for d in dims(n.x(0)):
        total = d * total
    return np.asarray(total, np.int64) if isinstance(total, int) else objects([total]).reshape(())


@op("Constant")
def constant(n: Node) -> Any:
    """The array that an attribute holds."""
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
             "value_ints": np.int64}  # fmt: skip
    for name, value in n.attributes.items():
        if name == "value":
            return value
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise Unsupported(f"Constant with {', '.join(n.attributes) or 'no value'} is not supported")


@op("ConstantOfShape")
def constant_of_shape(n: Node) -> UOp:
    """Fill a shape with one value."""
    value = n.attr("value", np.zeros(1, np.float32)).reshape(-1)[0]
    given = n.ints(0)
    assert given is not None
    return uopc.full(tuple(given), value.item(), dtypes.from_numpy(value.dtype))


@op("Range")
def arange(n: Node) -> UOp:
    """Count by known steps, which must be whole numbers if a number is symbolic."""
    known: list[Any] = [n.known(k) for k in range(3)]
    if not any(map(has_symbols, known)):
        begin, end, step = [v.reshape(-1)[0] for v in known]
        few((float(end) - float(begin)) / float(step), "Range")
        return uopc.constant(np.arange(begin, end, step, dtype=known[0].dtype))
    if not all([has_symbols(v) or (v == np.trunc(v)).all() for v in known]):
        raise Unsupported("a Range of symbolic length must count in whole numbers")
    begin, end, step = [as_size(v.reshape(-1)[0]) for v in known]
    if not isinstance(step, int) or step == 0:
        raise Unsupported("a Range of symbolic length must have a known step")
    (kind,) = {dtype_of_sizes(v) for v in known if has_symbols(v)}
    made = uopc.arange(maximum(-((begin - end) // step), 0), dtype=kind)
    if (begin, step) == (0, 1):
        return made
    return made * step + (begin.cast(kind) if isinstance(begin, UOp) else begin)


# ---------------------------------------------------------------- views
@op("Reshape")
def reshape(n: Node) -> Any:
    """Reshape. A size of 0 copies the input's unless `allowzero`; -1 is inferred."""
    wanted = n.ints(1) if n.has(1) else list(n.attr("shape", []))
    assert wanted is not None
    x = n.x(0)
    if not n.attr("allowzero", 0):
        own = dims(x)
        zeros = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == 0]
        if any([i >= len(own) for i in zeros]):
            raise UserError(f"the shape {wanted} copies a size that is not in {shapes.show(own)}")
        wanted = [own[i] if i in zeros else d for i, d in enumerate(wanted)]
    return x.reshape(tuple(wanted))


@op("Flatten")
def flatten(n: Node) -> UOp:
    """Merge the axes before `axis` into one, and the others into another."""
    x = n.x(0)
    axis = n.attr("axis", 1)
    own = dims(x)
    axis = axis if axis >= 0 else axis + len(own)
    lead: Any = 1
    rest: Any = 1
    for i, d in enumerate(own):
        lead, rest = (lead * d, rest) if i < axis else (lead, rest * d)
    return x.reshape(lead, rest)


@op("Squeeze")
def squeeze(n: Node) -> UOp:
    """Remove axes of size 1: the given ones, or all."""
    x, axes = n.x(0), n.ints_of(1, "axes")
    own = dims(x)
    gone = {i for i, d in enumerate(own) if d == 1} if axes is None else {
        normal(a, len(own)) for a in axes
    }  # fmt: skip
    if axes is None:
        x = _without_ones(x)
    if any([isinstance(own[i], int) and own[i] != 1 for i in gone]):
        raise UserError(f"axes {sorted(gone)} of {shapes.show(own)} must have size 1")
    return x.reshape(tuple([d for i, d in enumerate(own) if i not in gone]))


def _without_ones(x: UOp) -> UOp:
    """Return x on the condition that no symbolic size is 1: squeezing would remove such an axis."""
    own = dims(x)
    more = [0 if isinstance(d, int) else d - 2 for d in own]
    return x.pad([(m, 0) for m in more]).shrink([(m, m + d) for m, d in zip(more, own)])


@op("Unsqueeze")
def unsqueeze(n: Node) -> UOp:
    """Insert axes of size 1."""
    x, axes = n.x(0), n.ints_of(1, "axes")
    own, new = list(dims(x)), list(axes or [])
    rank = len(own) + len(new)
    for axis in sorted([normal(a, rank) for a in new]):
        own.insert(axis, 1)
    return x.reshape(tuple(own))


@op("Transpose")
def transpose(n: Node) -> UOp:
    x = n.x(0)
    return x.permute(tuple(n.attr("perm", list(reversed(range(len(x.shape)))))))


@op("Concat")
def concat(n: Node) -> UOp:
    first, *rest = n.all()
    return uopc.cat(first, *rest, axis=n.axis(1, len(first.shape)))


@op("Split")
def split(n: Node) -> Any:
    """Split into parts of given sizes, or of equal sizes."""
    x = n.x(0)
    axis = n.axis(0, len(x.shape))
    sizes = n.ints_of(1, "split")
    if sizes is None:
        whole, count = dims(x)[axis], n.attr("num_outputs", n.outputs)
        few(count, "Split", MOST_PARTS)
        each = -(-whole // count)
        sizes = [maximum(minimum(each, whole - i * each), 0) for i in range(count)]
    begins = [0, *itertools.accumulate(sizes)]
    every = [(0, d) for d in dims(x)]
    parts = zip(begins, begins[1:])
    return tuple([x.shrink([*every[:axis], part, *every[axis + 1 :]]) for part in parts])


@op("Slice", since=10)
def slice_(n: Node) -> UOp:
    """Slice. From version 10 on, starts, ends, axes and steps are inputs."""
    begins, ends = n.ints(1), n.ints(2)
    axes, steps = n.ints(3), n.ints(4)
    assert begins is not None and ends is not None
    return _sliced(n.x(0), begins, ends, axes, steps)


@op("Slice")
def slice_1(n: Node) -> UOp:
    return _sliced(n.x(0), n.attr("starts", []), n.attr("ends", []), n.attr("axes", None), None)


def _sliced(x: UOp, begins: Any, ends: Any, axes: Any, steps: Any) -> UOp:
    key = [slice(None)] * len(x.shape)
    for k, axis in enumerate(range(len(begins)) if axes is None else axes):
        axis = normal(axis, len(key))
        begin, end, step = begins[k], ends[k], 1 if steps is None else steps[k]
        if step < 0 and isinstance(end, int) and isinstance(x.shape[axis], int):
            end = None if end < -x.shape[axis] else end
        key[axis] = slice(begin, _end(end), step)
    return x[tuple(key)]


def _end(end: Any) -> Any:
    """Return the end of a slice; None, the end of the axis, for the greatest integers."""
    return None if isinstance(end, int) and end >= 2**31 - 1 else end


@op("Expand")
def expand(n: Node) -> UOp:
    """Broadcast to a shape."""
    x, wanted = n.x(0), n.ints(1)
    assert wanted is not None
    return x.expand(shapes.broadcast([dims(x), tuple(wanted)]))


@op("Tile")
def tile(n: Node) -> UOp:
    """Repeat along each axis."""
    x, times = n.x(0), n.ints(1)
    assert times is not None
    return tiled(x, times)


@op("Pad")
def pad(n: Node) -> UOp:
    """Pad both ends of axes; a negative width removes elements."""
    x = n.x(0)
    rank = len(x.shape)
    given = n.ints_of(1, "pads")
    assert given is not None
    axes = n.ints(3)
    chosen = list(range(rank)) if axes is None else [normal(a, rank) for a in axes]
    widths = [(0, 0)] * rank
    for k, axis in enumerate(chosen):
        widths[axis] = given[k], given[k + len(chosen)]
    x = x.shrink([(maximum(-a, 0), d - maximum(-b, 0)) for (a, b), d in zip(widths, dims(x))])
    widths = [(maximum(a, 0), maximum(b, 0)) for a, b in widths]
    mode = n.attr("mode", "constant")
    if mode == "constant":
        value = n.maybe(2) if n.has(2) else n.attr("value", 0.0)
        if isinstance(value, UOp):
            return padding.filled(x, widths, value.reshape(()))
        return x.pad(widths, float(value or 0) if x.dtype.is_float else int(value or 0))
    for axis, (a, b) in enumerate(widths):
        if not isinstance(long := dims(x)[axis] + a + b, UOp):
            few(long, "Pad")
        x = padding.repeated(x, axis, mode, a, b)
    return x


@op("DepthToSpace")
def depth_to_space(n: Node) -> UOp:
    """Move channels into blocks of pixels."""
    x, b = n.x(0), n.attr("blocksize", 1)
    batch, c, h, w = dims(x)
    if n.attr("mode", "DCR") == "DCR":
        y = x.reshape(batch, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(batch, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(batch, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(n: Node) -> UOp:
    """Move blocks of pixels into channels."""
    x, b = n.x(0), n.attr("blocksize", 1)
    batch, c, h, w = dims(x)
    crd = n.attr("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)
    y = x.reshape(batch, c, h // b, b, w // b, b).permute(order)
    return y.reshape(batch, c * b * b, h // b, w // b)


@op("EyeLike")
def eye_like(n: Node) -> UOp:
    """Ones on a diagonal, in the shape of the input."""
    x = n.x(0)
    rows, columns = dims(x)
    kind = DTYPES[n.attr("dtype", 0)] if n.attr("dtype", 0) else x.dtype
    across, down = uopc.arange(columns, dtype=dtypes.int64), uopc.arange(rows, dtype=dtypes.int64)
    made: UOp = (down.unsqueeze(1) + n.attr("k", 0)).eq(across).cast(kind)
    return made


@op("Trilu")
def trilu(n: Node) -> UOp:
    """The upper or lower triangle."""
    x, offset = n.x(0), int(n.first(1) or 0)
    return x.triu(offset) if n.attr("upper", 1) else x.tril(offset)


@op("OneHot")
def one_hot(n: Node) -> UOp:
    """Put one value at the index along a new axis, and another value elsewhere."""
    index, depth, values = n.x(0), n.ints(1), n.x(2)
    assert depth is not None
    axis = n.attr("axis", -1)
    axis = axis if axis >= 0 else axis + len(index.shape) + 1
    index = uopc.where(index < 0, index + depth[0], index)
    every = along(uopc.arange(depth[0]), axis, len(index.shape) + 1).cast(index.dtype)
    is_on = index.unsqueeze(axis).eq(every)
    return uopc.where(is_on, values[1], values[0])


@op("ReverseSequence")
def reverse_sequence(n: Node) -> UOp:
    """Reverse the first elements along the time axis, as many as each batch says."""
    x, lengths = n.x(0), n.x(1)
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    rank = len(x.shape)
    at, until = places(x.shape[time], time, rank), along(lengths, batch, rank)
    index = uopc.where(at < until, until - 1 - at, at).expand(x.shape)
    return x.gather(time, index)
