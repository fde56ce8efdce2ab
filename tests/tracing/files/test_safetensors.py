"""Safetensors: read as views, written as the library of the format writes them, and no file that
the format does not allow is taken for one that it does."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import uopc
from uopc import Unsupported, UserError, dtypes

library = pytest.importorskip("safetensors")
from safetensors.numpy import save as library_save  # noqa: E402

NAMES = {
    dtypes.bool_: "BOOL", dtypes.uint8: "U8", dtypes.int8: "I8", dtypes.fp8e5m2: "F8_E5M2",
    dtypes.fp8e4m3: "F8_E4M3", dtypes.fp8e4m3fnuz: "F8_E4M3FNUZ",
    dtypes.fp8e5m2fnuz: "F8_E5M2FNUZ", dtypes.int16: "I16", dtypes.uint16: "U16",
    dtypes.float16: "F16", dtypes.bfloat16: "BF16", dtypes.int32: "I32", dtypes.uint32: "U32",
    dtypes.float32: "F32", dtypes.float64: "F64", dtypes.int64: "I64", dtypes.uint64: "U64",
}  # fmt: skip


def random_arrays(seed, count=12):
    """Arrays of every dtype and of odd shapes, in odd order, with odd names."""
    g = np.random.default_rng(seed)
    found = {}
    for i in range(count):
        t = list(NAMES)[g.integers(len(NAMES))]
        shape = tuple(g.integers(0, 4, g.integers(0, 4)))
        bits = g.integers(0, 2 if t is dtypes.bool_ else 256, (*shape, t.itemsize), "u1")
        codes = g.choice([65, 90, 97, 34, 92, 10, 31, 47, 233, 0x1F600], 3)
        name = "".join(map(chr, codes))
        found[f"{name}{i}"] = np.ascontiguousarray(bits).view(t.numpy).reshape(shape)
    return found


def test_every_dtype_is_one_of_the_format():
    assert set(NAMES) == set(dtypes.ARRAY_TYPES)


@pytest.mark.parametrize("seed", range(20))
def test_files_are_those_of_the_library(tmp_path, seed):
    tensors = random_arrays(seed)
    metadata = {"k\n": 'é"'} if seed % 2 else None
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    uopc.save_safetensors(ours, tensors, metadata)
    theirs.write_bytes(library_save(tensors, metadata))
    assert ours.read_bytes() == theirs.read_bytes()
    read = uopc.load_safetensors(theirs)
    assert read.metadata == (metadata or {}) and read.keys() == tensors.keys()
    for name, array in tensors.items():
        got = read[name]
        assert got.dtype == array.dtype and got.shape == array.shape
        assert got.tobytes() == array.tobytes()
        assert not got.size or not (got.flags.owndata or got.flags.writeable)


def test_what_is_written_need_not_lie_in_order(tmp_path):
    a = np.arange(12, dtype="f4").reshape(3, 4)
    path = tmp_path / "x"
    uopc.save_safetensors(path, {"t": a.T, "big": a.astype(">f4"), "list": [1, 2], "one": 1.5})
    read = uopc.load_safetensors(path)
    np.testing.assert_array_equal(read["t"], a.T)
    np.testing.assert_array_equal(read["big"], a)
    assert read["list"].dtype == np.int64 and read["one"].shape == ()
    uopc.save_safetensors(path, {n: x * 2 for n, x in read.items()})  # views of the old file
    np.testing.assert_array_equal(read["big"], a)
    np.testing.assert_array_equal(uopc.load_safetensors(path)["big"], 2 * a)
    uopc.save_safetensors(path, {})
    assert uopc.load_safetensors(path) == {} and os.listdir(tmp_path) == ["x"]


def test_weights_are_constants_and_arguments_where_they_lie(tmp_path):
    g = np.random.default_rng(0)
    tensors = {"w": g.standard_normal((6, 5)).astype("f4"), "b": g.standard_normal(5).astype("f4")}
    uopc.save_safetensors(tmp_path / "m", tensors)
    read = uopc.load_safetensors(tmp_path / "m")
    w, b = (uopc.constant(read[n]) for n in "wb")
    address = [a.__array_interface__["data"][0] for a in (w.arg.array, read["w"])]
    assert address[0] == address[1]
    x = uopc.param("x", (3, 6))
    given = g.standard_normal((3, 6)).astype("f4")
    want = given @ tensors["w"] + tensors["b"]
    np.testing.assert_allclose(uopc.compile(x @ w + b)(given), want, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- hostile files
def content(header, data=b"", length=None, pad=True):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if pad else 0)
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin, end, shape=None, dtype="F32", **more):
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


HOSTILE = {
    "a long name": (content({"a" * 100_000: entry(0, 4, [2])}, bytes(4)), "has 4 bytes"),
    "a long shape": (content({"a": entry(0, 4, [1] * 9999 + [-1])}, bytes(4)), "has the shape"),
    "nothing": (b"", "it is empty"),
    "too short": (b"\x02\0\0", "a header of 0 bytes in 3"),
    "a header that leaves the file": (content({}, length=99), "a header of 99 bytes"),
    "a huge header": (content({}, length=1 << 63), "a header of 9223372036854775808 bytes"),
    "a header over the limit": (content({}, length=100_000_001), "a header of 100000001 bytes"),
    "no header": (content(b"", length=0), "must begin with {"),
    "a space first": (content(b" {}"), "must begin with {"),
    "a list": (content([]), "must begin with {"),
    "no JSON": (content(b"{]"), "no JSON"),
    "two objects": (content(b"{}{}"), "no JSON"),
    "no UTF-8": (content(b'{"\xff": 1}'), "no JSON"),
    "deep": (content(b'{"a":' + b"[" * 200_000), "no JSON"),
    "a vast number": (content(b'{"a":' + b"9" * 10_000 + b"}"), "no JSON"),
    "a name twice": (
        content(b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":1}', b"1234"),
        "'a' is in the header twice",
    ),
    "a field twice": (
        content(b'{"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}}', b"1234"),
        "'dtype' is in the header twice",
    ),
    "an overlap": (content({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "overlaps"),
    "the same bytes": (content({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "overlaps"),
    "a gap": (content({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "leaves a gap"),
    "a gap at the begin": (content({"a": entry(4, 8)}, bytes(8)), "leaves a gap"),
    "bytes of nobody": (content({"a": entry(0, 4)}, bytes(8)), "and 8 lie behind"),
    "data without arrays": (content({}, bytes(8)), "and 8 lie behind"),
    "truncated": (content({"a": entry(0, 8)}, bytes(7)), "have 8 bytes, and 7 lie behind"),
    "an end before its begin": (content({"a": entry(4, 0, [1])}, bytes(4)), "data_offsets"),
    "a negative begin": (content({"a": entry(-4, 0, [1])}, bytes(4)), "data_offsets"),
    "a begin that is no int": (content({"a": entry(0.0, 4, [1])}, bytes(4)), "data_offsets"),
    "a bool as a begin": (content({"a": entry(False, 4, [1])}, bytes(4)), "data_offsets"),
    "three offsets": (
        content({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}}, bytes(4)),
        "data_offsets",
    ),
    "a size that does not fit": (content({"a": entry(0, 4, [2])}, bytes(4)), r"2\] needs 8"),
    "a shape that overflows": (
        content({"a": entry(0, 0, [1 << 32, 1 << 32])}, b""), "has the shape",
    ),
    "zeros beside vast sizes": (content({"a": entry(0, 0, [0, 1 << 61, 8])}), "has the shape"),
    "a negative size": (content({"a": entry(0, 4, [-1])}, bytes(4)), "has the shape"),
    "a shape that is no list": (content({"a": entry(0, 4, 1)}, bytes(4)), "has the shape"),
    "an unknown dtype": (content({"a": entry(0, 4, [1], "F33")}, bytes(4)), "the dtype 'F33'"),
    "a dtype that is no text": (content({"a": entry(0, 4, [1], [])}, bytes(4)), "the dtype"),
    "one more field": (content({"a": entry(0, 4, more=1)}, bytes(4)), "nothing else"),
    "no fields": (content({"a": {}}), "must have dtype"),
    "a text as an entry": (content({"a": "F32"}), "must have dtype"),
    "metadata of numbers": (content({"__metadata__": {"a": 1}}), "texts by name"),
    "metadata as a list": (content({"__metadata__": []}), "texts by name"),
    "unaligned": (
        content({"a": entry(0, 1, [1], "U8"), "b": entry(1, 5)}, bytes(5)), "is not aligned",
    ),
    "an unaligned begin": (content(b'{"a": %s} ' % json.dumps(entry(0, 4)).encode(), bytes(4),
                                   pad=False), "is not aligned"),
    "a bool of 2": (content({"a": entry(0, 1, [1], "BOOL")}, b"\2"), "bools must be 0 or 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path, name):
    bytes_, message = HOSTILE[name]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(bytes_)
    with pytest.raises(UserError, match=message) as told:
        uopc.load_safetensors(path)
    assert str(path) in str(told.value) and len(str(told.value)) < 500
    lenient = {
        "a bool of 2", "unaligned", "an unaligned begin", "a space first", "one more field",
        "zeros beside vast sizes",
    }  # fmt: skip
    if name not in lenient:  # the library takes none of the others either
        with pytest.raises(Exception, match=r"."):
            library.deserialize(bytes_)


@pytest.mark.parametrize("name", ["F4", "F6_E2M3", "F8_E8M0", "C64"])
def test_dtypes_that_uopc_lacks_are_unsupported(tmp_path, name):
    path = tmp_path / "x"
    path.write_bytes(content({"a": entry(0, 0, [0], name)}))
    with pytest.raises(Unsupported, match=f"'a' has dtype {name}"):
        uopc.load_safetensors(path)


def test_truncated_files_and_flipped_bits_of_headers_are_read_or_refused(tmp_path):
    """Never another error, and nothing outside of the file."""
    path = tmp_path / "x"
    whole = library_save({"a": np.ones((2, 3), "f4"), "b": np.ones(4, "u1")}, {"c": "d"})
    length = 8 + int.from_bytes(whole[:8], "little")
    changed = [whole[:n] for n in range(0, len(whole), 3)]
    changed += [
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
        for i in range(length) for bit in range(i % 4, 8, 4)
    ]
    outcomes = {True: 0, False: 0}
    for bytes_ in changed:
        path.write_bytes(bytes_)
        try:
            read = uopc.load_safetensors(path)
            library.deserialize(bytes_)
            outcomes[True] += 1
        except (UserError, Unsupported):
            outcomes[False] += 1
            continue
        assert sum(a.nbytes for a in read.values()) == len(whole) - length
    assert min(outcomes.values()) > 5


def test_bad_arguments(tmp_path):
    x = np.ones(2)
    cases = {
        "No such file": lambda: uopc.load_safetensors(tmp_path / "none"),
        "not a regular file": lambda: uopc.load_safetensors(tmp_path),
        "path must be": lambda: uopc.load_safetensors(None),
        "has dtype complex128": lambda: uopc.save_safetensors(tmp_path / "x", {"a": x * 1j}),
        "has dtype <U1": lambda: uopc.save_safetensors(tmp_path / "x", {"a": "b"}),
        "has dtype object": lambda: uopc.save_safetensors(tmp_path / "x", {"a": None}),
        "__metadata__, got 3": lambda: uopc.save_safetensors(tmp_path / "x", {3: x}),
        "name of an array": lambda: uopc.save_safetensors(tmp_path / "x", {"__metadata__": x}),
        "arrays by name": lambda: uopc.save_safetensors(tmp_path / "x", [x]),
        "metadata must be": lambda: uopc.save_safetensors(tmp_path / "x", {"a": x}, {"a": 1}),
        "metadata must be texts": lambda: uopc.save_safetensors(tmp_path / "x", {"a": x}, ["a"]),
        "surrogates": lambda: uopc.save_safetensors(tmp_path / "x", {"\ud800": x}),
        "cannot write": lambda: uopc.save_safetensors(tmp_path / "no" / "x", {"a": x}),
        "a masked array": lambda: uopc.save_safetensors(tmp_path / "x", {"a": np.ma.array(x)}),
    }
    for message, attempt in cases.items():
        with pytest.raises(UserError, match=message):
            attempt()
    assert not os.listdir(tmp_path)
