"""Conformance cases on a device that is not there: PTX rendered, assembled, executed, compared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

from tests.conformance import runner
from tests.conformance.corpus import Place
from tests.conformance.runner import Outcome
from tests.ptx import machine
from tests.standin import module
from uopc.backends.nvptx import ptxas

# Operations of single threads that one launch may take: more is noted as too large to execute.
MOST_WORK = 2 << 30
# Parts that run a part's PTX: it is assembled for them as well.
_ALSO = {"sm_80": ("sm_90a",)}

_assembled: dict[tuple[str, str], list[dict[str, int]]] = {}


def run(place: Place, out: Outcome, device: str, checking: Callable[[Outcome], None]) -> None:
    """Run a graph case as on the part that `device` (cuda:sm_80) names; figures go to out.notes."""
    part = device.partition(":")[2]
    machine.MOST_WORK = MOST_WORK
    with module.installed(part) as driver:
        try:
            runner.run(place, out, "cuda", checking)
        finally:
            out.notes["approximate"] = sorted(driver.approximate)
            out.notes["kernels"] = sorted({_key(t) for t in driver.texts})
    out.notes["figures"] = [
        row for arch in (part, *_ALSO.get(part, ())) for row in _figures(driver.texts, arch)
    ]


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _figures(texts: Sequence[str], arch: str) -> list[dict[str, int]]:
    """The figures of ptxas for kernels, those not seen before by one run for all of a program."""
    new = {k: t for t in texts if (k := (_key(t), arch)) not in _assembled}
    if new and ptxas.find_ptxas() is not None:
        whole = join(list(new.values()))
        used = ptxas.assemble(whole, arch).kernels
        for k in new:
            _assembled[k] = []
        return [
            {"name": name, "arch": arch, "registers": u.registers,
             "spills": u.spill_stores + u.spill_loads, "shared": u.shared}
            for name, u in used.items()
        ]  # fmt: skip
    return []


_HEAD = re.compile(r"\.version [^\n]*\n\.target [^\n]*\n\.address_size [^\n]*\n")


def join(texts: Sequence[str]) -> str:
    """Modules of one target as one; their names differ."""
    return texts[0] + "".join(_HEAD.sub("", t, count=1) for t in texts[1:])
