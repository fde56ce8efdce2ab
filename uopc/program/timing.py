"""The time of a kernel: the seconds of its runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """The seconds of each sample: one run, as the mean over a row of them if a run is short."""

    runs: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least of the samples, in seconds."""
        return min(self.runs)

    @property
    def median(self) -> float:
        """The median of the samples, in seconds."""
        return statistics.median(self.runs)

    def __repr__(self) -> str:
        best, median = f"{self.best * 1e6:.3f}", f"{self.median * 1e6:.3f}"
        return f"<Timing of {len(self.runs)} samples: best {best} us, median {median} us>"
