"""Models that are a little wrong: ONNX's node tests with a few places of the protobuf changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import onnx

NUMBERS = (0, 1, -1, 2, 3, -7, 255, 1 << 20, 1 << 31, 1 << 40, 1 << 62, -(1 << 63), (1 << 63) - 1)
FLOATS = (0.0, -1.0, 1e30, -1e30, float("inf"), float("nan"))
TEXTS = (b"", b"LINEAR", b"constant", b"../../x", b"\xff\xfe", b"a" * 300)


def _is_list(value: Any) -> bool:
    return hasattr(value, "append") or hasattr(value, "add")


def _messages(m: Any) -> Iterator[Any]:
    """A message and all inside it."""
    yield m
    for field, value in m.ListFields():
        if field.message_type is None:
            continue
        for inner in value if _is_list(value) else [value]:
            yield from _messages(inner)


def _changed(rng: random.Random, field: Any, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, int):
        low, high = (
            (-(1 << 31), (1 << 31) - 1) if field.cpp_type == 1 else (-(1 << 63), (1 << 63) - 1)
        )
        if field.enum_type is not None:
            return rng.choice(field.enum_type.values).number
        return min(max(rng.choice(NUMBERS), low), high)
    if isinstance(value, str):
        return rng.choice((value[:1], value + "_", "", "x"))
    return rng.choice((*TEXTS, value[: len(value) // 2], value * 2))


def _change(rng: random.Random, m: Any) -> None:
    """One place of a message: another value, one less, or one twice."""
    fields = m.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    if _is_list(value):
        if not len(value):
            return
        k, how = rng.randrange(len(value)), rng.random()
        if how < 0.3:
            del value[k]
        elif how < 0.5:
            value.append(copy.deepcopy(value[k]))
        elif field.message_type is None:
            value[k] = _changed(rng, field, value[k])
        else:
            value[k].CopyFrom(value[rng.randrange(len(value))])
    elif field.message_type is not None:
        if rng.random() < 0.3:
            m.ClearField(field.name)
    else:
        setattr(m, field.name, _changed(rng, field, value))


def mutant(model: onnx.ModelProto, seed: int) -> Any:
    """A changed model, or now and then its bytes with some of them changed."""
    rng = random.Random(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if rng.random() < 0.15:
        data = bytearray(made.SerializeToString())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(len(data) // 2, len(data) + 1)])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, rng.choice(list(_messages(made.graph))))
    return made
