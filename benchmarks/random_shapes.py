"""Workloads of the kinds of `benchmarks/kernels.py` at drawn shapes, beside PyTorch in one process.

    python benchmarks/random_shapes.py [--page FILE.md]      100 workloads, a table
    python benchmarks/random_shapes.py 17 40:80 --out f.jsonl --minutes 4
    python benchmarks/random_shapes.py --report f.jsonl

Nothing was tuned on these shapes. One thread; both sides take turns, and ours takes part twice: the
least CPU time of a call. Each result is compared with NumPy's in float64.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import more_workloads as more
import workloads
from kernel_report import geometric_mean
from kernels import error_of, reference
from own_workloads import layer
from peers import PEERS, Peer
from placements import least
from records import make_parser, numbers_of, read, recorded, report_all
from workloads import F32, F64, Workload

import uopc
from uopc.backends import detect

COUNT = 100
MOST_ELEMENTS, MOST_FLOPS = 1 << 21, 3e8  # of the arrays and the work of a workload
MOST_RATIO = 1.1
LARGE = 1e-4  # seconds of PyTorch's: calls are a small part


# ------------------------------------------------------------------ shapes
class Draw:
    """Draws sizes whose logarithms are uniform: most are odd, and as many small ones as large."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def size(self, low: int, high: int) -> int:
        return round(math.exp(self.r.uniform(math.log(low), math.log(high))))

    def matrix(self, most: int = MOST_ELEMENTS) -> tuple[int, int]:
        """Rows and columns, of no more elements."""
        rows = self.size(4, most // 8)
        return rows, self.size(4, max(5, most // rows))

    def dtype(self) -> type:
        return self.r.choice((F32, F32, F64))


def _product(d: Draw) -> Workload:
    while True:
        m, k, n = (d.size(2, 4096) for _ in "mkn")
        if max(m * k, k * n, m * n) <= MOST_ELEMENTS and m * k * n < MOST_FLOPS / 2:
            return workloads.product((m, k), (k, n), d.dtype())


def _products(d: Draw) -> Workload:
    while True:
        batch, m, k, n = d.size(2, 512), *(d.size(4, 256) for _ in "mkn")
        if batch * max(m * k, k * n, m * n) <= MOST_ELEMENTS and batch * m * k * n < MOST_FLOPS / 2:
            return workloads.product((batch, m, k), (batch, k, n), d.dtype())


def _layer(d: Draw) -> Workload:
    return layer(d.size(1, 200), d.size(16, 800), d.size(8, 800), d.dtype())


def _vector(d: Draw) -> Workload:
    m, k = d.matrix()
    return workloads.product((m, k), (k,), d.dtype())


def _convolution(d: Draw) -> Workload:
    while True:
        c, k, h, w = d.size(2, 256), d.size(4, 256), d.size(6, 128), d.size(6, 128)
        window, stride, n = (
            d.r.choice((1, 3, 3, 5, 7)),
            d.r.choice((1, 1, 2)),
            d.r.choice((1, 1, 4)),
        )
        flops = 2.0 * n * c * k * window**2 * h * w / stride**2
        if flops < MOST_FLOPS and n * max(c, k) * h * w <= MOST_ELEMENTS:
            pad = window // 2 if d.r.random() < 0.8 else 0
            return more.convolution((c, h, w), k, window, n=n, stride=stride, pad=pad)


def _depthwise(d: Draw) -> Workload:
    c, size = d.size(8, 256), d.size(7, 80)
    return more.convolution((c, size, size), c, 3, stride=d.r.choice((1, 2)), pad=1, groups=c)


def _attention(d: Draw) -> Workload:
    return more.attention(d.size(1, 12), d.size(1, 256), d.size(16, 256), d.r.choice((16, 32, 64)))


def _heads(d: Draw) -> Workload:
    return workloads.heads(d.size(1, 4), d.size(8, 256), d.size(2, 12), d.size(8, 80))


def _gather(d: Draw) -> Workload:
    return workloads.gather_sum(d.size(100, 20_000), d.size(4, 100), d.size(4, 300), d.size(2, 60))


def _block(d: Draw) -> Workload:
    heads = d.r.choice((2, 3, 4))
    width = heads * d.r.choice((16, 24, 32))
    return workloads.transformer_block(d.size(4, 128), width, heads, d.size(2 * width, 4 * width))


KINDS: dict[str, Callable[[Draw], Workload]] = {
    "chain": lambda d: workloads.chain(d.size(100, MOST_ELEMENTS)),
    "product": _product,
    "function": lambda d: workloads.function(
        d.r.choice(("exp", "log", "sin")), d.dtype(), d.size(100, MOST_ELEMENTS)
    ),
    "convolution": _convolution,
    "sum": lambda d: workloads.total(d.size(100, 2 * MOST_ELEMENTS)),
    "rows_summed": lambda d: workloads.sum_axis(*d.matrix(), 1),
    "columns_summed": lambda d: workloads.sum_axis(*d.matrix(), 0),
    "products": _products,
    "maxima": lambda d: workloads.max_axis(*d.matrix(), d.r.choice((0, 1))),
    "softmax": lambda d: workloads.softmax(*d.matrix(MOST_ELEMENTS // 2)),
    "layer": _layer,
    "layer_norm": lambda d: workloads.layer_norm(*d.matrix(MOST_ELEMENTS // 2)),
    "vector": _vector,
    "depthwise": _depthwise,
    "scaled_sum": lambda d: workloads.scaled_sum(d.size(10, MOST_ELEMENTS)),
    "attention": _attention,
    "turned": lambda d: workloads.transpose_add(*d.matrix(), d.dtype()),
    "max_pool": lambda d: workloads.max_pool(d.size(1, 4), d.size(3, 64), 2 * d.size(5, 60)),
    "split_heads": _heads,
    "mlp": lambda d: workloads.mlp(d.size(1, 128)),
    "gather_sum": _gather,
    "transformer_block": _block,
    "image": lambda d: workloads.image(d.size(20, 700)),
    "masked_softmax": lambda d: workloads.masked_softmax(d.size(1, 8), d.size(16, 300)),
    "mandelbrot": lambda d: workloads.mandelbrot(d.size(20, 200), d.size(5, 60)),
}


def drawn(number: int) -> tuple[str, Workload]:
    """The kind and the workload of a number; kinds take turns."""
    kind = list(KINDS)[number % len(KINDS)]
    return kind, KINDS[kind](Draw(number))


# ------------------------------------------------------------------ a measurement
@dataclass
class Record:
    """Seconds of a call on each side, and the error of ours beside NumPy."""

    number: int
    kind: str
    shapes: list[list[int]]
    dtype: str
    ours: float
    torch: float
    repeat: float  # the greater time of ours over the lesser
    error: float
    wrong: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.torch


def measured(number: int, ours: Peer, torch: Peer) -> Record:
    kind, w = drawn(number)
    calls = [ours.prepare(w), torch.prepare(w)]
    with uopc.options(threads=1):
        error = error_of(w, reference(w), ours.array(calls[0]()))
    first, other, second = least([*calls, calls[0]], time.thread_time)
    return Record(
        number, kind, [list(a.shape) for a in w.inputs], str(w.inputs[0].dtype),
        min(first, second), other, max(first, second) / min(first, second), error,
        not error <= w.tolerance,
    )  # fmt: skip


# ------------------------------------------------------------------ the report
HEAD = (
    "| number | kind | inputs | ours, µs | PyTorch, µs | ours / PyTorch | repeat |\n" + "|---" * 7
) + "|"


def line(r: Record) -> str:
    shapes = ", ".join(["x".join(map(str, s)) for s in r.shapes])
    shapes = shapes if len(shapes) < 60 else shapes[:57] + "…"
    return (
        f"| {r.number} | {r.kind} | {r.dtype} {shapes} | {r.ours * 1e6:.4g} |"
        f" {r.torch * 1e6:.4g} | {r.ratio:.2f} | {r.repeat:.2f} |" + " WRONG" * r.wrong
    )


def report(records: list[Record], worst: int = 20) -> Iterator[str]:
    """Markdown: the mean of all and of each kind, and the worst."""
    every: dict[str, list[float]] = {"all": [r.ratio for r in records]}
    for r in records:
        every.setdefault(r.kind, []).append(r.ratio)
    wrong = [str(r.number) for r in records if r.wrong]
    yield "Wrong results: " + (", ".join(wrong) or "none") + ". Our time / PyTorch's:"
    yield ""
    yield f"| kind | workloads | mean | worst | above {MOST_RATIO} |"
    yield "|---" * 5 + "|"
    for kind, ratios in every.items():
        above = sum(x > MOST_RATIO for x in ratios)
        yield (
            f"| {kind} | {len(ratios)} | {geometric_mean(ratios):.2f} | {max(ratios):.2f}"
            f" | {above} |"
        )
    yield ""
    yield HEAD
    yield from map(line, sorted(records, key=lambda r: -r.ratio)[:worst])


def page(records: list[Record]) -> Iterator[str]:
    """The answer, how it was found, and the report."""
    ratios = [r.ratio for r in records]
    large = [r.ratio for r in records if r.torch >= LARGE]
    host = detect.host()
    yield "# Random shapes"
    yield ""
    yield (
        f"uopc takes {geometric_mean(ratios):.2f} of PyTorch's time (geometric mean of"
        f" {len(ratios)} workloads at drawn shapes, one thread), {max(ratios):.2f} at worst;"
        f" {geometric_mean(large):.2f} in the {len(large)} that take PyTorch {LARGE * 1e6:.0f} µs"
        " or more."
    )
    yield ""
    yield from PAGE.splitlines()
    yield ""
    yield f"{host.cpu}, vectors of {host.vector_bits} bits; PyTorch {metadata.version('torch')}."
    yield ""
    yield from report(records)


PAGE = """Made by `python benchmarks/random_shapes.py --page docs/lab/kernels/random_shapes.md`.

The kinds are those of `benchmarks/kernels.py`; logarithms of sizes are uniform, so half of the
workloads are small. Both libraries take turns in one process (least CPU time of a call), PyTorch
eager, as `torch.fx` calls it. Nothing was tuned on these shapes."""


def main() -> int:
    args = make_parser(__doc__).parse_args()
    if args.report:
        print(*report(read(args.report, Record)), sep="\n")
        return 0
    ours, torch = PEERS["uopc"](1), PEERS["torch"](1)
    print(HEAD)
    found = recorded(
        args, Record, numbers_of(args.numbers or [f"0:{COUNT}"]), lambda r: r.number,
        lambda number: measured(number, ours, torch), line,
    )  # fmt: skip
    report_all(args, found, report, page)
    return 1 if any(r.wrong for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
