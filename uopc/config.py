"""All options in one frozen value. Only this module reads the environment for them."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import dataclasses
import functools
import os
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from uopc.errors import UserError
from uopc.ir import forks
from uopc.ir.records import dataclass

MOST_THREADS = 4096
AUTO = "auto"  # a folder of this user: see `cache_folder`
REPORTS = "uopc-reports"  # in the current folder, for `viz` without a folder of its own


@dataclass(frozen=True)
class Options:
    """Every switch and its default. `docs/options.md` describes each one.

    The environment variable of an option is UOPC_ and its name (but NO_COLOR).

    Examples:
        >>> with uopc.options(debug=0) as chosen:
        ...     chosen.debug, chosen.noopt
        (0, False)
    """

    debug: int = 0  # 1 to 7: what a compile and its program print on stderr, each level more
    spec: int = 0  # 1: verify every stage; 2: also every node as it is made, and every access
    viz: str = ""  # 1, or the folder where each compile writes its report; empty or 0: none
    noopt: bool = False
    device: str = "cpu"
    beam: int = 0
    measure: bool = False  # this machine, once, if nothing is known of it
    match_stats: bool = False
    threads: int = 0  # 0: one per CPU that this process may use
    cache_dir: str = AUTO  # the folder of compiled programs; empty or 0: none
    cache_mib: int = 2048  # size limit of that folder
    programs: int = 256  # most programs in memory; 0: none is read or kept
    target_cpu: str = ""  # empty: this machine
    tf32: bool = False  # tensor cores may round float32 operands of products to 10 bits
    dot_products: bool = True  # products of bytes use the dot products of the processor
    fast_zeros: bool = False  # 0 * x is 0 and x + 0 is x for all floats of a graph that is compiled
    trim_stores: bool = True  # elements of stored sums that no reader uses are not computed
    split_reduces: bool = True  # cut a large reduce to few elements in two
    split_ratio: int = 32768  # elements per result from which on a reduce is cut in two
    split_size: int = 1 << 22  # most elements that the first half of such a reduce stores
    max_kernel_buffers: int = 0  # most buffers of a kernel; 0: as many as the device takes
    progress: bool = True  # a bar for a compile of over 2 s, on a terminal or in a notebook
    no_color: bool = False
    plain_call: bool = False  # call through ctypes instead of the native entry
    perf_map: bool = False  # list compiled functions for Linux's `perf`
    origins: bool = True  # note the user's source lines on nodes

    @property
    def for_code(self) -> dict[str, Any]:
        """The options that a kernel's code depends on, besides the device and the threads.

        Examples:
            >>> with uopc.options(tf32=True) as chosen:
            ...     chosen.for_code["tf32"]
            True
        """
        return {name: getattr(self, name) for name in CHANGE_CODE}

    def __post_init__(self) -> None:
        for (name, kind), value in zip(_KINDS.items(), vars(self).values()):
            if kind is int:
                good = type(value) is int and 0 <= value <= _MOST.get(name, 1 << 30)
            elif name in ("cache_dir", "viz"):
                good = value in (AUTO, "") or _is_path(value)
            else:
                good = isinstance(value, kind)
            if not good:
                wanted = _wanted(name, kind)
                raise UserError(f"option {name} ({variable(name)}) must be {wanted}, got {value!r}")
        object.__setattr__(self, "device", self.device.lower())  # CPU is cpu


CHANGE_CODE = (
    "tf32", "dot_products", "trim_stores", "split_reduces", "split_ratio", "split_size",
    "max_kernel_buffers",
)  # fmt: skip
_KINDS: dict[str, type] = {f.name: type(f.default) for f in dataclasses.fields(Options)}
_MOST = {"debug": 7, "spec": 2, "threads": MOST_THREADS}
_ON_OFF = dict.fromkeys(("1", "true", "yes", "on"), True)
_ON_OFF |= dict.fromkeys(("0", "false", "no", "off"), False)


def _is_path(path: Any) -> bool:
    """True for a path that this system allows for a file."""
    try:
        return isinstance(os.fspath(path), str) and b"\0" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        return False


def _wanted(name: str, kind: type) -> str:
    if name in ("cache_dir", "viz"):
        return "a path that this system can write"
    if kind is int:
        return f"an integer from 0 to {_MOST.get(name, 1 << 30)}"
    return "True or False (1 or 0)" if kind is bool else "a string"


def variable(name: str) -> str:
    """The environment variable of an option."""
    return "NO_COLOR" if name == "no_color" else f"UOPC_{name.upper()}"


def from_environment(environment: Mapping[str, str] | None = None) -> Options:
    """The options set by environment variables. UserError names a variable with a bad value."""
    given = os.environ if environment is None else environment
    return _parsed(tuple([given.get(v) for v in _VARIABLES]), given.get("OMP_NUM_THREADS") or "")


_VARIABLES = tuple(map(variable, _KINDS))


@functools.lru_cache(16)
def _parsed(texts: tuple[str | None, ...], openmp_threads: str) -> Options:
    """The options for the values of all variables. If no variable of uopc sets the threads,
    OpenMP's variable does."""
    fields: dict[str, Any] = {}
    if openmp_threads and not texts[list(_KINDS).index("threads")]:
        fields["threads"] = _openmp_threads(openmp_threads)
    for (name, kind), text in zip(_KINDS.items(), texts):
        if text or (name == "cache_dir" and text is not None):  # set and empty turns it off
            fields[name] = text
        if text and kind is bool:  # NO_COLOR may have any value, as in other tools
            fields[name] = _ON_OFF.get(text.lower(), name == "no_color" or text)
        if text and kind is int and _NUMBER.fullmatch(text):  # else Options refuses it
            fields[name] = int(text)
    return Options(**fields)


_NUMBER = re.compile(r"\s*\+?[0-9]{1,18}\s*")  # int() takes 1_0 and other digits, too


def _openmp_threads(text: str) -> int:
    """The number of threads for the outermost level of nesting. As in OpenMP, a text without a
    valid number is ignored with a warning."""
    outermost = text.split(",")[0]
    if _NUMBER.fullmatch(outermost) and 0 < int(outermost) <= MOST_THREADS:
        return int(outermost)
    warnings.warn(
        f"OMP_NUM_THREADS={text!r} is ignored: expected a number from 1 to {MOST_THREADS}",
        RuntimeWarning, stacklevel=2,
    )  # fmt: skip
    return 0


def texts(options: Options) -> dict[str, str]:
    """The options that change code and differ from their defaults, as values of their variables."""
    default = Options().for_code
    changed = {n: v for n, v in options.for_code.items() if v != default[n]}
    return {n: str(int(v)) for n, v in changed.items()}


def with_texts(options: Options, noted: Mapping[str, str]) -> Options:
    """Set the options that are at their defaults to the values in `noted` (see `texts`)."""
    own = texts(options)
    wanted = {variable(n): noted[n] for n in CHANGE_CODE if n in noted and n not in own}
    read = from_environment(wanted).for_code
    return dataclasses.replace(options, **{n: v for n, v in read.items() if n not in own})


def cache_folder(options: Options) -> Path | None:
    """The folder of compiled programs; None if the disk cache is off (empty or 0).

    If the environment names no home, the default is a relative path, which no cache can use.
    """
    if options.cache_dir in ("", "0"):
        return None
    if options.cache_dir != AUTO:
        return _expanded("cache_dir", options.cache_dir).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    return Path(caches) / "uopc"


def page_folder(options: Options) -> Path | None:
    """The folder for the report of each compile; None if the option is off (empty or 0)."""
    if options.viz in ("", "0"):
        return None
    return Path(REPORTS) if options.viz in ("1", AUTO) else _expanded("viz", options.viz)


def _expanded(name: str, path: str) -> Path:
    """Expand `~` to a user's folder. UserError if there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        shown = f"option {name} ({variable(name)})"
        raise UserError(f"{shown}: no home folder is known for {path!r}") from None


def is_interactive() -> bool:
    """True if a person watches stderr: a terminal or a notebook."""
    stderr: Any = sys.stderr  # None in a program without a console
    with contextlib.suppress(ValueError, AttributeError):  # it is closed, or is no file
        if stderr.isatty():
            return True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")  # only the shell of a notebook has a kernel


_current: contextvars.ContextVar[Options | None] = contextvars.ContextVar("uopc", default=None)


def current() -> Options:
    """The options of the innermost `options(…)` block; without a block, of the environment."""
    return _current.get() or from_environment()


# The options of the innermost `options(…)` block, None outside of one: cheaper to ask than those.
chosen = _current.get


@contextlib.contextmanager
def options(**fields: Any) -> Iterator[Options]:
    """Options for a block: `with uopc.options(debug=2): …`. `docs/options.md` lists them.

    UserError for an unknown name or a value of another kind.

    Examples:
        >>> with uopc.options(threads=1) as chosen:
        ...     chosen.threads
        1
    """
    unknown = fields.keys() - _KINDS.keys()
    if unknown:
        known = ", ".join(sorted(_KINDS))
        raise UserError(f"unknown option {sorted(unknown)[0]!r}; choose {known}")
    made = dataclasses.replace(current(), **fields)
    token = _current.set(made)
    _count_blocks(made, 1)
    try:
        yield made
    finally:
        _current.reset(token)
        _count_blocks(made, -1)


def at_import() -> None:
    """Turn on the switches that the environment sets. Called at the import of uopc."""
    with contextlib.suppress(UserError):  # the first compile reports it
        asked = from_environment()
        _count_blocks(asked, 1)
        if asked.match_stats:
            atexit.register(_count_blocks, Options(match_stats=True), -1)


Switch = Callable[[bool], None]
_lock = threading.Lock()
forks.wait_for(_lock)
_users: Counter[Switch] = Counter()  # for each switch, the number of blocks that request it


def _count_blocks(made: Options, more: int) -> None:
    """Enter (1) or leave (-1) a block: a switch is on while the options of any block request it."""
    switches = (
        (made.spec >= 2, _check_nodes), (made.match_stats, _count_matches),
        (not made.origins, _skip_origins),
    )  # fmt: skip
    with _lock:
        for switch in [switch for on, switch in switches if on]:
            _users[switch] += more
            switch(_users[switch] > 0)


def _check_nodes(on: bool) -> None:
    """Verify every node as it is made."""
    from uopc.ir.core import uop
    from uopc.ir.verify import verifier

    uop.check_construction(verifier.verify_node if on else None)


def _count_matches(on: bool) -> None:
    """Count attempts and matches of the rules; print the counts on stderr at the end."""
    from uopc.ir.rewrite import statistics

    statistics.collect(on)
    if not on:
        print(statistics.report(), file=sys.stderr)
        statistics.clear()


def _skip_origins(on: bool) -> None:
    """Leave the user's source lines off new nodes."""
    from uopc.ir.builder import leaves

    leaves.record_origins(not on)
