"""Weights in a model's own file: read from there, never parsed; the file may change later."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import uopc.onnx
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.onnx.model import Model
from uopc.onnx.weights import LEAST_BYTES, without_weights

RNG = np.random.default_rng(3)
ROWS = LEAST_BYTES // 8


def weights() -> list[TensorProto]:
    """Tensors around the least size that is left out, of several types, at any place."""
    arrays = {
        "small": RNG.standard_normal(7).astype("f4"),
        "just": RNG.standard_normal(LEAST_BYTES // 4).astype("f4"),
        "below": RNG.integers(0, 255, LEAST_BYTES - 1).astype("u1"),
        "odd": RNG.integers(-9, 9, LEAST_BYTES + 1).astype("i1"),
        "wide": RNG.standard_normal((3, ROWS)),
        "none": np.zeros((0, 5), "f4"),
    }
    made = [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    made.append(helper.make_tensor("fields", TensorProto.FLOAT, [2], [1.0, 2.0]))
    packed = bytes(RNG.integers(0, 255, LEAST_BYTES, "u1"))
    dims = [2 * LEAST_BYTES]
    made.append(helper.make_tensor("nibbles", TensorProto.INT4, dims, packed, raw=True))
    return made


def message() -> bytes:
    given = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [3, ROWS])
    out = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [3, ROWS])
    node = helper.make_node("Add", ["x", "wide"], ["y"])
    graph = helper.make_graph([node], "g", [given], [out], weights())
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                    ir_version=9).SerializeToString()  # fmt: skip
    return made


def read(source: Any) -> list[tuple[str, Any]] | str:
    """The weights of a model, or that there is none."""
    try:
        found = Model(source)
        return [(t.name, found.array(t).tolist()) for t in found.proto.graph.initializer]
    except (UserError, Unsupported) as error:
        return type(error).__name__


def test_a_path_gives_what_the_bytes_give(tmp_path: Path) -> None:
    file, data = tmp_path / "m.onnx", message()
    file.write_bytes(data)
    assert read(file) == read(data)
    x = RNG.standard_normal((3, ROWS))
    np.testing.assert_array_equal(uopc.onnx.load(file)(x), uopc.onnx.load(data)(x))
    short = onnx.ModelProto.FromString(without_weights(memoryview(data), file.name))
    held = {t.name for t in short.graph.initializer if t.HasField("raw_data")}
    assert held == {"small", "below", "none"}
    for t in short.graph.initializer:  # what is left is the model, but for these bytes
        t.ClearField("external_data")
        t.ClearField("data_location")
    whole = onnx.ModelProto.FromString(data)
    for t in whole.graph.initializer:
        if t.name not in held:
            t.ClearField("raw_data")
    assert short == whole


def test_changed_messages(tmp_path: Path) -> None:
    """Bytes that are other ones, missing or twice: a path and bytes give the same weights, or the
    same kind of error."""
    file, data = tmp_path / "m.onnx", message()
    places = [i for i in range(len(data)) if i < 80 or i > len(data) - 200]
    marks = [data.index(name) for name in (b"small", b"just", b"odd", b"wide", b"nibbles")]
    places += [at + k for at in marks for k in range(-24, 24)]
    for number in range(150):
        at, changed = int(RNG.choice(places)), bytearray(data)
        if number % 3 == 0:
            changed[at] = RNG.integers(256)
        elif number % 3 == 1:
            del changed[at:]
        else:
            changed[at:at] = data[at : at + int(RNG.integers(1, 40))]
        file.write_bytes(changed)
        assert read(file) == read(bytes(changed)), (number, at)


def test_tensors_that_are_elsewhere_stay(tmp_path: Path) -> None:
    """A tensor with both, and one with its bytes twice: the first says where it is, the second has
    the last ones, as in protobuf."""
    large = np.arange(LEAST_BYTES, dtype="u1")
    both = numpy_helper.from_array(large, "both")
    both.data_location = TensorProto.EXTERNAL
    both.external_data.add(key="location", value="other.bin")
    twice = numpy_helper.from_array(large, "twice").SerializeToString()
    twice += TensorProto(raw_data=bytes(large[::-1])).SerializeToString()
    graph = helper.make_graph([], "g", [], [], [both])
    data = helper.make_model(graph).SerializeToString()
    extra = onnx.GraphProto(initializer=[TensorProto.FromString(twice)])
    assert extra.initializer[0].raw_data == bytes(large[::-1])
    (tmp_path / "other.bin").write_bytes(bytes(large[::-1]))
    (tmp_path / "m.onnx").write_bytes(data)
    assert read(tmp_path / "m.onnx") == [("both", large[::-1].tolist())]
    tensor = bytes([5 << 3 | 2]) + _varint(len(twice)) + twice
    data = bytes([7 << 3 | 2]) + _varint(len(tensor)) + tensor
    short = onnx.ModelProto.FromString(without_weights(memoryview(data), "m.onnx"))
    assert short == onnx.ModelProto.FromString(data)


def _varint(n: int) -> bytes:
    return bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14])


def test_a_file_that_is_written_later(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(message())
    f = uopc.onnx.load(file)
    x = RNG.standard_normal((3, ROWS))
    before = f(x)
    file.write_bytes(b"")
    np.testing.assert_array_equal(f(x), before)


@pytest.mark.parametrize("content", [None, b""])
def test_a_file_without_a_model(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "m.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match="no graph" if content is not None else "cannot read"):
        uopc.onnx.load(file)
    with pytest.raises(UserError, match="cannot read"):
        uopc.onnx.load(tmp_path)


def test_the_name_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    file, data = tmp_path / os.fsdecode(b"m\xff.onnx"), message()
    file.write_bytes(data)
    assert read(file) == read(str(file)) == read(data) != "UserError"


def test_what_names_no_file() -> None:
    with pytest.raises(UserTypeError, match="path of an ONNX model, its bytes"):
        uopc.onnx.load(3)
    with pytest.raises(UserError, match=r"cannot read 'a.x00b': .*embedded null"):
        uopc.onnx.load("a\0b")


def test_a_model_from_a_pipe(tmp_path: Path) -> None:
    file, data = tmp_path / "pipe", message()
    os.mkfifo(file)
    writer = threading.Thread(target=file.write_bytes, args=(data,))
    writer.start()
    assert read(file) == read(data)
    writer.join()


CODE = """
import sys, uopc.onnx
def peak():
    rows = open("/proc/self/status")
    return int(next(row.split()[1] for row in rows if row.startswith("VmHWM")))
before = peak()
model = uopc.onnx.graph(sys.argv[1])
print((peak() - before) * 1024)
"""


@pytest.mark.slow
def test_weights_are_once_in_memory(tmp_path: Path) -> None:
    """Of a file of 100 MB: the peak of the memory grows by less than a half more."""
    w = numpy_helper.from_array(RNG.random((25, 1000, 1000), "f4"), "w")
    given = helper.make_tensor_value_info("i", TensorProto.INT64, [3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1000, 1000])
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    graph = helper.make_graph([node], "g", [given], [out], [w])
    onnx.save(helper.make_model(graph, ir_version=9), tmp_path / "m.onnx")
    command = [sys.executable, "-c", CODE, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 90e6 < int(done.stdout) < 150e6
