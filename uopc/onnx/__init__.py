"""ONNX models as graphs (`graph`) and programs (`load`). See `docs/models.md`.

It needs the package `onnx` (`pip install uopc[onnx]`). Importing `uopc` does not import it, and a
model that an earlier process loaded does not need it.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if importlib.util.find_spec("onnx") is None:
    raise ModuleNotFoundError(
        "uopc.onnx needs the package onnx: pip install uopc[onnx]", name="onnx"
    )

from uopc.onnx.loaded import Loaded, load

if TYPE_CHECKING:
    from uopc.onnx.reading import Graph, graph
    from uopc.onnx.runtime import (  # noqa: F401  names that `__getattr__` gives
        ExecutionMode,
        GraphOptimizationLevel,
        InferenceSession,
        IOBinding,
        ModelMetadata,
        NodeArg,
        OrtValue,
        RunOptions,
        SessionOptions,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_device,
        set_default_logger_severity,
        set_default_logger_verbosity,
    )


__all__ = ["Graph", "InferenceSession", "Loaded", "graph", "load"]

if not TYPE_CHECKING:  # reading a model imports onnx

    def __getattr__(name):
        module = "reading" if name in ("Graph", "graph") else "runtime"
        found = getattr(importlib.import_module(f"uopc.onnx.{module}"), name, None)
        if found is None or name.startswith("_"):
            raise AttributeError(f"module 'uopc.onnx' has no attribute {name!r}")
        globals()[name] = found
        return found
