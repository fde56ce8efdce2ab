"""Models that nobody should trust: changed at random, huge, without end, and of more than 2 GB."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import uopc.onnx
from tests.onnx_nodes.cases import cases
from tests.onnx_nodes.mutants import mutant
from uopc.errors import Error, UserError
from uopc.onnx import importer

HEAD = '<ir_version: 8, opset_import: ["": 18]>'
EACH = 300  # changed models of one case


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


@pytest.mark.parametrize("part", range(20))
@pytest.mark.few(2)
def test_changed_models(part: int) -> None:
    """Each is a graph or an error of uopc: nothing else is raised, and nothing takes long."""
    made, names = 0, sorted(cases())
    for seed in range(EACH * part, EACH * (part + 1)):
        changed = mutant(cases()[random.Random(seed).choice(names)].model, seed)
        try:
            uopc.onnx.graph(changed)
            made += 1
        except Error:
            pass
    assert EACH // 10 < made < EACH // 2  # else the changes are too small, or too great


HUGE = {
    "a range": "g () => (float[n] y) <float a = {0}, float b = {1e30}, float c = {1}> "
               "{ y = Range(a, b, c) }",
    "a range without end": "g () => (int64[n] y) <int64 a = {0}, int64 b = {5}, int64 c = {0}> "
                           "{ y = Range(a, b, c) }",
    "an identity": "g (float[n, m] x) => (float[n, m] y) { y = EyeLike(x) }",
    "a pad": "g (float[3] x) => (float[n] y) <int64[2] p = {0, 9223372036854775807}> "
             '{ y = Pad<mode="reflect">(x, p) }',
    "parts": "g (float[1000000000] x) => (seq(float[n]) y) { y = SplitToSequence(x) }",
    "outputs": "g (float[3] x) => (float[3] y) { y = Split<num_outputs=4611686018427387904>(x) }",
    "channels": "g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) { y = LRN<size=1000000000>(x) }",
    "samples": "g (float[1, 1, 4, 4] x, float[1, 4] b, int64[1] i) => (float[1, 1, 1, 1] y) "
               "{ y = RoiAlign<sampling_ratio=1000000000>(x, b, i) }",
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_huge_models(name: str) -> None:
    """They name more elements than there is memory for; what is never made is no harm."""
    sizes = {"n": 1 << 30, "m": 1 << 30} if "n, m" in HUGE[name] else None
    if name in ("an identity", "channels"):
        uopc.onnx.graph(model(HUGE[name]), dims=sizes)
        return
    with pytest.raises(UserError, match=r"too many|at most|Maximum|ZeroDivision"):
        uopc.onnx.graph(model(HUGE[name]), dims=sizes)


def test_loops_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose steps change shapes: each is a part of the graph."""
    monkeypatch.setattr(importer, "MOST_NODES", 2000)
    text = """g (float[3] x) => (float[n] y) <int64 k = {3000}, bool c = {1}> { y = Loop(k, c, x)
        <body = b (int64 i, bool d, float[m] s) => (bool e, float[p] t) { e = Identity(d)
        t = Loop(k, c, s) <body = q (int64 j, bool f, float[r] u) => (bool h, float[v] w)
        { h = Identity(f) w = Concat<axis=0>(u, x) }> }> }"""
    with pytest.raises(UserError, match="more than 2000 nodes"):
        uopc.onnx.graph(model(text))


def test_functions_that_call_others_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not deep, but 2^40 calls."""
    monkeypatch.setattr(importer, "MOST_NODES", 2000)
    lines = [f'<domain: "me", opset_import: ["me": 1]> f{i} (x) => (y) {{ a = me.f{i + 1}(x) '
             f"y = me.f{i + 1}(a) }}" for i in range(40)]  # fmt: skip
    text = """<ir_version: 8, opset_import: ["": 18, "me": 1]>
        g (float[2] x) => (float[2] y) { y = me.f0(x) }
        <domain: "me", opset_import: ["": 18]> f40 (x) => (y) { y = Neg(x) } """
    with pytest.raises(UserError, match="more than 2000 nodes"):
        uopc.onnx.load(parser.parse_model(text + "\n".join(lines)))


def test_weights_of_more_than_2_gb_are_mapped(tmp_path: Path) -> None:
    """In a sparse file: 3 GB of address space, a few pages of memory."""
    rows, width = 3 << 18, 1024
    m = model("g (int64[n] i) => (float[n, 1024] y) <float[1] w = {0}> { y = Gather(w, i) }")
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, width])
    t.data_location = TensorProto.EXTERNAL
    t.external_data.add(key="location", value="w.bin")
    del m.graph.initializer[:]
    m.graph.initializer.append(t)
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(rows * width * 4)
        for row in (0, rows - 1):
            file.seek(row * width * 4)
            file.write(np.full(width, row + 0.5, np.float32).tobytes())
    code = f"""
import uopc.onnx, numpy as np
f = uopc.onnx.load({str(tmp_path / "m.onnx")!r})
rows = [0, {rows - 1}, 7]
assert f(np.array(rows))[:, 5].tolist() == [0.5, {rows - 0.5}, 0.0]
print(*[row.split()[1] for row in open("/proc/self/status") if row.startswith("VmHWM")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1 << 20  # KiB: a third of the file


def test_an_unexpected_attribute_names_the_node() -> None:
    m = model("g (float[3] x) => (float[3] y) { y = Transpose<perm=[0, 1]>(x) }")
    m.graph.node[0].name = "turn"
    with pytest.raises(UserError, match="Transpose 'turn' of the model: "):
        uopc.onnx.load(m)
    node = helper.make_node("Transpose", ["x"], ["y"], perm="no numbers", name="turn")
    m.graph.node[0].CopyFrom(node)
    with pytest.raises(UserError, match="Transpose 'turn' of the model: "):
        uopc.onnx.load(m)


def test_names_that_are_no_text() -> None:
    data = model("g (float[3] xxxx) => (float[3] y) { y = Neg(xxxx) }").SerializeToString()
    broken = data.replace(b"xxxx", b"\xff\xfe\xfd\xfc")
    try:
        f = uopc.onnx.load(broken)
    except Error:
        return
    assert f(np.ones(3, np.float32)).tolist() == [-1, -1, -1]
