"""jvp, vjp, gradients and dense Jacobians of graphs, with JAX's names and meanings.

`wrt` is any node of the graph, or a list or tuple of nodes; so are outputs. A value that does not
depend on `wrt` has the derivative 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uopc.derivatives import batch, functions, walk
from uopc.derivatives.values import Value, filled
from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import leaves, movement, operands
from uopc.ir.core import shapes
from uopc.ir.core.shapes import show, show_value
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp

Nodes = UOp | Sequence[UOp]


# ---------------------------------------------------------------- arguments
def listed(who: str, value: Any, what: str) -> tuple[list[UOp], Callable[[Sequence[Any]], Any]]:
    """The nodes of an argument, and a function that puts values into the argument's container."""
    if isinstance(value, UOp):
        return [value], lambda found: found[0]
    if isinstance(value, (list, tuple)) and all([isinstance(u, UOp) for u in value]):
        return list(value), type(value)
    raise UserTypeError(f"{who}: {what} must be a UOp, or a list or tuple of UOps, got {value!r}")


def inputs_of(who: str, wrt: Any) -> tuple[list[UOp], Callable[[Sequence[Any]], Any]]:
    """Check the nodes to differentiate by; return them and a function that fills their
    container."""
    nodes, put = listed(who, wrt, "what to differentiate by")
    check_floats(who, nodes)
    if len(set(nodes)) < len(nodes):
        raise UserError(f"{who}: the nodes must be different, one is given twice")
    return nodes, put


def like(who: str, name: str, value: Any, node: UOp) -> Value:
    """Check a tangent or cotangent of a node; None is zero."""
    if value is None:
        return None
    made = operands.as_uop(value, node.dtype, who)
    if made.dtype is not node.dtype or shapes.shape(made) != shapes.shape(node):
        kinds = [show_value(u) for u in (made, node)]
        raise UserError(f"{who}: the {name} {kinds[0]} does not fit {kinds[1]}")
    return made


def _all_like(who: str, name: str, values: Any, nodes: list[UOp]) -> list[Value]:
    given = list(values) if isinstance(values, (list, tuple)) else [values]
    if len(given) != len(nodes):
        raise UserError(f"{who}: expected {len(nodes)} {name}s, one per node, got {len(given)}")
    return [like(who, name, v, u) for v, u in zip(given, nodes)]


# ---------------------------------------------------------------- products with vectors
def jvp(outputs: Nodes, wrt: Nodes, tangents: Any) -> Any:
    """The derivative of the outputs in the direction of the tangents, by forward mode.

    A tangent has the dtype and shape of its node; None is zero.
    UserError where it has not, UserTypeError for integers, Unsupported for a kernel by hand.

        >>> x = uopc.param("x", (3,), dtypes.float64)
        >>> t = uopc.jvp(x * x, x, uopc.constant(np.ones(3)))
        >>> uopc.compile(t)(np.array([1.0, 2.0, 3.0]))
        array([2., 4., 6.])
    """
    nodes, put = listed("jvp", outputs, "the outputs")
    inputs, _ = inputs_of("jvp", wrt)
    given = dict(zip(inputs, _all_like("jvp", "tangent", tangents, inputs)))
    found = walk.pushed(nodes, given)
    return put([filled(t, u) for t, u in zip(found, nodes)])


def vjp(outputs: Nodes, wrt: Nodes, cotangents: Any) -> Any:
    """The cotangents of `wrt` from the cotangents of the outputs, by reverse mode.

    A cotangent has the dtype and shape of its output; None is zero. Errors are those of `jvp`.

        >>> x = uopc.param("x", (3,), dtypes.float64)
        >>> xb = uopc.vjp((x * x).sum(), x, uopc.constant(2.0, dtypes.float64))
        >>> uopc.compile(xb)(np.ones(3))
        array([4., 4., 4.])
    """
    nodes, _ = listed("vjp", outputs, "the outputs")
    inputs, put = inputs_of("vjp", wrt)
    given = _all_like("vjp", "cotangent", cotangents, nodes)
    found = walk.pulled(nodes, inputs, given)
    return put([filled(c, u) for c, u in zip(found, inputs)])


def linearize(outputs: Nodes, wrt: Nodes) -> Callable[..., Any]:
    """Return a function that computes the `jvp` of tangents; the outputs are computed once."""
    return lambda *tangents: jvp(
        outputs, wrt, tangents[0] if len(tangents) == 1 else tangents
    )


# ---------------------------------------------------------------- gradients
def grad(loss: UOp, wrt: Nodes) -> Any:
    """The gradient of a scalar by nodes, each in the shape of its node.

    UserError unless the loss is one float.

        >>> x = uopc.param("x", (3,), dtypes.float64)
        >>> uopc.compile(uopc.grad((x * x).sum(), x))(np.array([1.0, 2.0, 3.0]))
        array([2., 4., 6.])
    """
    check_loss("grad", loss)
    inputs, put = inputs_of("grad", wrt)
    found = walk.pulled([loss], inputs, [leaves.const(loss.dtype, 1)])
    return put([filled(c, u) for c, u in zip(found, inputs)])


def value_and_grad(loss: UOp, wrt: Nodes) -> tuple[UOp, Any]:
    """The scalar and its gradient: `(loss, grad(loss, wrt))`. A program shares common work."""
    return loss, grad(loss, wrt)


def check_loss(who: str, loss: Any) -> None:
    """UserError unless a value is one float."""
    if not isinstance(loss, UOp):
        raise UserTypeError(f"{who}: expected a UOp or a function, got {loss!r}")
    if shapes.shape(loss) != () or not loss.dtype.is_float:
        out = "take its sum(), or jacrev"
        raise UserError(f"{who}: needs one float, got {show_value(loss)}; {out}{made_at(loss)}")


def hvp(loss: UOp, wrt: UOp, vector: Any) -> UOp:
    """The Hessian of a scalar times a vector, forward over reverse; costs a few gradients."""
    return jvp(grad(loss, wrt), wrt, vector)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- dense Jacobians
def _units(like: UOp) -> UOp:
    """The one-hot tangents of a node along a new first dimension: an identity matrix."""
    dims = shapes.shape(like)
    n = shapes.size(dims)
    row, column = leaves.iota(n), movement.reshape(leaves.iota(n), (n, 1))
    return movement.reshape(row.eq(column).cast(like.dtype), (n, *dims))


def jacfwd(outputs: Nodes, wrt: Nodes) -> Any:
    """The Jacobian, of shape(output) + shape(wrt), by a batch of `jvp`s, one for each element of
    `wrt`: best for few elements. Of several: for each output, the Jacobians by each of `wrt`.

        >>> x = uopc.param("x", (2,), dtypes.float64)
        >>> uopc.compile(uopc.jacfwd(x * x, x))(np.array([1.0, 3.0]))
        array([[2., 0.],
               [0., 6.]])
    """
    nodes, put = listed("jacfwd", outputs, "the outputs")
    inputs, put_row = inputs_of("jacfwd", wrt)
    columns = [_all_columns(nodes, x) for x in inputs]
    return put([put_row([column[i] for column in columns]) for i in range(len(nodes))])


def _all_columns(nodes: list[UOp], x: UOp) -> list[UOp]:
    """The Jacobians of nodes by one node x."""
    seed = functions.seed(x)
    tangents = walk.pushed(nodes, {x: seed})
    left = iter(batch.mapped([t for t in tangents if t is not None], {seed: _units(x)}))
    return [_columns(None if t is None else next(left), u, x) for t, u in zip(tangents, nodes)]


def _columns(found: Value, u: UOp, x: UOp) -> UOp:
    dims, inner = shapes.shape(u), shapes.shape(x)
    if found is None:
        return leaves.full(leaves.const(u.dtype, 0), (*dims, *inner))
    moved = movement.permute(found, (*range(1, len(dims) + 1), 0))
    return movement.reshape(moved, (*dims, *inner))


def jacrev(outputs: UOp, wrt: Nodes) -> Any:
    """The Jacobian, of shape(output) + shape(wrt), by a batch of `vjp`s, one for each element of
    the output: best if the output has few elements."""
    if not isinstance(outputs, UOp):
        return type(outputs)([jacrev(u, wrt) for u in listed("jacrev", outputs, "the outputs")[0]])
    inputs, put = inputs_of("jacrev", wrt)
    if shapes.shape(outputs) == () and outputs.dtype.is_float:
        return grad(outputs, wrt)
    seed = functions.seed(outputs)
    found = walk.pulled([outputs], inputs, [seed])
    left = iter(batch.mapped([c for c in found if c is not None], {seed: _units(outputs)}))
    made = []
    for c, x in zip(found, inputs):
        dims = (*shapes.shape(outputs), *shapes.shape(x))
        zero = leaves.full(leaves.const(x.dtype, 0), dims)
        made.append(zero if c is None else movement.reshape(next(left), dims))
    return put(made)


def jacobian(outputs: Nodes, wrt: Nodes, mode: str = "auto") -> Any:
    """The dense Jacobian by `jacfwd` or `jacrev`; "auto" takes the mode with fewer passes."""
    nodes, put = listed("jacobian", outputs, "the outputs")
    inputs, put_row = inputs_of("jacobian", wrt)
    if mode not in ("auto", "fwd", "rev"):
        raise UserError(f'jacobian: mode must be "auto", "fwd" or "rev", got {mode!r}')
    return put([put_row([_one_jacobian(u, x, mode) for x in inputs]) for u in nodes])


def _one_jacobian(output: UOp, x: UOp, mode: str) -> UOp:
    if mode == "auto":
        sizes = [shapes.size(shapes.shape(u)) for u in (output, x)]
        few = all([isinstance(n, int) for n in sizes]) and sizes[0] < sizes[1]
        mode = "rev" if few else "fwd"
    return (jacrev if mode == "rev" else jacfwd)(output, x)  # type: ignore[no-any-return]


def hessian(loss: UOp, wrt: Nodes) -> Any:
    """The matrix of second derivatives of a scalar, of shape(wrt) + shape(wrt): forward over
    reverse. For several nodes: a matrix for each pair of nodes."""
    return jacfwd(grad(loss, wrt), wrt)


def check_floats(who: str, nodes: Sequence[UOp]) -> None:
    """UserTypeError for a node that has no derivatives."""
    for u in nodes:
        if not u.dtype.is_float:
            raise UserTypeError(f"{who}: {u.dtype.name} has no derivatives{made_at(u)}")


# ---------------------------------------------------------------- batches
def vmap(outputs: Nodes, batched: Mapping[UOp, Any]) -> Any:
    """The outputs for every row of `batched`: keys become values along a new first dimension.

    UserError for values of another dtype or shape, or of different lengths.
    """
    nodes, put = listed("vmap", outputs, "the outputs")
    if not isinstance(batched, Mapping) or not batched:
        raise UserTypeError("vmap: expected a dict of nodes and their batches, such as {x: xs}")
    given = {}
    for u, values in batched.items():
        made = operands.as_uop(values, u.dtype, "vmap")
        if made.dtype is not u.dtype or shapes.shape(made)[1:] != shapes.shape(u):
            kinds = [show_value(v) for v in (made, u)]
            raise UserError(f"vmap: {kinds[0]} is not a batch of {kinds[1]}")
        given[u] = made
    lengths = {shapes.shape(v)[0] for v in given.values()}
    if len(lengths) > 1:
        raise UserError(f"vmap: batches of different lengths: {show(tuple(lengths))}")
    return put(batch.mapped(nodes, given))
