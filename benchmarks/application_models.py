"""Models of installed applications beside ONNX Runtime, as files and sizes come.

    python benchmarks/application_models.py [NAME...] [--threads 1] [--rounds 5] [--cold]

The files are in the packages rapidocr-onnxruntime, silero-vad, openwakeword, magika and ddddocr, of
which those are measured that are installed; trees are made by scikit-learn and skl2onnx, an LSTM of
bytes by ONNX Runtime's quantiser. Both sides run `InferenceSession`, in turns in one process. A
figure is the least of the rounds' medians: processor time for one thread, the clock for more.
`--cold` measures fresh processes (`model_files.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feed = dict[str, Array]
RANDOM = np.random.default_rng(0)


def _floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype("f4")


class File(NamedTuple):
    """A model in a package, and the inputs of a call."""

    package: str
    path: str
    feed: Callable[[], Feed]


def _ocr(name: str, *shape: int) -> File:
    return File("rapidocr_onnxruntime", f"models/ch_{name}_infer.onnx", _one("x", *shape))


def _vad_5(name: str, rate: bool = True) -> File:
    return File("silero_vad", f"data/silero_vad{name}.onnx", _vad("state", 576, 128, rate))


def _wake(name: str, feed: Callable[[], Feed]) -> File:
    return File("openwakeword", f"resources/models/{name}.onnx", feed)


def _vad(state: str, length: int, hidden: int, rate: bool = True) -> Callable[[], Feed]:
    """A chunk of sound at 16,000 samples a second, and the states of two directions or layers."""

    def feed() -> Feed:
        states = {name: np.zeros((2, 1, hidden), "f4") for name in state.split()}
        sampled = {"sr": np.array(16000)} if rate else {}
        return {"input": _floats(1, length) * 0.1, **states, **sampled}

    return feed


def _one(name: str, *shape: int) -> Callable[[], Feed]:
    return lambda: {name: _floats(*shape)}


_FLAT = "onnx::Flatten_0"
FILES = {
    "ppocr4-det": _ocr("PP-OCRv4_det", 1, 3, 320, 480),
    "ppocr4-rec": _ocr("PP-OCRv4_rec", 1, 3, 48, 320),
    "ppocr2-cls": _ocr("ppocr_mobile_v2.0_cls", 6, 3, 48, 192),
    "ddddocr": File("ddddocr", "common.onnx", _one("input1", 1, 1, 64, 160)),
    "ddddocr-int8": File("ddddocr", "common_old.onnx", _one("input1", 1, 1, 64, 160)),
    "ddddocr-det": File("ddddocr", "common_det.onnx", _one("images", 1, 3, 416, 416)),
    "magika": File(
        "magika", "models/standard_v3_3/model.onnx",
        lambda: {"bytes": RANDOM.integers(0, 257, (1, 2048)).astype("i4")},
    ),
    "silero5": _vad_5(""),
    "silero-op15": _vad_5("_16k_op15"),
    "silero-half": _vad_5("_half", rate=False),
    "silero-ifless": _vad_5("_op18_ifless"),
    "silero-openvino": _vad_5("_openvino_16k", rate=False),
    "silero-seq": File(
        "silero_vad", "data/silero_vad_16k_sequence.onnx",
        lambda: {"input": _floats(50, 576), "h": _floats(1, 1, 128), "c": _floats(1, 1, 128)},
    ),
    "silero4": _wake("silero_vad", _vad("h c", 512, 64)),
    "oww-mel": _wake("melspectrogram", _one("input", 1, 1760)),
    "oww-embed": _wake("embedding_model", _one("input_1", 1, 76, 32, 1)),
    "oww-alexa": _wake("alexa_v0.1", _one(_FLAT, 1, 16, 96)),
    "oww-jarvis": _wake("hey_jarvis_v0.1", _one("x.1", 1, 16, 96)),
    "oww-marvin": _wake("hey_marvin_v0.1", _one(_FLAT, 1, 16, 96)),
    "oww-mycroft": _wake("hey_mycroft_v0.1", _one("input_1", 1, 16, 96)),
    "oww-timer": _wake("timer_v0.1", _one(_FLAT, 1, 34, 96)),
    "oww-weather": _wake("weather_v0.1", _one(_FLAT, 1, 22, 96)),
}  # fmt: skip


# ---------------------------------------------------------------- models that are made here
def _converted(model: Any, features: Array) -> bytes:
    from skl2onnx import to_onnx

    options = {"zipmap": False} if hasattr(model, "classes_") else None
    made: bytes = to_onnx(model, features[:1], options=options).SerializeToString()
    return made


def _table() -> tuple[Array, Array]:
    x = _floats(2000, 20)
    return x, x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.1 * _floats(2000)


def boosted(folder: Path, rows: int) -> tuple[bytes, Feed]:
    """Boosted trees of up to 31 leaves, whose depths differ."""
    from sklearn.ensemble import GradientBoostingRegressor

    x, y = _table()
    model = GradientBoostingRegressor(
        n_estimators=100, max_depth=None, max_leaf_nodes=31, random_state=0
    ).fit(x, y)
    return _converted(model, x), {"X": _floats(rows, 20)}


def forest(folder: Path, rows: int) -> tuple[bytes, Feed]:
    """A random forest of deep trees."""
    from sklearn.ensemble import RandomForestClassifier

    x, y = _table()
    model = RandomForestClassifier(100, random_state=0).fit(x, y > 0)
    return _converted(model, x), {"X": _floats(rows, 20)}


def lstm_int8(folder: Path, hidden: int) -> tuple[bytes, Feed]:
    """An LSTM over 64 steps, quantised by ONNX Runtime's tool (DynamicQuantizeLSTM)."""
    import onnx
    from onnx import helper, numpy_helper
    from onnxruntime.quantization import quantize_dynamic

    inputs, of = 64, onnx.TensorProto.FLOAT
    weights = [_floats(1, 4 * hidden, n) * 0.1 for n in (inputs, hidden)]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", of, (64, 1, inputs))],
        [helper.make_tensor_value_info("y", of, (64, 1, 1, hidden))],
        [numpy_helper.from_array(v, n) for n, v in zip("wr", weights)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "int8.onnx")
    return (folder / "int8.onnx").read_bytes(), {"x": _floats(64, 1, inputs)}


MADE: dict[str, tuple[Callable[[Path, int], tuple[bytes, Feed]], int]] = {
    "boosted-1": (boosted, 1), "boosted-1000": (boosted, 1000),
    "forest-1": (forest, 1), "forest-1000": (forest, 1000),
    "lstm-int8-64": (lstm_int8, 64), "lstm-int8-256": (lstm_int8, 256),
}  # fmt: skip


def model(name: str, folder: Path) -> tuple[bytes, Feed] | None:
    """The bytes of a model and a call. None if its package is not installed."""
    if name in MADE:
        make, size = MADE[name]
        needed = ["onnxruntime"] if make is lstm_int8 else ["skl2onnx", "sklearn"]
        return make(folder, size) if all(map(importlib.util.find_spec, needed)) else None
    file = FILES[name]
    found = importlib.util.find_spec(file.package)
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations))) / file.path
    return (path.read_bytes(), file.feed()) if path.is_file() else None


# ---------------------------------------------------------------- calls
def _sessions(path: Path, threads: int) -> dict[str, Any]:
    import onnxruntime

    import uopc.onnx

    onnxruntime.set_default_logger_severity(4)
    found = {}
    for name, library in {"uopc": uopc.onnx, "onnxruntime": onnxruntime}.items():
        options = library.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        found[name] = library.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    return found


def _median(
    run: Callable[..., Any], feed: Feed, clock: Callable[[], float], seconds: float
) -> float:
    time.sleep(0.02)  # workers of the other side stop to wait
    run(None, feed)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        begin = clock()
        run(None, feed)
        taken.append(clock() - begin)
    return statistics.median(taken)


def warm(name: str, path: Path, feed: Feed, threads: int, rounds: int) -> tuple[float, str]:
    """The ratio of a model's times, and its row of the table."""
    sides = _sessions(path, threads)
    results = {side: s.run(None, feed) for side, s in sides.items()}
    pairs = [(np.asarray(a, "f8"), np.asarray(b, "f8")) for a, b in zip(*results.values())]
    difference = max([
        np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30) for a, b in pairs
    ])
    clock = time.process_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for side, session in sides.items():
            taken = _median(session.run, feed, clock, 0.15)
            best[side] = min(best[side], taken)
    ratio = best["uopc"] / best["onnxruntime"]
    columns = [f"{1e3 * v:.3g}" for v in best.values()]
    return ratio, f"| {name} | {' | '.join(columns)} | {ratio:.2f} | {difference:.0e} |"


def cold(name: str, model: bytes, feed: Feed, threads: int, rounds: int) -> str:
    """A row of the table of fresh processes."""
    import model_files

    found = model_files.measure(model, list(feed.values()), threads, rounds, 60, lambda _: 0.0)
    return model_files.line(name, found)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*FILES, *MADE])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    ratios = []
    if not options.cold:
        print("| model | uopc ms | ONNX Runtime ms | ratio | difference |\n|---|---|---|---|---|")
    for name in options.names:
        with tempfile.TemporaryDirectory() as top:
            found = model(name, Path(top))
            if found is None:
                print(f"| {name} | not installed |")
                continue
            if options.cold:
                print(cold(name, *found, options.threads, options.rounds), flush=True)
                continue
            path = Path(top) / "model.onnx"
            path.write_bytes(found[0])
            ratio, line = warm(name, path, found[1], options.threads, options.rounds)
            ratios.append(ratio)
            print(line, flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
