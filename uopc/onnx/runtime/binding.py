"""Inputs and outputs bound to a session before it runs, and the arrays that hold them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.errors import Unsupported, UserError
from uopc.ir.records import dataclass
from uopc.onnx.signature import ELEMENTS
from uopc.onnx.values import DTYPES

Array = npt.NDArray[Any]
NUMPY = {f"tensor({ELEMENTS[k]})": np.dtype(t.numpy) for k, t in DTYPES.items()}
_NUMBERS = {np.dtype(t.numpy): k for k, t in DTYPES.items()}


@dataclass(frozen=True)
class OrtValue:
    """An array that a session reads or writes."""

    _array: Any

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Array, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Copy an array."""
        _check_device(device_type)
        return OrtValue(np.array(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Make an array that is not filled. `element_type`: of NumPy, or ONNX's number."""
        _check_device(device_type)
        return OrtValue(np.empty(tuple(shape), _dtype(element_type)))

    def numpy(self) -> Any:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        """The sizes of the array."""
        return list(self._array.shape)

    def element_type(self) -> int:
        """ONNX's number of the array's dtype."""
        return _NUMBERS[self._array.dtype]

    def data_type(self) -> str:
        """The type as `NodeArg.type` has it."""
        return f"tensor({ELEMENTS[self.element_type()]})"

    def data_ptr(self) -> int:
        """The address of the array."""
        address: int = self._array.ctypes.data
        return address

    def device_name(self) -> str:
        """The device of the array."""
        return "cpu"

    def is_tensor(self) -> bool:
        """True unless the value is a sequence."""
        return isinstance(self._array, np.ndarray)

    def has_value(self) -> bool:
        """False for an optional without a value."""
        return self._array is not None

    def update_inplace(self, np_arr: Array) -> None:
        """Write other values into the array."""
        _write(self._array, np_arr, "the value")


class IOBinding:
    """The inputs and outputs of `InferenceSession.run_with_iobinding`."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}  # with the arrays that are written, if any
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array, which is read when the session runs."""
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value, which is read when the session runs."""
        self._inputs[name] = ortvalue.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:  # fmt: skip
        """Bind an input to memory, which is read when the session runs."""
        _check_device(device_type)
        self._inputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Ask for an output: in memory that is given, or in a new array of each run."""
        _check_device(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
        elif element_type is None or shape is None:
            raise UserError("bind_output: memory needs element_type and shape")
        else:
            self._outputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._outputs[name] = ortvalue.numpy()

    def run(self) -> None:
        """Run the session: `run_with_iobinding` calls this."""
        results = self._session.run(list(self._outputs), self._inputs)
        self._results = [
            made if memory is None else _write(memory, made, f"output {name!r}")
            for (name, memory), made in zip(self._outputs.items(), results)
        ]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run as values."""
        return [OrtValue(v) for v in self._results]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results = []

    def synchronize_inputs(self) -> None:
        """Do nothing: a run has ended when it returns."""

    synchronize_outputs = synchronize_inputs


def _check_device(name: str) -> None:
    if name != "cpu":
        raise Unsupported(f"device {name!r} is not supported: sessions run on the CPU")


def _dtype(element: Any) -> np.dtype[Any]:
    """The dtype of NumPy's or ONNX's element type."""
    if isinstance(element, int):
        if element not in DTYPES:
            raise Unsupported(f"the ONNX type {ELEMENTS.get(element, element)} is not supported")
        element = DTYPES[element].numpy
    made: np.dtype[Any] = np.dtype(element)
    return made


def _at(address: int, element: Any, shape: Sequence[int]) -> Array:
    """The array at an address."""
    dtype = _dtype(element)
    memory = (ctypes.c_ubyte * (dtype.itemsize * math.prod(shape))).from_address(address)
    return np.ndarray(tuple(shape), dtype, memoryview(memory))


def _write(memory: Array, made: Any, what: str) -> Array:
    if (memory.shape, memory.dtype) != (made.shape, made.dtype):
        raise UserError(
            f"{what} is {made.dtype.name}{list(made.shape)}, its memory"
            f" {memory.dtype.name}{list(memory.shape)}"
        )
    memory[...] = made
    return memory
