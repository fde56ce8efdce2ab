"""WebAssembly: modules run by Wasmtime, alone and linked by LLVM's linker, with the JIT's bits."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests import machines
from tests.exporting.test_export import (
    CASES,
    Case,
    called,
    flat,
    floats,
    long_kernel,
    loops,
    network,
    run,
    sparse,
)
from uopc import InvalidIR, dtypes
from uopc.errors import Unsupported, UserError
from uopc.exporting import wasm
from uopc.ir.index import closed

TWIN = "x86-64-v2"  # as wide, and without products and sums that round once, too
LINKER = shutil.which("wasm-ld") or shutil.which("wasm-ld-14")
MODULES = [pytest.param(c, marks=[pytest.mark.slow] * (c is long_kernel)) for c in CASES]


class Host:
    """A module in Wasmtime, which calls it as a browser would."""

    def __init__(self, data: bytes) -> None:
        wasmtime = pytest.importorskip("wasmtime", reason="Wasmtime is not installed")
        self.store = wasmtime.Store()
        module = wasmtime.Module(self.store.engine, data)
        assert not module.imports
        self.exports = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.memory = self.exports["memory"]
        self.end = self.exports["__heap_base"].value(self.store)

    def place(self, content: bytes) -> int:
        """Put bytes into the memory behind all others."""
        at = -(-self.end // 64) * 64
        self.end = at + len(content)
        missing = self.end - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing >> 16))
        self.memory.write(self.store, content, at)
        return at

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, at, at + size))

    def call(self, name: str, *given: int) -> Any:
        return self.exports[name](self.store, *given)


def jit(case: Case) -> Any:
    """The results of this machine with vectors as wide."""
    if not machines.runnable(TWIN):
        pytest.skip(f"no {TWIN} here")
    with uopc.options(target_cpu=TWIN):
        return called(uopc.compile(case.graph, threads=1), case)


def assert_runs(data: bytes, manifest: Any, case: Case) -> None:
    """A call gives the bits of the JIT."""
    host, wanted, inputs = Host(data), flat(jit(case)), iter(case.arrays)
    results = dict(zip(manifest["results"], wanted, strict=True))
    places, sizes = [], dict(case.sizes)
    for i, a in enumerate(manifest["arrays"]):
        if a["input"]:
            array = next(inputs)
            named = [d for d in zip(a["shape"], array.shape) if not isinstance(d[0], int)]
            sizes |= {d["code"][0][1]: n for d, n in named if len(d["code"]) == 1}
            places.append(host.place(array.tobytes()))
        else:
            places.append(host.place(b"\x5a" * results[i].nbytes))
    given = [sizes[d["name"]] for d in manifest["dimensions"]]
    nbytes = manifest["work"]["bytes"]
    if isinstance(nbytes, dict):
        nbytes = closed.value([(op, known, src) for op, known, src in nbytes["code"]], sizes)
    work = host.place(bytes(nbytes))
    assert host.call("f_work_bytes", *given) == nbytes
    for number, d in enumerate(manifest["dimensions"]):
        wrong = [d["high"] + 1 if i == number else n for i, n in enumerate(given)]
        assert host.call("f", *places, *wrong, work) == number + 1
    assert host.call("f", *places, *given, work) == 0
    for i, array in results.items():
        assert host.read(places[i], array.nbytes) == array.tobytes()


@pytest.mark.parametrize("make", MODULES, ids=lambda c: c.__name__)
def test_a_module_gives_the_bits_of_the_jit(make: Any, tmp_path: Path) -> None:
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", target="wasm32")
    assert made.files[-1].name == "f.wasm"
    assert made.manifest["target"]["triple"] == "wasm32-unknown-unknown"
    assert_runs(made.files[-1].read_bytes(), made.manifest, case)


def constants() -> Case:
    """Arrays beside code: two that are equal, one that is empty."""
    x, w = uopc.param("x", (7, 300), dtypes.float64), floats(300, 50, dtype="f8")
    graph = [x @ uopc.constant(w), x.exp() @ uopc.constant(w.copy()), x + uopc.constant(w[:1, :1])]
    return Case(graph, [floats(7, 300, dtype="f8")])


@pytest.mark.skipif(LINKER is None, reason="there is no wasm-ld")
@pytest.mark.parametrize("make, kind", [(constants, "object"), (constants, "static"),
                                        (loops, "object"), (sparse, "static")])  # fmt: skip
def test_files_that_a_linker_takes(make: Any, kind: str, tmp_path: Path) -> None:
    case = make()
    made = uopc.export(case.graph, tmp_path / "f", kind=kind, target="wasm32")
    exported = [f"--export={name}" for name in ("f", "f_work_bytes", "__heap_base")]
    run(LINKER, "--no-entry", "--fatal-warnings", *exported, made.files[-1].name, "-o", "g.wasm",
        folder=tmp_path)  # fmt: skip
    assert_runs((tmp_path / "g.wasm").read_bytes(), made.manifest, case)


def test_constants_are_in_the_module_once(tmp_path: Path) -> None:
    case = constants()
    made = uopc.export(case.graph, tmp_path / "f", kind="shared", target="wasm32")
    assert_runs(made.files[-1].read_bytes(), made.manifest, case)
    assert made.files[-1].stat().st_size < 1.2 * 300 * 50 * 8
    found = Host(made.files[-1].read_bytes())
    at = found.exports["f_id"].value(found.store)
    assert found.read(at, 40).decode() == made.manifest["id"]


def test_what_no_module_is_made_for(tmp_path: Path) -> None:
    x = uopc.param("x", (512, 512))
    with pytest.raises(Unsupported, match="a module cannot pass functions"):
        uopc.export(x @ x, tmp_path / "f", kind="shared", target="wasm32", threads=2)
    made = uopc.export(x @ x, tmp_path / "f", target="wasm32", threads=2)
    assert wasm.read(made.files[-1].read_bytes()).undefined == []
    with pytest.raises(Unsupported, match="choose kind='c'"):
        uopc.export(x + 1, tmp_path / "f", target="wasm32", abi="casadi")
    with pytest.raises(UserError, match="code is for wasm32"):
        uopc.load_exported(tmp_path / "f")


def test_other_files_are_no_objects(tmp_path: Path) -> None:
    made = uopc.export(network().graph, tmp_path / "f", target="wasm32")
    data = made.files[-1].read_bytes()
    assert [s.name for s in wasm.read(data).symbols if s.is_global and s.name] == [
        "f_work_bytes", "f", "f_id",
    ]  # fmt: skip
    rng = np.random.default_rng(3)
    for text in (b"", b"MZ", b"\x7fELF" + data, data[:100], data[:-7], wasm.module(data)):
        with pytest.raises(InvalidIR, match="not a WebAssembly object file"):
            wasm.read(text)
    for _ in range(300):  # never another error
        changed = bytearray(data)
        changed[int(rng.integers(8, len(data)))] = int(rng.integers(256))
        with contextlib.suppress(InvalidIR):
            wasm.read(bytes(changed))
