"""The node tests of the package onnx: models with inputs and outputs, and how each comes out."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import uopc.onnx
from uopc.errors import Error, Unsupported
from uopc.onnx import results
from uopc.onnx.node import Decides

EXCLUDED = Path(__file__).parent / "excluded.txt"
KEPT = Path(__file__).parent / "__pycache__" / f"cases-{onnx.__version__}-{np.__version__}.pickle"


@functools.cache
def cases() -> dict[str, Any]:
    """The node tests by name. They take 5 s to make, so that the first process keeps them."""
    with contextlib.suppress(OSError):
        kept: dict[str, Any] = pickle.loads(KEPT.read_bytes())
        return kept
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {c.name: c for c in sorted(load_model_tests(kind="node"), key=lambda c: c.name)}
    with contextlib.suppress(OSError):  # a checkout that nobody may write to
        KEPT.parent.mkdir(exist_ok=True)
        part = KEPT.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(made))
        part.replace(KEPT)
    return made


def excluded() -> dict[str, str]:
    """Tests that do not pass, with the reason of each group."""
    found, reason = {}, ""
    for line in EXCLUDED.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line:
            found[line] = reason
    return found


def _value(v: Any) -> Any:
    if hasattr(v, "SerializeToString"):
        return numpy_helper.to_array(v)
    return v if v is None or isinstance(v, list) else np.asarray(v)


def run(case: Any) -> str:
    """`passed`, or why it is not: the kind of failure and its text."""
    graph = case.model.graph
    for inputs, outputs in case.data_sets:
        names = [i.name for i in graph.input]
        given = {name: _value(v) for name, v in zip(names, inputs)}
        wanted = [_value(v) for v in outputs]
        try:
            got = _results(case.model, given)
        except Unsupported as error:
            return f"unsupported: {error}"
        except Error as error:
            return f"error: {type(error).__name__}: {error}"
        except Exception as error:
            return f"crash: {type(error).__name__}: {error}"
        for a, b in zip(got, wanted, strict=True):
            difference = _difference(a, b, case)
            if difference:
                return f"wrong: {difference}"
    return "passed"


def _results(model: Any, given: dict[str, Any]) -> list[Any]:
    """The outputs; inputs that decide shapes are constants, one after the other."""
    constants = {
        i.name: given[i.name] for i in model.graph.input
        if i.name in given and not _is_tensor(given[i.name])
    }  # fmt: skip
    while True:
        try:
            sizes = _sizes(model, given, constants)
            made = uopc.onnx.graph(model, dims=sizes, constants=constants)
            break
        except Decides as error:
            labels = _labels(model, error.names)
            if not labels or constants.keys() >= labels:
                raise
            constants |= {name: given[name] for name in labels}
    arrays = [_held(given[name]) for name in made.inputs]
    flat = list(made.nodes.values())
    left = iter(uopc.compile(flat, inputs=list(made.inputs.values()))(*arrays) if flat else ())
    return [results.filled(v, left) for v in made.outputs.values()]


def _held(v: Any) -> Any:
    """Types of few bits in wider ones, as `uopc.onnx` takes and gives them."""
    name = v.dtype.name
    if name in ("int4", "uint4", "int2", "uint2"):
        return v.astype(name[:-1] + "8")
    return v.astype(np.float32) if name in ("float4_e2m1fn", "float8_e8m0fnu") else v


def _is_tensor(v: Any) -> bool:
    return isinstance(v, np.ndarray) and v.dtype != object


def _labels(model: Any, params: list[str]) -> set[str]:
    return {i.name for i in model.graph.input if i.name in params}


def _sizes(model: Any, given: dict[str, Any], constants: dict[str, Any]) -> dict[str, int]:
    """The sizes of dimensions that the model leaves open."""
    found: dict[str, int] = {}
    for i in model.graph.input:
        if i.name in given and i.name not in constants and i.type.HasField("tensor_type"):
            for axis, d in enumerate(i.type.tensor_type.shape.dim):
                if not d.HasField("dim_value"):
                    found[d.dim_param or f"{i.name}_{axis}"] = given[i.name].shape[axis]
    return found


def _difference(got: Any, wanted: Any, case: Any) -> str:
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return "a sequence of another length"
        found = [_difference(a, _value(b), case) for a, b in zip(got, wanted)]
        return next(filter(None, found), "")
    if wanted.dtype.kind in "OU":
        same = got.shape == wanted.shape and got.dtype.kind == "U" and (got == wanted).all()
        return "" if same else f"{got!r} for {wanted!r}"
    wanted = _held(wanted)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{got.shape} for {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind in "biu":
        return "" if (got == wanted).all() else f"{(got != wanted).sum()} of {got.size} differ"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    if np.allclose(a, b, rtol=case.rtol, atol=case.atol, equal_nan=True):
        return ""
    return f"differs by {np.nanmax(np.abs(a - b)):.3g}"
