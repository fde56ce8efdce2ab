"""The tables and the plot of `benchmarks/compile_time.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from growth import GROWTH, exponent

Row = dict[str, Any]


def _seconds(row: Row | None, key: str = "total") -> str:
    if row is None:
        return "–"
    return f"{row[key]:.3f}" if key in row else "> 60"


def _rows(found: dict[str, Any], case: str, peer: str) -> list[Row]:
    rows = [r for r in found["results"] if r["case"] == case and r["peer"] == peer]
    return sorted(rows, key=lambda r: int(r["size"]))


def _slowest(row: Row, count: int = 3) -> str:
    """The stages that took longest, in milliseconds."""
    stages = sorted(row.get("stages", {}).items(), key=lambda s: -float(s[1]))
    return ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in stages[:count])


def _ratio(row: Row, other: Row | None) -> str:
    if other is None or "total" not in row:
        return "–"
    return f"{other['total'] / row['total']:.1f}×" if "total" in other else "> 60 s"


_HEAD = (
    "| case | size | nodes | build | LLVM | total s | nodes/s | MB | kernels | exponent |"
    " slowest stages, ms | JAX | tinygrad |\n" + "|---" * 13 + "|\n"
)


def _line(found: dict[str, Any], row: Row, grown: str) -> str:
    peers = {
        peer: next((r for r in _rows(found, row["case"], peer) if r["size"] == row["size"]), None)
        for peer in ("jax", "tinygrad")
    }
    if "total" not in row:
        return f"| {row['case']} | {row['size'] or ''} | | | | > 60 | | | | | | | |\n"
    past = found["recorded"].get(row["case"]) or {}
    python = sum(past[k] or 0.0 for k in ("schedule", "codegen") if k in past)
    own = row["total"] - row["llvm"]
    cited = f"{python / own:.0f}× (recorded)" if python else _ratio(row, peers["tinygrad"])
    return (
        f"| {row['case']} | {row['size'] or ''} | {row['nodes']} | {_seconds(row, 'build')} |"
        f" {_seconds(row, 'llvm')} | {_seconds(row)} | {row['nodes'] / row['total']:.0f} |"
        f" {row['megabytes']:.0f} | {row['kernels']} | {grown} | {_slowest(row)} |"
        f" {_ratio(row, peers['jax'])} | {cited} |\n"
    )


def markdown(found: dict[str, Any]) -> str:
    """One row a case and size. JAX: its total over ours. tinygrad: its total over ours, or what was
    recorded of its Python time over ours without LLVM."""
    text = "# Compile time\n\n" + _HEAD
    cases = list(dict.fromkeys(r["case"] for r in found["results"]))
    for case in cases:
        rows = _rows(found, case, "uopc")
        timed = [r for r in rows if "total" in r]
        grown = ""
        if len(timed) > 1:
            slope = exponent([r["nodes"] for r in timed], [r["total"] for r in timed])
            grown = f"{slope:.2f}"
        text += "".join(_line(found, r, grown if r is rows[-1] else "") for r in rows)
    return f"{text}\nCPU seconds, LLVM included. Exponent: of the total over the nodes.\n"


def plot(found: dict[str, Any], path: Path) -> None:
    """Time against size for the cases that grow."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed")
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    for number, case in enumerate(GROWTH):
        nodes = {r["size"]: r.get("nodes") for r in _rows(found, case, "uopc")}
        for peer, style in (("uopc", "-o"), ("jax", "--"), ("tinygrad", ":")):
            rows = [r for r in _rows(found, case, peer) if "total" in r and nodes.get(r["size"])]
            if rows:
                label = case if peer == "uopc" else None
                axes.loglog([nodes[r["size"]] for r in rows], [r["total"] for r in rows], style,
                            color=f"C{number}", label=label, markersize=4)  # fmt: skip
    axes.set_xlabel("nodes (uopc's count); dashed: JAX, dotted: tinygrad")
    axes.set_ylabel("CPU seconds to a callable")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
