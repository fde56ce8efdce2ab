"""The results of `kernels.py` as a Markdown page and as a plot."""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limits import MACHINE, envelope, recorded

OURS = ("uopc", "uopc searched")
HEADS = (
    "workload", "uopc ms", "best peer", "ms", "time / best", "time / envelope", "tinygrad",
    "with BEAM", "of the limit", "error", "compile s", "spread",
)  # fmt: skip
# The goals: times as ratios at most, times as fast at least, and seconds.
MOST_OF_ENVELOPE, LEAST_OF_TINYGRAD, LEAST_OF_BEAM, MOST_COMPILE = 1.15, 3.0, 1.0, 0.3


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def best_peer(row: dict[str, Any]) -> tuple[str, float] | None:
    """The fastest of the others in this run."""
    times = {n: r["seconds"] for n, r in row["peers"].items() if "seconds" in r and n not in OURS}
    if not times:
        return None
    name = min(times, key=times.__getitem__)
    return name, times[name]


def faster_than(name: str, row: dict[str, Any], peer: str, threads: int) -> float | None:
    """The time of a peer over ours: of one of this run, or else its recorded time."""
    there = row["peers"].get(peer, {}).get("seconds") or recorded(name, threads).get(peer)
    return None if there is None else float(there / row["peers"]["uopc"]["seconds"])


def ratios(rows: dict[str, Any], threads: int) -> dict[str, dict[str, float]]:
    """uopc's time as a ratio: `peer` to the best in this run, `envelope` to the recorded one;
    `searched`: the time after a search as a ratio to the best in this run."""
    found: dict[str, dict[str, float]] = {}
    for name, row in rows.items():
        seconds = row["peers"].get("uopc", {}).get("seconds")
        if seconds is None:
            continue
        found[name] = {"limit": row["limit"] / seconds}
        best, known = best_peer(row), envelope(name, threads)
        if best is not None:
            found[name]["peer"] = seconds / best[1]
            searched = row["peers"].get("uopc searched", {}).get("seconds")
            if searched is not None:
                found[name]["searched"] = searched / best[1]
        if known is not None:
            found[name]["envelope"] = seconds / known[1]
    return found


def _cells(name: str, row: dict[str, Any], of: dict[str, float], threads: int) -> list[str]:
    ours = row["peers"]["uopc"]
    best, known = best_peer(row), envelope(name, threads)
    beaten = [faster_than(name, row, p, threads) for p in ("tinygrad", "tinygrad BEAM")]
    return [
        name,
        f"{ours['seconds'] * 1e3:.3g}",
        "." if best is None else best[0],
        "." if best is None else f"{best[1] * 1e3:.3g}",
        f"{of['peer']:.2f}" if "peer" in of else ".",
        "." if known is None else f"{of['envelope']:.2f} ({known[0]})",
        *("." if times is None else f"{times:.1f}x" for times in beaten),
        f"{of['limit']:.0%}",
        f"{ours['difference']:.1e}" + (" WRONG" if ours.get("wrong") else ""),
        f"{ours['compile']:.3f}",
        f"{ours['spread']:.0%}",
    ]


def _table(rows: dict[str, Any], threads: int) -> Iterator[str]:
    found = ratios(rows, threads)
    yield "| " + " | ".join(HEADS) + " |"
    yield "|---" * len(HEADS) + "|"
    for name, row in rows.items():
        if name in found:
            yield "| " + " | ".join(_cells(name, row, found[name], threads)) + " |"
        else:
            error = row["peers"].get("uopc", {}).get("error", "not run")
            yield f"| {name} | {error} |" + " |" * (len(HEADS) - 2)
    yield ""
    kinds = {"peer": "Time as a ratio to the best peer here",
             "envelope": "Time as a ratio to the envelope",
             "searched": "Time after a search as a ratio to the best peer here"}  # fmt: skip
    for key, what in kinds.items():
        values = [r[key] for r in found.values() if key in r]
        if values:
            yield (
                f"{what}: geometric mean {geometric_mean(values):.2f}, "
                f"greatest {max(values):.2f}, {sum(v > 1.15 for v in values)} of {len(values)} "
                f"above 1.15."
            )
            yield ""


def fastest(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Each workload at the thread setting that is fastest, each side at its own: uopc's time as a
    ratio to the envelope, and how many times as fast it is as tinygrad."""
    found: dict[str, dict[str, float]] = {}
    for threads, rows in results["runs"].items():
        for name, row in rows.items():
            seconds = row["peers"].get("uopc", {}).get("seconds")
            if seconds is None:
                continue
            best = found.setdefault(name, {"uopc": math.inf, "compile": 0.0})
            best["uopc"] = min(best["uopc"], seconds)
            best["compile"] = max(best["compile"], row["peers"]["uopc"]["compile"])
            known = recorded(name, int(threads))
            if known:
                best["envelope"] = min(best.get("envelope", math.inf), *known.values())
            for peer in ("tinygrad", "tinygrad BEAM"):
                there = row["peers"].get(peer, {}).get("seconds") or known.get(peer)
                if there is not None:
                    best[peer] = min(best.get(peer, math.inf), there)
    return found


def _summary(results: dict[str, Any]) -> Iterator[str]:
    """The goals, and the workloads that miss them."""
    found = fastest(results)
    yield "## The fastest thread setting of each"
    yield ""
    yield "| asked | of | mean | worst | not reached |"
    yield "|---" * 5 + "|"
    asked = (
        ("time / envelope", "envelope", MOST_OF_ENVELOPE, False),
        ("times as fast as tinygrad", "tinygrad", LEAST_OF_TINYGRAD, True),
        ("times as fast as tinygrad with BEAM", "tinygrad BEAM", LEAST_OF_BEAM, True),
    )
    for what, peer, bound, least in asked:
        values = {n: b["uopc"] / b[peer] for n, b in found.items() if peer in b}
        if least:
            values = {n: 1 / v for n, v in values.items()}
        if not values:
            continue
        mean = geometric_mean(list(values.values()))
        missed = [n for n, v in values.items() if (v < bound if least else v > bound)]
        worst = (min if least else max)(values.values())
        sign = "at least" if least else "at most"
        yield (
            f"| {what} {sign} {bound:g} | {len(values)} | {mean:.2f}"
            f" | {worst:.2f} | {', '.join(missed) or 'none'} |"
        )
    slow = [n for n, b in found.items() if b["compile"] > MOST_COMPILE]
    times = [b["compile"] for b in found.values()]
    if times:  # none without uopc among the peers
        yield (
            f"| seconds to compile at most {MOST_COMPILE} | {len(times)}"
            f" | {statistics.fmean(times):.3f} | {max(times):.3f} | {', '.join(slow) or 'none'} |"
        )


def _answer(results: dict[str, Any]) -> Iterator[str]:
    """The first sentence of the page."""
    found = [b for b in fastest(results).values() if {"uopc", "envelope"} <= b.keys()]
    if found:
        mean = geometric_mean([b["uopc"] / b["envelope"] for b in found])
        beaten = sum(b["uopc"] < b["envelope"] for b in found)
        yield f"uopc takes {mean:.2f} of the best time of eight other libraries (geometric mean of"
        yield f"{len(found)} workloads, each with its fastest thread setting),"
        yield f"and is first in {beaten}."
        yield ""


def _lines(results: dict[str, Any]) -> Iterator[str]:
    yield "# Kernels"
    yield ""
    yield from _answer(results)
    yield "Made by `uopc bench kernels --out docs/lab/kernels`. Times are the least of the rounds'"
    yield "medians. *Best peer* was measured in the same run, in turns. The *envelope* is the"
    yield "best of eight peers on the machine described below, recorded once and not in this run:"
    yield "ratios to it, and to the limit, are meaningful only on that kind of machine."
    yield "*tinygrad*: how many times as fast uopc is; also recorded, unless it was in this run."
    yield ""
    yield f"Recorded on: {MACHINE['about']}."
    cpus, load = os.cpu_count() or 1, results["load"]
    yield f"This run: Python {platform.python_version()}, NumPy {results['numpy']}, {cpus} CPUs,"
    yield f"load {load:.1f} before it, {results['seconds']:.0f} s."
    if load > cpus / 2:
        yield "**The machine was busy; rerun before relying on these numbers.**"
    yield ""
    yield from _summary(results)
    for threads, rows in results["runs"].items():
        yield ""
        yield f"## {threads} thread{'s' * (threads != '1')}"
        yield ""
        yield from _table(rows, int(threads))


def markdown(results: dict[str, Any]) -> str:
    return "\n".join(_lines(results)).rstrip("\n") + "\n"


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars of time / best peer and time / envelope; nothing where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{path}: not made, matplotlib is not installed")
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = results["runs"]
    figure, axes = pyplot.subplots(1, len(runs), figsize=(6 * len(runs), 11), squeeze=False)
    for axis, (threads, rows) in zip(axes[0], runs.items()):
        found = ratios(rows, int(threads))
        names = list(found)[::-1]
        for shift, key in ((-0.2, "peer"), (0.2, "envelope")):
            values = [found[n].get(key, math.nan) for n in names]
            axis.barh([i - shift for i in range(len(names))], values, 0.38, label=key)
        axis.set_yticks(range(len(names)), names)
        axis.set_xscale("log")
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_title(f"uopc's time / theirs, {threads} threads (left of 1: uopc is faster)")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
