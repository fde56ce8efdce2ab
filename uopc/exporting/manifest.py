"""The promises of an exported function, as data: the manifest beside its files.

The contract is everything that a caller relies on. The code holds its digest as `NAME_id`, so a
changed manifest, or that of other code, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from uopc.backends.memory_plan import ALIGNMENT
from uopc.backends.plan import Dim
from uopc.exporting import places
from uopc.exporting.exported import Exported
from uopc.exporting.sizes import promised_work

FORMATS = (1, 2)  # of the manifest; 2 has lengths
ABI = 1  # of the calling convention
WORK_ALIGNMENT = 8  # the least; vectors are fastest at ALIGNMENT
_WIDTH = 88
_LIST = re.compile(r"\[\n[\d\s,.eE+-]+\]")  # of numbers; a text has no line breaks
_NOT_PROMISED = ("kind", "files", "kernels", "uopc", "id")


def contract(f: Exported) -> dict[str, Any]:
    """The contract of a function, as JSON values."""
    machine = f.machine
    found = {
        "format": max(FORMATS) if f.lengths else min(FORMATS),
        "abi": ABI,
        "name": f.name,
        "graph": f.graph,
        "target": {
            "name": machine.name, "triple": "" if machine.is_source else machine.triple,
            "cpu": machine.target.cpu,
            "features": machine.target.features, "vector_bits": machine.target.vector_bits,
            "math": "libm" if machine.target.has_functions else "own",
            "levels": [v.machine.name for v in f.levels],
        },
        "work": {
            "bytes": _dim(promised_work(f)), "alignment": WORK_ALIGNMENT, "fastest": ALIGNMENT,
        },
        "threads": f.threads,
        "arrays": [
            {
                "name": a.given, "c_name": a.name, "dtype": a.dtype.name,
                "shape": [_dim(d) for d in a.shape], "input": a.is_input, "written": a.written,
            }
            for a in f.arrays
        ],
        "results": list(f.results),
        "structure": f.plan.structure,
        "keys": [str(key) for key in f.plan.keys],
        "sparse": [places.described(m) for m in f.matrices],
        "dimensions": [
            {"name": s.given, "c_name": s.name, "low": s.low, "high": s.high} for s in f.sizes
        ],
        "conditions": [f"{c.sides[0]} {c.relation} {c.sides[1]}" for c in f.plan.conditions],
    }  # fmt: skip
    views, lengths = _views(f), _lengths(f)
    found |= {"views": views} if views else {}
    return {**found, "lengths": lengths} if lengths else found


def _lengths(f: Exported) -> list[dict[str, Any]]:
    """The sizes that the function computes and returns through pointers, behind the arrays."""
    return [
        {"name": x.given, "c_name": x.name, "low": x.low, "high": x.high} for x in f.lengths
    ]  # fmt: skip


def _views(f: Exported) -> dict[str, Any]:
    """The shapes of results, by number, that are an argument with another shape."""
    return {
        str(i): [_dim(d) for d in r.shape] for i, r in enumerate(f.plan.results)
        if r.source is not None and r.shape != f.arrays[r.source].shape
    }  # fmt: skip


def _dim(d: Dim) -> Any:
    """A size: a number, or its text and its instructions."""
    if isinstance(d, int):
        return d
    return {"text": str(d), "code": [[op, known, list(src)] for op, known, src in d.instructions]}


def digest(promised: Mapping[str, Any]) -> str:
    """The digest of a contract, also if it is part of a manifest."""
    kept = {k: v for k, v in promised.items() if k not in _NOT_PROMISED}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def contract_id(f: Exported) -> str:
    """The contract's digest, which the code carries."""
    return digest(contract(f))


def manifest(f: Exported, kind: str, files: Mapping[str, bytes]) -> str:
    """The text of the manifest, without paths and times."""
    promised = contract(f)
    whole = {
        **promised,
        "id": digest(promised),
        "kind": kind,
        "uopc": sys.modules["uopc"].__version__,
        "kernels": {k.name: list(k.lines) for v in f.versions for k in v.kernels.values()},
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return _LIST.sub(_in_rows, json.dumps(whole, indent=1)) + "\n"


def _in_rows(found: re.Match[str]) -> str:
    """Fill lines with the numbers of a list, which `json` writes one per line."""
    return textwrap.fill(" ".join(found[0].split()), _WIDTH).replace("[ ", "[").replace(" ]", "]")


def parsed(text: str) -> dict[str, Any]:
    """The content of a manifest. ValueError for a text that is no JSON object."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
