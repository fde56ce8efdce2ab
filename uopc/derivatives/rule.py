"""The kinds of rules: how an op hands tangents on, and cotangents back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from uopc.derivatives.values import Factor, Value, fit, summed_to, times, total
from uopc.ir.builder import fold
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp

Partial = Callable[..., Factor]  # from the result and the operands


def operands(u: UOp) -> Sequence[UOp]:
    """The sources that a derivative flows from, without the body of a CALL and the nodes that
    compute a PRIMITIVE."""
    return u.src[1:] if u.op is Ops.PRIMITIVE else calls.operands(u)


class DerivativeRule:
    """The derivative of an op; this class gives zero.

    `push` gives the tangent of a result, of the shape and dtype of the result, from the tangents of
    the operands. `pull` gives the cotangents of wanted operands from the cotangent of the result.
    """

    kind = "zero"
    joint = False  # of a PRIMITIVE: the cotangents of all results are pulled at once
    by_user = ""  # the function with a user's rule, which may apply the function again

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        return None

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [None] * len(u.src)

    def push_joint(self, u: UOp, tangents: Sequence[Value]) -> list[Value]:
        """`push` for a joint rule: the tangents of all results."""
        raise NotImplementedError

    def pull_joint(
        self, u: UOp, cotangents: Mapping[int, Value], wanted: Sequence[bool]
    ) -> list[Value]:
        """`pull` for a joint rule, from the cotangents of the results by number."""
        raise NotImplementedError

    def batch_dimensions(self, u: UOp) -> int:
        """The number of leading batch dimensions: the op applies the same function to the operands
        at each index of these dimensions, which have the same sizes in all operands."""
        return 0

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        """Apply a PRIMITIVE's function to operands, of which some have a leading batch of n."""
        raise NotImplementedError


class Partials(DerivativeRule):
    """An elementwise op that multiplies the tangent of each operand by a factor."""

    kind = "partials"

    def __init__(self, *partials: Partial | None) -> None:
        self._partials = partials

    @property
    def count(self) -> int:
        """The number of sources of the op."""
        return len(self._partials)

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        terms = [
            times(fold.cast(t, u.dtype), self.factor(u, i))
            for i, t in enumerate(tangents) if t is not None
        ]  # fmt: skip
        found = total(terms)
        return None if found is None else fit(found, shapes.shape(u))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [
            self._pulled(u, i, cotangent) if w else None for i, w in enumerate(wanted)
        ]

    def _pulled(self, u: UOp, i: int, cotangent: UOp) -> Value:
        found = times(cotangent, self.factor(u, i))
        if found is None:
            return None
        operand = u.src[i]
        back = summed_to(fit(found, shapes.shape(u)), shapes.shape(operand))
        return fold.cast(back, operand.dtype)

    def factor(self, u: UOp, i: int) -> Factor:
        """The factor of the tangent of operand i."""
        partial = self._partials[i] if i < len(self._partials) else None
        return None if partial is None else partial(u, *u.src)


def wide(partial: Partial) -> Partial:
    """Compute the partial derivative of narrow floats in float32 and round once."""

    def made(y: UOp, *operands: UOp) -> Factor:
        t = y.dtype
        accumulator = dtypes.accumulator(t.scalar)
        if accumulator is t.scalar:
            return partial(y, *operands)
        found = partial(*[fold.cast(v, accumulator) for v in (y, *operands)])
        return fold.cast(found, t) if isinstance(found, UOp) else found

    return made


class Linear(DerivativeRule):
    """An op that is linear in its first operand: tangents go through the op itself."""

    kind = "linear"

    def __init__(
        self, push: Callable[[UOp, UOp], Value], pull: Callable[[UOp, UOp], UOp]
    ) -> None:
        self._push, self._pull = push, pull

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        return None if tangents[0] is None else self._push(u, tangents[0])

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [self._pull(u, cotangent) if wanted[0] else None, *[None] * (len(u.src) - 1)]


class Pushed(DerivativeRule):
    """A rule that only defines tangents. Cotangents use the transpose of the tangent's graph."""

    kind = "linear"

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        raise NotImplementedError  # `walk` transposes `push`


class OfBody(DerivativeRule):
    """The rule of a PRIMITIVE that holds a FUNCTION, by derivatives and batches of the FUNCTION.
    `walk` and `batch` set the functions that compute these."""

    kind = "linear"
    joint = True
    push_all: Callable[..., list[Value]]
    pull_all: Callable[..., list[Value]]
    mapped: Callable[..., list[UOp]]
