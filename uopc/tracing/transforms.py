"""Derivatives and batches of graphs and of functions, under the same names.

Nodes give nodes: `uopc.grad(loss, w)`. A function gives a function, as in JAX: `uopc.grad(f)(w)`,
which is traced like a function of `jit`. If it is called with arrays outside of a traced function,
each call traces it, and compiles it unless an equal graph has been compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from uopc.derivatives import batch, transforms, walk
from uopc.derivatives import functions as calls
from uopc.derivatives.values import Value, filled
from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import leaves, movement, rebuild
from uopc.ir.builder.pytrees import flatten, spread, unflatten
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import show_value
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Mesh
from uopc.numpy.array import Array, births, current_trace, trace_of, uop_of
from uopc.sparse import matrices
from uopc.sparse import transforms as sparse_transforms
from uopc.sparse.matrices import Mode, Part
from uopc.sparse.sparsity import Format, Sparse, Sparsity
from uopc.tracing import memory
from uopc.tracing.jit import begun_trace, jit

Function = Callable[..., Any]
Axes = Any  # an int, None, or containers of them


# ---------------------------------------------------------------- a traced call
class SeededCall:
    """One run of a function whose differentiated arguments are seeds: PARAMs that `closed` later
    replaces by the arguments."""

    def __init__(self, who: str, f: Function, args: Any) -> None:
        self.who, self.name, self._begun = who, _name(f), next(births)
        values = [v for _, v in flatten(args)[0]]
        self._of_uops = any(isinstance(v, UOp) for v in values)
        self._trace = trace_of(values) or current_trace.get()
        self.seeds: list[UOp] = []
        self.given: dict[UOp, UOp] = {}  # by seed

    def opened(self, tree: Any, floats: bool = True) -> tuple[Any, list[UOp], Any]:
        """Replace the values of a container by seeds; return container, seeds and structure."""
        found, structure = flatten(tree)
        seeds = []
        for path, leaf in found:
            u = uop_of(leaf, f"{self.who} of {self.name}: the argument{path}")
            if floats and not u.dtype.is_float:
                raise UserTypeError(
                    f"{self.who} of {self.name}: the argument{path} is {u.dtype.name}, which has no"
                    " derivatives: choose others by argnums"
                )
            seed = calls.seed(u)
            self.given[seed] = u
            seeds.append(seed)
        weak = [isinstance(leaf, Array) and leaf.weak for _, leaf in found]
        self.seeds += seeds
        return unflatten(structure, map(self.value, seeds, weak)), seeds, structure

    def results(self, tree: Any) -> tuple[list[UOp], Any]:
        """The nodes of a result, and its structure."""
        found, structure = flatten(tree)
        nodes = [self._result(path, leaf) for path, leaf in found]
        return memory.as_values(nodes, self.seeds), structure

    def run(self, f: Function, *args: Any, **named: Any) -> Any:
        """Call a function, which may write to arrays that were made since this call began."""
        return memory.run_body(self.who, self._begun, f, *args, **named)

    def _result(self, path: str, leaf: Any) -> UOp:
        if isinstance(leaf, Array) and leaf.tracing not in (None, self._trace):
            trace_of((leaf, Array(leaf.uop, self._trace)))
        try:
            return uop_of(leaf)
        except UserTypeError:
            raise UserTypeError(
                f"{self.who}: {self.name} must give arrays or containers of arrays, got"
                f" {type(leaf).__name__}{path and f' at {path}'}"
            ) from None

    def closed(self, values: Sequence[UOp], more: Mapping[UOp, UOp] | None = None) -> list[Any]:
        """Replace the seeds in values by the arguments."""
        root = intern(Ops.TUPLE, dtypes.void, tuple(values))
        made = rebuild.rebuild(root, self.given | dict(more or {}))
        return [self.value(u) for u in made.src]

    def value(self, u: UOp, weak: bool = False) -> Any:
        return u if self._of_uops else Array(u, self._trace, weak)

    def closed_tree(self, tree: Any) -> Any:
        found, structure = self.results(tree)
        return unflatten(structure, self.closed(found))


def _name(f: Function) -> str:
    return str(getattr(f, "__name__", type(f).__name__))


def _is_traced(tree: Any) -> bool:
    """True if a call with these arguments adds to a graph that is being built."""
    if current_trace.get() is not None:
        return True
    found = [leaf for _, leaf in flatten(tree)[0]]
    return any([isinstance(v, UOp) or (isinstance(v, Array) and v.is_unknown) for v in found])


def _is_value(leaf: Any) -> bool:
    """True for an argument of the program; other leaves (an int, a text) are constants."""
    return isinstance(leaf, (float, Array)) or hasattr(leaf, "dtype")


def derived(
    who: str, f: Function, build: Callable[..., Any], mesh: Mesh | None = None
) -> Function:
    """The function that `build` traces, on a mesh if given. Each call without traced arguments
    traces again, because f may read values that change; equal graphs are compiled once."""
    if not callable(f):
        raise UserTypeError(f"{who}: expected a UOp or a function, got {f!r}")

    @functools.wraps(f)
    def called(*args: Any, **named: Any) -> Any:
        if _is_traced((args, named)):
            return build(*args, **named)
        found, structure = flatten((args, named))
        values = [leaf for _, leaf in found if _is_value(leaf)]
        fixed = [None if _is_value(leaf) else (leaf,) for _, leaf in found]
        return _program(f"{who}_{_name(f)}", build, structure, fixed, mesh)(values)

    called.__name__ = f"{who}_{_name(f)}"
    return called


def _program(
    name: str, build: Function, structure: Any, fixed: Sequence[Any], mesh: Mesh | None
) -> Any:
    def traced(values: list[Any]) -> Any:
        left = iter(values)
        args, named = unflatten(structure, [next(left) if v is None else v[0] for v in fixed])
        return build(*args, **named)

    traced.__name__ = name
    return jit(traced, mesh=mesh)


def _argnums(who: str, argnums: Any, count: int) -> list[int]:
    chosen = argnums if isinstance(argnums, (tuple, list)) else [argnums]
    for i in chosen:
        if isinstance(i, bool) or not isinstance(i, int) or not -count <= i < count:
            raise UserError(
                f"{who}: argnums must be below {count}, the number of arguments by position, got"
                f" {argnums!r}"
            )
    found = [i % count for i in chosen]
    if len(set(found)) < len(found):
        raise UserError(f"{who}: argnums must name different arguments, got {argnums!r}")
    return found


def _with_aux(who: str, name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Split the function's result into the value and, with has_aux, the auxiliary value."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise UserTypeError(f"{who}: with has_aux, {name} must give a pair")
    return result


class _Arguments:
    """The arguments of a call, with seeds for the arguments in `argnums`."""

    def __init__(self, who: str, f: Function, argnums: Any, args: Any, named: Any) -> None:
        self.call = SeededCall(who, f, (args, named))
        self._single = not isinstance(argnums, (tuple, list))
        values = list(args)
        self.seeds: list[UOp] = []
        self._structures: list[tuple[Any, int]] = []
        for i in _argnums(who, argnums, len(args)):
            values[i], seeds, structure = self.call.opened(args[i])
            self.seeds += seeds
            self._structures.append((structure, len(seeds)))
        self.result = self.call.run(f, *values, **named)

    def put(self, values: Iterable[Any]) -> Any:
        """Put values into the containers of the chosen arguments."""
        left = iter(values)
        trees = [unflatten(s, [next(left) for _ in range(n)]) for s, n in self._structures]
        return trees[0] if self._single else tuple(trees)

    def with_aux(self, has_aux: bool) -> tuple[Any, Any]:
        return _with_aux(self.call.who, self.call.name, self.result, has_aux)


# ---------------------------------------------------------------- gradients
def grad(f: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
    """The gradient of a scalar: `grad(loss, wrt)` of nodes, `grad(f)` of a function.

    Of nodes: `wrt`, the second argument, is a node or a list or tuple of nodes, and so is the
    result. Of a function: a function of the same arguments, which gives the gradient by the
    arguments in `argnums` (an int, or a tuple), in their containers. With `has_aux`, f gives a
    pair, and the second value is returned, too. UserTypeError unless f is a node or a function,
    UserError unless the scalar is one float.

        >>> uopc.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
        array([2., 4.])
    """
    if isinstance(f, UOp):
        return transforms.grad(f, argnums)
    if not callable(f):
        raise UserTypeError(f"grad: expected a UOp or a function, got {f!r}")
    both = value_and_grad(f, argnums, has_aux)

    def build(*args: Any, **named: Any) -> Any:
        value, found = both(*args, **named)
        return (found, value[1]) if has_aux else found

    return derived("grad", f, build)


def value_and_grad(f: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
    """The scalar and its gradient, see `grad`: `(loss, gradient)`, or a function with this result.

    UserError unless the function gives one float.

        >>> uopc.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
        (array(5.), array([2., 4.]))
    """
    if isinstance(f, UOp):
        return transforms.value_and_grad(f, argnums)

    def build(*args: Any, **named: Any) -> Any:
        given = _Arguments("grad", f, argnums, args, named)
        value, aux = given.with_aux(has_aux)
        loss = given.call._result("", value)
        if shapes.shape(loss) != () or not loss.dtype.is_float:
            raise UserError(
                f"grad: {_name(f)} must give one float, got {show_value(loss)}; take its sum(), or"
                f" jacrev{made_at(loss)}"
            )
        found = walk.pulled([loss], given.seeds, [leaves.const(loss.dtype, 1)])
        full = [filled(c, s) for c, s in zip(found, given.seeds)]
        first, *rest = given.call.closed([loss, *full])
        first = (first, given.call.closed_tree(aux)) if has_aux else first
        return first, given.put(rest)

    return derived("value_and_grad", f, build)


# ---------------------------------------------------------------- products with vectors
def _cotangents(
    call: SeededCall, name: str, tree: Any, nodes: Sequence[UOp], structure: Any
) -> list[Value]:
    """Check a container of tangents or cotangents; return its values."""
    found, given = flatten(tree)
    if given != structure:
        wanted = "must have the containers of the values"
        raise UserError(f"{call.who} of {call.name}: the {name}s {wanted}")
    return [
        transforms.like(call.who, name, uop_of(v, call.who, u.dtype), u)
        if u.dtype.is_float
        else None
        for (_, v), u in zip(found, nodes)
    ]


def jvp(f: Any, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The derivative in a direction, by forward mode: `jvp(outputs, wrt, tangents)` of nodes, and
    `jvp(f, primals, tangents)`, a pair of the value and its tangent, of a function.

    Primals and tangents are tuples of the arguments. They must have the same containers, dtypes and
    shapes: else UserTypeError or UserError.

        >>> uopc.jvp(lambda x: x * x, (np.array([1.0, 3.0]),), (np.array([1.0, 1.0]),))
        (array([1., 9.]), array([2., 6.]))
    """
    if not callable(f):
        return transforms.jvp(f, primals, tangents)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise UserTypeError("jvp: primals and tangents must be tuples of the arguments of f")

    def build(primals: Any, tangents: Any) -> Any:
        call = SeededCall("jvp", f, (primals, tangents))
        values, seeds, structure = call.opened(tuple(primals))
        given = _cotangents(call, "tangent", tuple(tangents), seeds, structure)
        result, aux = _with_aux(call.who, call.name, call.run(f, *values), has_aux)
        nodes, form = call.results(result)
        found = walk.pushed(nodes, dict(zip(seeds, given)))
        made = call.closed([*nodes, *[filled(t, u) for t, u in zip(found, nodes)]])
        halves = made[: len(nodes)], made[len(nodes) :]
        both = unflatten(form, halves[0]), unflatten(form, halves[1])
        return (*both, call.closed_tree(aux)) if has_aux else both

    return derived("jvp", f, build)(tuple(primals), tuple(tangents))


def vjp(f: Any, *primals: Any, has_aux: bool = False) -> Any:
    """Products with a Jacobian from the left, by reverse mode: `vjp(outputs, wrt, cotangents)` of
    nodes, and `vjp(f, *primals)` of a function. The latter gives a pair: the value of f, and a
    function from cotangents of the value to a tuple of cotangents of the primals.

        >>> value, pull = uopc.vjp(lambda x: x * x, np.array([1.0, 3.0]))
        >>> pull(np.array([1.0, 1.0]))
        (array([2., 6.]),)
    """
    if not callable(f):
        return transforms.vjp(f, *primals)
    if not _is_traced(primals):
        both = derived("vjp", f, lambda *p: f(*p))(*primals)
        value, aux = _with_aux("vjp", _name(f), both, has_aux)

        def build(primals: Any, cotangents: Any) -> Any:
            return vjp(f, *primals, has_aux=has_aux)[1](cotangents)

        later = derived("vjp", f, build)
        pull = lambda cotangents: later(primals, cotangents)  # noqa: E731
        return (value, pull, aux) if has_aux else (value, pull)
    call = SeededCall("vjp", f, primals)
    values, seeds, structure = call.opened(primals)
    result, aux = _with_aux(call.who, call.name, call.run(f, *values), has_aux)
    nodes, form = call.results(result)

    def pulled(cotangents: Any) -> Any:
        given = _cotangents(call, "cotangent", cotangents, nodes, form)
        found = walk.pulled(nodes, seeds, given)
        made = call.closed([filled(c, s) for c, s in zip(found, seeds)])
        return unflatten(structure, made)

    value = unflatten(form, call.closed(nodes))
    return (value, pulled, call.closed_tree(aux)) if has_aux else (value, pulled)


def linearize(f: Any, *primals: Any, has_aux: bool = False) -> Any:
    """The value, and the function that maps tangents to the value's derivative: `linearize(f,
    *primals)`; with `has_aux`, the auxiliary value of f is the third. Of nodes: `linearize(outputs,
    wrt)`, the function alone.

        >>> value, push = uopc.linearize(lambda x: x * x, np.array([1.0, 3.0]))
        >>> push(np.array([1.0, 1.0]))
        array([2., 6.])
    """
    if not callable(f):
        return transforms.linearize(f, *primals)
    both = derived("linearize", f, lambda *p: f(*p))(*primals)
    value, aux = _with_aux("linearize", _name(f), both, has_aux)

    def push(*tangents: Any) -> Any:
        return jvp(f, primals, tangents, has_aux)[1]

    return (value, push, aux) if has_aux else (value, push)


# ---------------------------------------------------------------- Jacobians
def _jacobian(
    who: str, f: Function, argnums: Any, has_aux: bool, rows: Callable[..., list[list[UOp]]]
) -> Function:
    """Make the function of dense Jacobians: for each result, the containers of the arguments."""

    def build(*args: Any, **named: Any) -> Any:
        given = _Arguments(who, f, argnums, args, named)
        result, aux = given.with_aux(has_aux)
        nodes, form = given.call.results(result)
        made = rows(nodes, given.seeds)  # of each result, by each argument
        closed = iter(given.call.closed([u for row in made for u in row]))
        trees = [given.put([next(closed) for _ in row]) for row in made]
        found = unflatten(form, trees)
        return (found, given.call.closed_tree(aux)) if has_aux else found

    return derived(who, f, build)


def _forward_rows(nodes: list[UOp], seeds: list[UOp]) -> list[list[UOp]]:
    columns = [transforms.jacfwd(nodes, s) for s in seeds]
    return [[column[i] for column in columns] for i in range(len(nodes))]


def _reverse_rows(nodes: list[UOp], seeds: list[UOp]) -> list[list[UOp]]:
    return [transforms.jacrev(u, seeds) for u in nodes]


def _either_rows(nodes: list[UOp], seeds: list[UOp]) -> list[list[UOp]]:
    return [[transforms.jacobian(u, s) for s in seeds] for u in nodes]


def jacfwd(f: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
    """The Jacobian by forward mode, one pass for each element of the arguments.

    Of nodes: `jacfwd(output, wrt)`, of shape(output) + shape(wrt). Of a function: a function of the
    same arguments; see `grad` for argnums and has_aux.

        >>> uopc.jacfwd(lambda x: x * x)(np.array([1.0, 3.0]))
        array([[2., 0.],
               [0., 6.]])
    """
    if not callable(f):
        return transforms.jacfwd(f, argnums)
    return _jacobian("jacfwd", f, argnums, has_aux, _forward_rows)


def jacrev(f: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
    """The Jacobian by reverse mode, one pass for each element of the results; see `jacfwd`.

        >>> uopc.jacrev(lambda x: (x * x).sum())(np.array([1.0, 3.0]))
        array([2., 6.])
    """
    if not callable(f):
        return transforms.jacrev(f, argnums)
    return _jacobian("jacrev", f, argnums, has_aux, _reverse_rows)


def jacobian(
    f: Any, argnums: Any = 0, has_aux: bool = False, mode: Mode = "auto",
    format: Format | None = None, constants: Literal["split"] | None = None,
) -> Any:  # fmt: skip
    """The Jacobian by the mode with fewer passes; see `jacfwd`. Of nodes: `jacobian(output, wrt)`.

    With a format ("csc", "csr", "coo" or "triplet") the Jacobian is one Sparse: its rows are the
    elements of all results, its columns the elements of all arguments. Only its entries are
    computed. mode: "direct" computes each entry once, "fwd", "rev" and "bidirectional" take a
    product for each colour of columns, rows or both; "auto" takes the mode with the fewest
    operations. With constants="split", entries that are numbers are in `constants`, not in `data`.
    UserError for another mode or format.

        >>> uopc.jacobian(lambda x: x.sum())(np.array([1.0, 3.0]))
        array([1., 1.])
        >>> uopc.jacobian(lambda x: x[1:] * x[:-1], format="csc")(np.array([1.0, 3.0, 5.0])).data
        array([3., 1., 5., 3.])
    """
    if format is not None:
        if not callable(f):
            return sparse_transforms.jacobian(f, argnums, format, mode, constants)
        matrices.check("jacobian", format, mode, "full", constants)

        def sparse(nodes: list[UOp], seeds: list[UOp]) -> Sparse:
            return sparse_transforms.jacobian(nodes, seeds, format, mode, constants)

        return _matrix("jacobian", f, argnums, has_aux, sparse)
    if not callable(f):
        return transforms.jacobian(f, argnums, mode)
    rows = {"auto": _either_rows, "fwd": _forward_rows, "rev": _reverse_rows}
    if mode not in rows:
        raise UserError(f'jacobian: mode must be "auto", "fwd" or "rev", got {mode!r}')
    return _jacobian("jacobian", f, argnums, has_aux, rows[mode])


def _matrix(
    who: str, f: Function, argnums: Any, has_aux: bool, make: Callable[..., Any]
) -> Function:
    """Make the function that gives one matrix: the derivatives of all results by all arguments."""

    def build(*args: Any, **named: Any) -> Any:
        given = _Arguments(who, f, argnums, args, named)
        result, aux = given.with_aux(has_aux)
        made = make(given.call.results(result)[0], given.seeds)
        if isinstance(made, Sparse):
            (data,) = given.call.closed([made.data])
            made = replace(made, data=data)
        return (made, given.call.closed_tree(aux)) if has_aux else made

    return derived(who, f, build)


def sparsity(f: Any, argnums: Any = 0, format: Format = "csc") -> Any:
    """The entries of a Jacobian that may not be zero: `sparsity(outputs, wrt)` of nodes, a
    Sparsity, and of a function `sparsity(f)(x)`. Nothing is computed; only the shapes and dtypes of
    the arguments matter.

        >>> uopc.sparsity(lambda x: x.cumsum(0))(np.ones(3)).todense().astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 1]])
    """
    if not callable(f):
        return sparse_transforms.sparsity(f, argnums, format)
    matrices.check("sparsity", format)

    def found(*args: Any, **named: Any) -> Sparsity:
        trace = current_trace.get() or begun_trace("sparsity")
        token = current_trace.set(trace)  # loops and derivatives in f are part of the graph
        try:
            given = _Arguments("sparsity", f, argnums, args, named)
            nodes, _ = given.call.results(given.result)
            return matrices.sparsity(nodes, given.seeds, format)
        finally:
            current_trace.reset(token)
            trace.open = current_trace.get() is trace

    return found


def hessian(
    f: Any, argnums: Any = 0, has_aux: bool = False, mode: Mode = "auto",
    format: Format | None = None, part: Part = "full", constants: Literal["split"] | None = None,
) -> Any:  # fmt: skip
    """The second derivatives of a function, forward over reverse; see `jacfwd`. Of nodes:
    `hessian(loss, wrt)` of a scalar, of shape(wrt) + shape(wrt).

    With a format the Hessian is one Sparse by all elements of the arguments, see `jacobian`;
    part="lower" (or "upper") leaves out entries above (below) the diagonal. mode="star" takes a
    product for each colour of a star colouring. UserError unless the function gives one float, and
    for mode, part or constants without a format.

        >>> uopc.hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
        >>> uopc.hessian(lambda x: (x**3).sum(), format="csc")(np.array([1.0, 2.0])).data
        array([ 6., 12.])
    """
    if format is None:
        if mode != "auto" or part != "full" or constants is not None:
            raise UserError("hessian: mode, part and constants need a sparse format=, such as csc")
        if not callable(f):
            return transforms.hessian(f, argnums)
        return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)
    if not callable(f):
        return sparse_transforms.hessian(f, argnums, format, mode, part, constants)
    matrices.check("hessian", format, mode, part, constants)

    def sparse(nodes: list[UOp], seeds: list[UOp]) -> Sparse:
        if len(nodes) != 1:
            raise UserError(f"hessian: {_name(f)} must give one float, got {len(nodes)} results")
        return sparse_transforms.hessian(nodes[0], seeds, format, mode, part, constants)

    return _matrix("hessian", f, argnums, has_aux, sparse)


def hvp(f: Any, primals: Any, tangents: Any) -> Any:
    """The Hessian of a scalar times a vector: `hvp(loss, wrt, vector)` of nodes, and
    `hvp(f, primals, tangents)` of a function, with tuples of its arguments.

        >>> uopc.hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
        array([6., 0.])
    """
    if not callable(f):
        return transforms.hvp(f, primals, tangents)
    return jvp(grad(f), primals, tangents)[1]


# ---------------------------------------------------------------- batches
def vmap(f: Any, in_axes: Axes = 0, out_axes: Axes = 0, axis_size: int | None = None) -> Any:
    """A function of one example as a function of a batch: `vmap(f)(xs)`.

    in_axes: the dimension of the batch in each argument: an int, None (the argument is the same for
    all examples), or a tuple of these, in which each may be a container. In arguments by name the
    batch is the first dimension. out_axes: the dimension of the batch in the results; None for a
    result that is the same for all examples. axis_size: the length of the batch, if no argument has
    a batch. Of nodes: `vmap(outputs, {x: xs})` gives the outputs with x replaced by each of xs
    along a new first dimension. UserError for batches of different lengths.

        >>> a = np.arange(6.0).reshape(3, 2)
        >>> uopc.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(a, np.ones(2))
        array([1., 5., 9.])
    """
    if not callable(f):
        return transforms.vmap(f, in_axes)

    def build(*args: Any, **named: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise UserError(
                f"vmap of {_name(f)}: expected {len(args)} in_axes, one per argument, got"
                f" {len(axes)}"
            )
        call = SeededCall("vmap", f, (args, named))
        values, by_name, batched = _batched(call, args, named, axes, axis_size)
        nodes, form = call.results(call.run(f, *values, **by_name))
        placed = _placed(nodes, batched, spread(out_axes, form, int, "vmap: out_axes"))
        return unflatten(form, call.closed(placed))

    return derived("vmap", f, build)


def _batched(
    call: SeededCall, args: Any, named: Any, axes: Sequence[Axes], size: int | None
) -> tuple[Any, Any, dict[UOp, UOp]]:
    """The arguments for one example, and the batch of each seed."""
    found, structure = flatten(tuple(args))
    more, by_name = flatten(named)
    chosen = [*spread(tuple(axes), structure, int, "vmap: in_axes"), *[0] * len(more)]
    batched: dict[UOp, UOp] = {}
    values: list[Any] = []
    sizes: dict[Any, str] = {} if size is None else {size: " axis_size"}
    for (path, leaf), axis in zip([*found, *more], chosen):
        if axis is None:
            values.append(leaf)
            continue
        u = uop_of(leaf, call.who)
        if not shapes.shape(u):
            raise UserError(
                f"vmap of {call.name}: the argument{path} must have an axis, got a scalar"
            )
        at = movement.normal_axis(axis, len(shapes.shape(u)), "vmap")
        moved = movement.permute(u, (at, *[i for i in range(len(shapes.shape(u))) if i != at]))
        n, *dims = shapes.shape(moved)
        sizes.setdefault(n, path)
        seed = calls.seed_of(u.dtype, tuple(dims))
        batched[seed] = moved
        values.append(call.value(seed, isinstance(leaf, Array) and leaf.weak))
    if not sizes:
        raise UserError(
            f"vmap of {call.name}: pass in_axes with an axis of an argument, or axis_size"
        )
    if len(sizes) > 1:
        listed = ", ".join([f"{n} of{path}" for n, path in sizes.items()])
        raise UserError(f"vmap of {call.name}: batches of different lengths: {listed}")
    if not batched:
        batched[calls.seed_of(dtypes.bool_, ())] = leaves.full(
            leaves.const(dtypes.bool_, False), (next(iter(sizes)),)
        )
    count = len(found)
    return unflatten(structure, values[:count]), unflatten(by_name, values[count:]), batched


def _placed(nodes: Sequence[UOp], batched: dict[UOp, UOp], axes: Sequence[Any]) -> list[UOp]:
    """The batched results, with the batch moved to these axes."""
    alone = [u for u, axis in zip(nodes, axes) if axis is None]
    if any([v is not None for v in batch.dependent(alone, batched)]):
        raise UserError("vmap: out_axes must be an int for a result that has the batch")
    made = []
    for u, value, axis in zip(nodes, batch.mapped(nodes, batched), axes):
        if axis is None:
            made.append(u)
            continue
        rank = len(shapes.shape(value))
        order = list(range(1, rank))
        order.insert(movement.normal_axis(axis, rank, "vmap"), 0)
        made.append(movement.permute(value, tuple(order)))
    return made


# ---------------------------------------------------------------- values without derivatives
def stop_gradient(tree: Any) -> Any:
    """Return the container with values through which no derivative flows.

        >>> uopc.grad(lambda x: x * uopc.stop_gradient(x))(3.0)
        array(3.)
    """
    found, structure = flatten(tree)
    made: list[Any] = []
    for _, leaf in found:
        if isinstance(leaf, UOp):
            made.append(leaf.detach())
        elif isinstance(leaf, Array):
            made.append(Array(leaf.uop.detach(), leaf.tracing, leaf.weak))
        else:
            made.append(leaf)
    return unflatten(structure, made)

