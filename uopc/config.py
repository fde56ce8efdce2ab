"""Every switch in one frozen value; the environment is read here and nowhere else."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import dataclasses
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uopc.errors import UserError

MOST_THREADS = 4096
AUTO = "auto"  # a folder of this user: see `cache_folder`


@dataclass(frozen=True)
class Options:
    """`uopc.options(debug=2, …)` sets fields for a block; the environment gives the defaults."""

    debug: int = 0  # 1 to 7: see docs, each level prints what the lower ones do
    spec: int = 0  # 1: verify every stage; 2: also every node as it is made, and every access
    viz: int = 0
    noopt: bool = False
    device: str = "cpu"
    beam: int = 0
    match_stats: bool = False
    threads: int = 0  # 0: one for each CPU this process may use
    cache_dir: str = AUTO  # where compiled programs are kept on disk; empty: nowhere
    cache_mib: int = 512  # how much they may take there
    programs: int = 256  # how many are kept in memory
    target_cpu: str = ""
    tf32: bool = False  # tensor cores may round float32 operands of products to 10 bits
    no_color: bool = False
    plain_call: bool = False  # call through ctypes instead of the native entry
    origins: bool = True  # note the user's source lines on nodes

    def __post_init__(self) -> None:
        limits = (
            ("debug", 0, 7), ("spec", 0, 2), ("threads", 0, MOST_THREADS),
            ("cache_mib", 0, 1 << 30), ("programs", 0, 1 << 30),
        )  # fmt: skip
        for name, low, high in limits:
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise UserError(f"option {name} must be {low} to {high}, got {value!r}")


_VARIABLES = {
    "UOPC_DEBUG": "debug", "UOPC_SPEC": "spec", "UOPC_VIZ": "viz", "UOPC_NOOPT": "noopt",
    "UOPC_DEVICE": "device", "UOPC_BEAM": "beam", "UOPC_MATCH_STATS": "match_stats",
    "UOPC_THREADS": "threads", "UOPC_CACHE_DIR": "cache_dir", "UOPC_TARGET_CPU": "target_cpu",
    "UOPC_PLAIN_CALL": "plain_call", "UOPC_TF32": "tf32", "NO_COLOR": "no_color",
}  # fmt: skip


def from_environment(environment: dict[str, str] | None = None) -> Options:
    """The options that environment variables ask for; UserError names a bad one."""
    given = dict(os.environ) if environment is None else environment
    fields: dict[str, Any] = {}
    kinds: dict[str, Any] = {f.name: type(f.default) for f in dataclasses.fields(Options)}
    if given.get("UOPC_CACHE_DIR") == "":  # set, and empty: not as unset
        fields["cache_dir"] = ""
    for variable, name in _VARIABLES.items():
        text = given.get(variable, "")
        if not text:
            continue
        try:
            kind = kinds[name]
            fields[name] = text != "0" if kind is bool else kind(text)
        except ValueError:
            raise UserError(f"{variable} must be a number, got {text!r}") from None
    return Options(**fields)


def cache_folder(options: Options) -> Path | None:
    """Where compiled programs are kept on disk; None where they are not (empty, or 0)."""
    if options.cache_dir in ("", "0"):
        return None
    if options.cache_dir != AUTO:
        return Path(options.cache_dir).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    return Path(home).absolute() / "uopc" if os.path.isabs(home) else None


_current: contextvars.ContextVar[Options | None] = contextvars.ContextVar("uopc", default=None)


def current() -> Options:
    """The options in force: those of the innermost `options(…)` block, else the environment's."""
    return _current.get() or from_environment()


@contextlib.contextmanager
def options(**fields: Any) -> Iterator[Options]:
    """Options for a block: `with uopc.options(debug=2): …`. UserError for an unknown name."""
    known = {f.name for f in dataclasses.fields(Options)}
    unknown = fields.keys() - known
    if unknown:
        raise UserError(f"no option {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    made = dataclasses.replace(current(), **fields)
    token = _current.set(made)
    checked, counted = made.spec >= 2, made.match_stats
    if checked:
        _check_nodes(1)
    if counted:
        _count_matches(1)
    try:
        yield made
    finally:
        _current.reset(token)
        if checked:
            _check_nodes(-1)
        if counted:
            _count_matches(-1)


_lock = threading.Lock()
_checkers = 0  # blocks that want every node verified as it is made


def _check_nodes(more: int) -> None:
    """Nodes are verified while anyone wants it, and then in the whole process."""
    global _checkers
    from uopc.ir.core import node
    from uopc.ir.verify import verifier as verify

    with _lock:
        _checkers += more
        node.check_construction(verify.verify_node if _checkers else None)


_counters = 0  # blocks that want the rules' attempts and matches counted


def _count_matches(more: int) -> None:
    """Rules are counted while anyone wants it; the last one prints what was counted, on stderr."""
    global _counters
    from uopc.ir.rewrite import statistics as match_statistics

    with _lock:
        _counters += more
        match_statistics.collect(_counters > 0)
        if _counters == 0:
            print(match_statistics.report(), file=sys.stderr)
            match_statistics.clear()


def at_import() -> None:
    """What the environment asks for before the first call: called once, when uopc is imported."""
    if os.environ.get("UOPC_SPEC") == "2":
        _check_nodes(1)
    if os.environ.get("UOPC_MATCH_STATS", "0") not in ("", "0"):
        _count_matches(1)
        atexit.register(_count_matches, -1)
