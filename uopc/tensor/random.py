"""Random numbers as graphs: a function of a key gives the same numbers for the same key, always.

A key is a uint32 array of shape (2,): a constant, an argument of the program, or a result. Element
i of a result comes from threefry-2x32 with 20 rounds of (key, i), and not from the elements before
it. Use a key once; `split` and `fold_in` make new ones. The streams of `key`, `split`, `fold_in`
and `bits` are stable; keys, `split` and bits of 32 are those of JAX's default generator. The other
functions may give other numbers in a later version.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement
from uopc.ir.builder.fold import cast
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.tensor.creation import dims_of, full

__all__ = [
    "bernoulli", "bits", "fold_in", "key", "normal", "randint", "split", "uniform"
]  # fmt: skip
_WORDS = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}

_PRECISION = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}
_INTS = (*_WORDS.values(), dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)


# ---------------------------------------------------------------- keys
def key(seed: Any) -> UOp:
    """The key of a seed: an int from -2⁶³ to 2⁶⁴ - 1, or a scalar UOp of an integer dtype.

    UserTypeError for another kind of seed, UserError for one out of range.

    Examples:
        >>> uopc.compile(uopc.random.key(7))()
        array([0, 7], dtype=uint32)
    """
    return _halves(_word("key", "seed", seed), high_first=True)


def split(key: UOp, num: Any = 2) -> UOp:
    """`num` new keys, one per row: a uint32 array of shape (num, 2).

    UserTypeError for anything that is no key, UserError for a negative number.

    Examples:
        >>> keys = uopc.random.split(uopc.random.key(7), 3)
        >>> keys.shape, uopc.compile(keys)()[0].tolist()
        ((3, 2), [3625411723, 1954958720])
    """
    if isinstance(num, (tuple, list)):
        raise UserTypeError(f"split: num must be one number, got {num!r}")
    return _halves(_blocks("split", key, dims_of(num, "split")), high_first=False)


def fold_in(key: UOp, data: Any) -> UOp:
    """A new key, a uint32 array of shape (2,), from a key and an integer, such as a step number: an
    int or a scalar UOp.

    UserTypeError for anything else, UserError for an int of more than 64 bits.

    Examples:
        >>> k = uopc.random.fold_in(uopc.random.key(7), 1)
        >>> uopc.compile(k)().tolist()
        [195045567, 4062205631]
    """
    word = _word("fold_in", "data", data)
    return _halves(_threefry(_swapped(word), _key_word("fold_in", key)), high_first=False)


# ---------------------------------------------------------------- numbers
def bits(key: UOp, shape: Any = (), dtype: DTypeLike = dtypes.uint32) -> UOp:
    """Integers of an unsigned dtype with every bit random. UserTypeError for another dtype.

    `shape` is a size or several, ints or variables. The generator is threefry-2x32 with 20 rounds
    (J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel Random Numbers: As Easy as 1,
    2, 3", 2011).

    Examples:
        >>> uopc.compile(uopc.random.bits(uopc.random.key(0), (2,)))()
        array([4070199207, 4202968722], dtype=uint32)
    """
    word = checks.any_dtype("bits", dtype)
    if word not in _WORDS.values():
        raise UserTypeError(f"bits: the dtype must be an unsigned integer, got {word.name}")
    return bits_of("bits", key, dims_of(shape, "bits"), word)


def uniform(
    key: UOp, shape: Any = (), dtype: DTypeLike = dtypes.float32, low: float = 0.0,
    high: float = 1.0,
) -> UOp:  # fmt: skip
    """Floats in [low, high), never `high` itself; low and high are numbers.

    In [0, 1) they are the multiples of 2⁻ᵖ, all equally likely, where a float has p bits (24 for
    float32). UserTypeError for a dtype that is not of 16 to 64 bits, UserError unless low < high.

    Examples:
        >>> k = uopc.random.key(0)
        >>> u = uopc.compile(uopc.random.uniform(k, (2, 3), low=5.0, high=6.0))()
        >>> u.shape, bool((5 <= u).all() and (u < 6).all())
        ((2, 3), True)
    """
    dtype = float_dtype("uniform", dtype)
    first, last = checks.number("uniform", low), checks.number("uniform", high)
    # Of the dtype, so that a bound that it rounds is respected too.
    as_dtype = np.array([first, last]).astype(dtype.numpy)
    least, limit = (float(v) for v in as_dtype)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    with np.errstate(over="ignore"):
        width = float(np.subtract(limit, least, dtype=wide.numpy))
    if not (least < limit and math.isfinite(width)):
        raise UserError(
            f"uniform: expected low < high, and a finite distance in {dtype.name}, "
            f"got {low!r} and {high!r}"
        )
    u = _unit("uniform", key, dims_of(shape, "uniform"), dtype)
    if (first, last) == (0.0, 1.0):
        return u
    scaled = cast(cast(u, wide).mulacc(width, least), dtype)
    below = float(np.nextafter(as_dtype[1], as_dtype[0]))
    return alu.where(cast(scaled, wide) < below, scaled, full((), below, dtype))


def normal(key: UOp, shape: Any = (), dtype: DTypeLike = dtypes.float32) -> UOp:
    """Floats of the standard normal distribution (Box and Muller's method). They are as exact as
    `log` and `cos`: the interpreter may differ in the last places.

    Numbers of float32 or narrower are within 6.7 of 0, of float64 within 8.6. UserTypeError for a
    dtype that is not a float of 16 to 64 bits.

    (G. E. P. Box and M. E. Muller, "A Note on the Generation of Random Normal Deviates", 1958.)

    Examples:
        >>> x = uopc.compile(uopc.random.normal(uopc.random.key(0), (10000,)))()
        >>> bool(abs(x.mean()) < 0.05), bool(abs(x.std() - 1) < 0.05)
        (True, True)
    """
    dtype = float_dtype("normal", dtype)
    dims = dims_of(shape, "normal")
    if dtype is dtypes.float64:
        pair = split(key)
        radius = 1.0 - _unit("normal", _row(pair, 0), dims, dtype)
        turn = _unit("normal", _row(pair, 1), dims, dtype)
    else:
        block = _blocks("normal", key, dims)
        low, high = cast(block, dtypes.uint32), cast(block >> 32, dtypes.uint32)
        radius = (cast(low, dtypes.float32) + 1.0) * 2.0**-32  # in (0, 1]
        turn = cast(high >> 8, dtypes.float32) * 2.0**-24
    length = (radius.log() * -2.0).sqrt()
    return cast(length * (turn * (2 * math.pi)).cos(), dtype)


def bernoulli(key: UOp, p: Any = 0.5, shape: Any = ()) -> UOp:
    """Bools, True with probability p: a number, or a float32 UOp that broadcasts to the shape.

    UserError for a number outside [0, 1].

    Examples:
        >>> b = uopc.compile(uopc.random.bernoulli(uopc.random.key(0), 0.25, (10000,)))()
        >>> b.dtype, bool(abs(b.mean() - 0.25) < 0.02)
        (dtype('bool'), True)
    """
    if not isinstance(p, UOp) and not 0 <= checks.number("bernoulli", p) <= 1:
        raise UserError(f"bernoulli: p must be from 0 to 1, got {p!r}")
    drawn = _unit("bernoulli", key, dims_of(shape, "bernoulli"), dtypes.float32)
    return alu.binary(Ops.CMPLT, drawn, p)


def randint(key: UOp, shape: Any, low: int, high: int, dtype: DTypeLike = dtypes.int32) -> UOp:
    """Integers from low to high - 1; low and high are ints. The probabilities of any two results
    differ by less than one part in 2³².

    UserError unless low < high and both ends fit into the dtype; UserTypeError for a dtype that is
    not an integer.

    The upper half of a product with 64 random bits is the result (see D. Lemire, "Fast Random
    Integer Generation in an Interval", 2019).

    Examples:
        >>> throws = uopc.compile(uopc.random.randint(uopc.random.key(0), (100,), 1, 7))()
        >>> throws.dtype, sorted(set(throws.tolist()))
        (dtype('int32'), [1, 2, 3, 4, 5, 6])
    """
    dtype = checks.any_dtype("randint", dtype)
    if dtype not in _INTS:
        raise UserTypeError(f"randint: the dtype must be an integer, got {dtype.name}")
    for name, end in (("low", low), ("high", high)):
        if isinstance(end, bool) or not isinstance(end, (int, np.integer)):
            raise UserTypeError(f"randint: {name} must be an int, got {end!r}")
    first, last = int(low), int(high) - 1
    least, most = dtype.bounds
    if not least <= first <= last <= most:
        raise UserError(
            f"randint: expected {least} <= low < high <= {most + 1} for {dtype.name}, "
            f"got {low} and {high}"
        )
    dims, count = dims_of(shape, "randint"), last - first + 1
    if count <= 1 << 32:
        offset = below("randint", key, dims, count)
    elif count == 1 << 64:
        offset = bits_of("randint", key, dims, dtypes.uint64)
    else:  # of 128 bits
        pair = split(key)
        high_bits = bits_of("randint", _row(pair, 0), dims, dtypes.uint64)
        carried = _high_product(bits_of("randint", _row(pair, 1), dims, dtypes.uint64), count)
        low_part = high_bits * count + carried
        offset = _high_product(high_bits, count) + cast(low_part < carried, dtypes.uint64)
    return cast(offset + full((), first % (1 << 64), dtypes.uint64), dtype)


# ---------------------------------------------------------------- words
def float_dtype(who: str, dtype: DTypeLike) -> DType:
    """Return the dtype; UserTypeError unless random numbers can have it."""
    found = checks.any_dtype(who, dtype)
    if found not in _PRECISION:
        raise UserTypeError(
            f"{who}: the dtype must be a float of 16 to 64 bits, got {found.name}"
        )
    return found


def _word(who: str, name: str, value: Any) -> UOp:
    """An integer as a scalar uint64; negative integers in two's complement."""
    if isinstance(value, UOp):
        dims = shapes.shape(value)
        if dims or not value.dtype.is_int:
            got = f"{value.dtype.name} of shape {shapes.show(dims)}"
            raise UserTypeError(f"{who}: {name} must be a scalar integer, got {got}")
        return cast(value, dtypes.uint64)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise UserTypeError(f"{who}: {name} must be an int or a scalar UOp, got {value!r}")
    number = int(value)
    if not -(1 << 63) <= number < 1 << 64:
        raise UserError(f"{who}: {name} must have at most 64 bits, got {number}")
    return full((), number % (1 << 64), dtypes.uint64)


def _row(keys: UOp, i: int) -> UOp:
    return movement.reshape(movement.shrink(keys, [(i, i + 1), (0, 2)]), (2,))


def _key_word(who: str, key: Any) -> UOp:
    """Pack a key into a uint64: the first number is the low half, the second the high half."""
    if not isinstance(key, UOp):
        raise UserTypeError(f"{who}: the key must be a UOp, as of random.key(seed), got {key!r}")
    dims = shapes.shape(key)
    if key.dtype is not dtypes.uint32 or dims != (2,):
        got = f"{key.dtype.name} of shape {shapes.show(dims)}"
        raise UserTypeError(f"{who}: a key is uint32 of shape (2,), got {got}")
    low, high = (
        cast(movement.reshape(movement.shrink(key, [(i, i + 1)]), ()), dtypes.uint64)
        for i in (0, 1)
    )
    return low | (high << 32)


def _swapped(word: UOp) -> UOp:
    return (word << 32) | (word >> 32)


def _halves(word: UOp, *, high_first: bool) -> UOp:
    """Split each uint64 into two uint32 along a new last axis."""
    low, high = cast(word, dtypes.uint32), cast(word >> 32, dtypes.uint32)
    return movement.stack(*((high, low) if high_first else (low, high)), axis=-1)


def _threefry(x: UOp, key: UOp) -> UOp:
    return alu.binary(Ops.THREEFRY, x, key)


def _blocks(who: str, key: UOp, dims: shapes.Shape) -> UOp:
    """A random uint64 for each element."""
    word = _key_word(who, key)
    places = movement.reshape(cast(leaves.iota(shapes.size(dims)), dtypes.uint64), dims)
    return _threefry(_swapped(places), word)


def bits_of(who: str, key: UOp, dims: shapes.Shape, dtype: DType) -> UOp:
    """A random unsigned integer for each element."""
    block = _blocks(who, key, dims)
    return _swapped(block) if dtype.bits == 64 else cast(block ^ (block >> 32), dtype)


def below(who: str, key: UOp, dims: shapes.Shape, count: int | UOp) -> UOp:
    """A random uint64 below `count`, which is at most 2**32, for each element."""
    limit = cast(count, dtypes.uint64) if isinstance(count, UOp) else count
    return _high_product(bits_of(who, key, dims, dtypes.uint64), limit)


def _unit(who: str, key: UOp, dims: shapes.Shape, dtype: DType) -> UOp:
    """Multiples of 2**-p in [0, 1), where a float of the dtype has p bits."""
    precision, word = _PRECISION[dtype], _WORDS[dtype.bits]
    whole = bits_of(who, key, dims, word) >> (dtype.bits - precision)
    wide = dtype if dtype.bits > 16 else dtypes.float32
    return cast(cast(whole, wide) * 2.0**-precision, dtype)


def _high_product(a: UOp, b: int | UOp) -> UOp:
    """The upper 64 bits of the product of a uint64 and a number below 2**64, or a second uint64."""
    mask = (1 << 32) - 1
    a_low, a_high, b_low, b_high = a & mask, a >> 32, b & mask, b >> 32
    middle = a_high * b_low + ((a_low * b_low) >> 32)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> 32) + (other >> 32)
