"""Options of sessions and of runs, and what a process has.

Programs are made of whole graphs, run in the order of their launches, and plan their memory, so
most options change nothing. `intra_op_num_threads` and overrides of free sizes do.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any

from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.records import dataclass

CPU = "CPUExecutionProvider"


class GraphOptimizationLevel(IntEnum):
    """Accepted; each level makes the same program."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted; each mode runs the same launches."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True)
class SessionOptions:
    """The options of a session. `intra_op_num_threads`: of a program; 0: those of uopc's options.
    `sizes`: free sizes that are numbers, by their names. The others change nothing."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    sizes: dict[str, int] = field(default_factory=dict, init=False)
    _entries: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep a setting, which changes nothing."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return a setting. UserError if it is missing."""
        return _entry(self._entries, key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a free size of the model a number."""
        self.sizes[name] = operator.index(size)

    def register_custom_ops_library(self, path: str) -> None:
        """Raise Unsupported: a function of the model can stand for an operator."""
        raise Unsupported(f"custom operators of a library are not supported: {path}")


@dataclass(slots=True)
class RunOptions:
    """The options of a run, which change nothing."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    training_mode: bool = False
    _entries: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep a setting, which changes nothing."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Return a setting. UserError if it is missing."""
        return _entry(self._entries, key)


def _entry(entries: Mapping[str, str], key: str) -> str:
    if key not in entries:
        raise UserError(f"no setting {key!r}")
    return entries[key]


def checked(options: Any) -> SessionOptions:
    """Return options, or the defaults for None. UserTypeError for any other object."""
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise UserTypeError(
            f"sess_options must be uopc.onnx.SessionOptions, got {type(options).__name__}"
        )
    return options


# ---------------------------------------------------------------- providers
def get_available_providers() -> list[str]:
    """The names of the devices that sessions run on.

    Examples:
        >>> uopc.onnx.get_available_providers()
        ['CPUExecutionProvider']
    """
    return [CPU]


get_all_providers = get_available_providers


def get_device() -> str:
    """The kind of device that sessions run on."""
    return "CPU"


def provider_options(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> dict[str, dict[str, str]]:
    """The providers that a session uses, with their options as text. A provider that is not
    available is left out, with a warning."""
    given = [CPU] if not providers else list(providers)
    if options is not None and len(options) != len(given):
        raise UserError("provider_options must have as many elements as providers")
    made: dict[str, dict[str, str]] = {}
    for k, p in enumerate(given):
        name, own = p if isinstance(p, tuple) else (p, options[k] if options else {})
        if name in get_available_providers():
            made[name] = {str(a): str(b) for a, b in own.items()}
        else:
            warnings.warn(
                f"provider {name!r} is not available; there is {CPU}", UserWarning, stacklevel=4
            )
    return made or {CPU: {}}


# ---------------------------------------------------------------- the process
def set_default_logger_severity(severity: int) -> None:
    """Change nothing: sessions log nothing."""


set_default_logger_verbosity = set_default_logger_severity


def disable_telemetry_events() -> None:
    """Change nothing: there is no telemetry."""


enable_telemetry_events = disable_telemetry_events
