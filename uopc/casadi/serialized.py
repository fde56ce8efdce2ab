"""Constants of an operation or a Function that CasADi only writes to files.

Its serializer with `debug` writes each field as its name, then a tag and a value: `J` an integer,
`d` a number, `b` a truth value, `V` a vector of them with its length, `S` an object with fields.
"""

from __future__ import annotations

import struct
from typing import Any

import casadi as ca
import numpy as np
import numpy.typing as npt

_FORMATS = {b"J": "<q", b"d": "<d", b"b": "<?"}


class SerializedFields:
    """The fields of an operation (alone, with symbols as operands) or of a Function, by name. Of
    several with one name the last one, or the first one behind another field, counts."""

    def __init__(self, of: ca.MX | ca.Function) -> None:
        function = of if isinstance(of, ca.Function) else _alone(of)
        text = np.frombuffer(function.serialize({"debug": True}).encode(), np.uint8) - ord("a")
        self._data = (text[::2] + (text[1::2] << 4)).astype(np.uint8).tobytes()

    def __contains__(self, name: str) -> bool:
        return self._data.rfind(_key(name)) >= 0

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """The numbers of a vector."""
        at = self._value(name)
        if self._data[at : at + 1] != b"V":
            raise KeyError(name)
        count, at = self._one(at + 1), at + 10
        return np.array([self._one(at + 9 * k) for k in range(count)])

    def number(self, name: str, behind: str = "") -> Any:
        """A number or a truth value; `behind` names a field that stands before it."""
        return self._one(self._value(name, behind))

    def slice(self, name: str) -> dict[str, int]:
        """The fields of a slice, as `MX.info` gives them."""
        return {key: self.number(f"Slice::{key}", name) for key in ("start", "stop", "step")}

    def _value(self, name: str, behind: str = "") -> int:
        """The place of the tag."""
        data, key = self._data, _key(name)
        at = data.find(key, data.rfind(_key(behind))) if behind else data.rfind(key)
        if at < 0:
            raise KeyError(name)
        return at + len(key)

    def _one(self, at: int) -> Any:
        return struct.unpack_from(_FORMATS[self._data[at : at + 1]], self._data, at + 1)[0]


def _key(name: str) -> bytes:
    return b"si" + struct.pack("<i", len(name)) + name.encode()


def _alone(m: ca.MX) -> ca.Function:
    """A Function of one operation, of symbols for its operands."""
    operands = [m.dep(i) for i in range(m.n_dep())]
    symbols = [ca.MX.sym(f"x{i}", u.sparsity()) for i, u in enumerate(operands)]
    return ca.Function("alone", symbols, ca.graph_substitute([m], operands, symbols))
