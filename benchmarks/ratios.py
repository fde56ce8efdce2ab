"""The README's table of ratios, and its picture.

    python benchmarks/ratios.py            print the table
    python benchmarks/ratios.py --plot     also write docs/lab/ratios.png (needs matplotlib)

A ratio is another library's time over uopc's, with 2 threads. uopc's and NumPy's times are those of
docs/lab/kernels/kernels.json, Numba's and JAX's were recorded on the same machine (machine.json).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "docs" / "lab" / "kernels" / "kernels.json"
PLOT = ROOT / "docs" / "lab" / "ratios.png"
PEERS = ("NumPy", "Numba", "JAX")
THREADS = "2"
WORKLOADS = {
    "tiny_8": "`a*b + c`, 8 elements, a call",
    "chain_4m": "elementwise chain, 4 M float32",
    "map1_exp_1m_f32": "exp of 1 M float32",
    "sum_all_16m": "sum of 16 M float32",
    "softmax_4096x1024": "softmax, 4096 × 1024",
    "layer_norm_4096x1024": "layer norm, 4096 × 1024",
    "gemm_1024": "matrix product, 1024³ float32",
    "conv2d_3x3_64": "convolution, 3 × 3, 64 channels",
    "attention": "attention, 8 heads, 512 × 64",
    "image_2048": "image filter, 2048 × 2048",
}


def ratios() -> dict[str, dict[str, float]]:
    """The time of each peer over ours, by workload."""
    rows = json.loads(RUN.read_text("utf-8"))["runs"][THREADS]
    peers = json.loads((Path(__file__).parent / "machine.json").read_text("utf-8"))["peers_ms"]
    found: dict[str, dict[str, float]] = {}
    for name in WORKLOADS:
        times = rows[name]["peers"]
        ours = times["uopc"]["seconds"]
        recorded = {p: peers[name][THREADS].get(p.lower()) for p in PEERS[1:]}
        found[name] = {"NumPy": times["numpy"]["seconds"] / ours}
        found[name] |= {p: ms * 1e-3 / ours for p, ms in recorded.items() if ms is not None}
    return found


def table() -> str:
    """The table as Markdown."""
    lines = [f"| | {' | '.join(PEERS)} |", "|---|" + "---|" * len(PEERS)]
    for name, row in ratios().items():
        cells = [f"{row[p]:.1f}×" if p in row else "–" for p in PEERS]
        lines.append(f"| {WORKLOADS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot() -> None:
    """The same as bars, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = ratios()
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), dpi=100)
    height = 0.27
    for i, peer in enumerate(PEERS):
        rows = [(n + i * height, row[peer]) for n, row in enumerate(found.values()) if peer in row]
        axes.barh(*zip(*rows), height=height, label=peer)
    axes.set_yticks([n + height for n in range(len(found))])
    axes.set_yticklabels([WORKLOADS[n].replace("`", "") for n in found], fontsize=8)
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50])
    axes.set_xticklabels(["1", "2", "5", "10", "20", "50"])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_title("their time / uopc's, 2 threads (right of 1: uopc is faster)", fontsize=9)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(PLOT)


if __name__ == "__main__":
    print(table(), end="")
    if "--plot" in sys.argv[1:]:
        plot()
