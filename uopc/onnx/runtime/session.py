"""InferenceSession: a model, and a program for the sizes of each call.

    run(feed)   →   sizes that the model leaves free, values on which a shape depends
                →   the program for these   →   the outputs that were asked for

If the model leaves no size free, its program is made with the session, otherwise at the first run
with these sizes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc import config
from uopc.errors import UserError, UserTypeError
from uopc.onnx.loaded import Loaded, load
from uopc.onnx.node import Decides
from uopc.onnx.runtime import deciding
from uopc.onnx.runtime.binding import NUMPY, Array, IOBinding
from uopc.onnx.runtime.options import (
    RunOptions,
    SessionOptions,
    checked,
    provider_options,
)
from uopc.onnx.signature import ModelMetadata, ModelSignature, NodeArg

Sizes = tuple[tuple[str, int], ...]
Known = tuple[tuple[str, str, tuple[int, ...], bytes], ...]  # arrays: name, dtype, shape, bytes


class InferenceSession:
    """A model with the methods of ONNX Runtime's class of this name. Several threads may run it.

    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]>'
    >>> text = head + 'g (float[n, 2] x) => (float[n, 2] y) {y = Relu(x)}'
    >>> session = uopc.onnx.InferenceSession(parser.parse_model(text).SerializeToString())
    >>> session.get_inputs()
    [NodeArg(name='x', type='tensor(float)', shape=['n', 2])]
    >>> session.run(["y"], {"x": np.array([[-1, 2]], "f4")})
    [array([[0., 2.]], dtype=float32)]
    """

    def __init__(
        self, path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None, **others: Any,
    ) -> None:  # fmt: skip
        """`others` (disabled_optimizers and such) change nothing."""
        self._options = checked(sess_options)
        self.set_providers(providers, provider_options)
        self._model = path_or_bytes
        self._signature = ModelSignature.of(path_or_bytes)
        self._args = [_FedArgument(i) for i in self._signature.inputs]
        names = self._signature.sizes
        self._given = {k: v for k, v in self._options.sizes.items() if k in names}
        self._deciding = deciding.known(path_or_bytes)  # the inputs on whose values a shape depends
        self._making = threading.Lock()
        most = max(config.current().programs, 1)
        self._program = functools.lru_cache(most)(self._made)
        if len(self._given) == len(names) and not self._deciding:
            with contextlib.suppress(Decides):  # the first run knows the values
                self._program(tuple(self._given.items()), ())

    # ------------------------------------------------------------ what the model is
    def get_inputs(self) -> list[NodeArg]:
        """The inputs to pass."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, as the file describes them."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs to which the file gives values, which stay these."""
        return list(self._signature.initialized)

    def get_modelmeta(self) -> ModelMetadata:
        """The origin of the model, as the file states it."""
        return self._signature.metadata

    # ------------------------------------------------------------ how the session runs
    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """The providers in use."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers in use, which change nothing."""
        return self._providers

    def set_providers(
        self, providers: Sequence[Any] | None = None,
        options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Choose providers. One that is not available is left out, with a warning."""
        self._providers = provider_options(providers, options)

    def enable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    disable_fallback = enable_fallback

    # ------------------------------------------------------------ running
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:  # fmt: skip
        """Return the outputs of these names, or all. UserError, which is a ValueError, for names,
        ranks, sizes and dtypes that the model does not have."""
        arrays, sizes = self._bound(input_feed)
        loaded = self._loaded(arrays, sizes)
        made = loaded(*[arrays[name] for name in loaded.inputs])
        found = made if len(loaded.outputs) > 1 else {loaded.outputs[0]: made}
        names = output_names or list(found)
        if isinstance(names, str):
            raise UserTypeError(f"output_names must be a list of names, got {names!r}")
        unknown = [name for name in names if name not in found]
        if unknown:
            raise UserError(f"no output {unknown[0]!r}; there are {', '.join(found)}")
        return [_as_objects(found[name]) for name in names]

    def io_binding(self) -> IOBinding:
        """Make a binding for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:  # fmt: skip
        """Run with the inputs and outputs of a binding."""
        iobinding.run()

    def _bound(self, feed: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, int]]:
        """The arrays of a feed by name, and the free sizes that they have."""
        if not isinstance(feed, Mapping):
            raise UserTypeError(f"input_feed must be a dict by name, got {type(feed).__name__}")
        sizes = dict(self._given)
        missing = [a.name for a in self._args if a.name not in feed]
        if missing or len(feed) > len(self._args):
            raise _wrong_names(missing, feed, [a.name for a in self._args])
        return {a.name: a.bound(feed[a.name], sizes) for a in self._args}, sizes

    def _loaded(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Loaded:
        """The program for sizes, and for the values on which a shape depends."""
        while True:
            asked = self._deciding
            known = [(n, v.dtype.str, v.shape, v.tobytes()) for n in asked for v in (arrays[n],)]
            try:
                return self._program(tuple(sizes.items()), tuple(known))
            except Decides as error:
                new = [n for n in error.names if n in arrays and n not in asked]
                if not new:
                    raise
                with self._making:
                    self._deciding = tuple(dict.fromkeys([*self._deciding, *new]))
                    deciding.keep(self._model, self._deciding)

    def _made(self, sizes: Sizes, known: Known) -> Loaded:
        constants = {n: np.frombuffer(b, d).reshape(s) for n, d, s, b in known}
        threads = self._options.intra_op_num_threads or None
        with self._making:  # a thread that waited finds the program of the other one in memory
            return load(self._model, dict(sizes), constants, threads=threads)


class _FedArgument:
    """An input of the model, as a call must give it."""

    def __init__(self, arg: NodeArg) -> None:
        self.name, self.type, self.shape = arg.name, arg.type, arg.shape
        self.dtype = NUMPY.get(arg.type)  # None: the program says what it takes
        self.sizes = arg.sizes
        self.fixed = None if arg.sizes else tuple(arg.shape)

    def bound(self, value: Any, sizes: dict[str, int]) -> Array:
        """The array of a value, whose free sizes become entries of `sizes`. UserError if the
        array does not fit."""
        array = value if isinstance(value, np.ndarray) else self._array(value)
        if self.dtype is not None and array.dtype != self.dtype:
            array = self._native(array)
        if array.shape != self.fixed:
            self._bind(array.shape, sizes)
        return array

    def _array(self, value: Any) -> Array:
        """Lists and numbers become arrays of the input's dtype."""
        try:
            is_typed = hasattr(value, "dtype") or self.dtype is None
            return np.asarray(value) if is_typed else np.asarray(value, self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserTypeError(f"input {self.name!r}: expected {self.type}: {error}") from None

    def _native(self, array: Array) -> Array:
        """The array in the byte order of this machine."""
        if array.dtype.newbyteorder("=") != self.dtype:
            raise UserTypeError(
                f"input {self.name!r}: expected {self.type}, an array of {self.dtype},"
                f" got {array.dtype}"
            )
        return array.astype(self.dtype)

    def _bind(self, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        if len(shape) != len(self.shape):
            raise UserError(
                f"input {self.name!r}: expected {len(self.shape)} dimensions"
                f" {_show(self.shape)}, got {len(shape)}: {_show(shape)}"
            )
        for axis, (size, wanted) in enumerate(zip(shape, self.shape)):
            name = self.sizes.get(axis)
            expected = wanted if name is None else sizes.setdefault(name, size)
            if size != expected:
                what = f"axis {axis}" if name is None else f"the size {name!r} (axis {axis})"
                raise UserError(
                    f"input {self.name!r}: {what} must be {expected}, got {size}:"
                    f" {_show(self.shape)} for {_show(shape)}"
                )


def _show(shape: Sequence[Any]) -> str:
    return f"({', '.join(['?' if d is None else str(d) for d in shape])})"


def _wrong_names(missing: list[str], feed: Mapping[str, Any], names: list[str]) -> UserError:
    unknown = [n for n in feed if n not in names]
    if missing:
        return UserError(f"the feed lacks {', '.join(map(repr, missing))}; it has {list(feed)}")
    return UserError(f"no input {unknown[0]!r}; there are {', '.join(names)}")


def _as_objects(v: Any) -> Any:
    """Strings as ONNX Runtime returns them: in an array of objects."""
    return v.astype(object) if isinstance(v, np.ndarray) and v.dtype.kind == "U" else v
