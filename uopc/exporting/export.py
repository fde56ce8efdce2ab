"""`export`: a graph as files that programs in any language use without Python or uopc."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uopc.backends import detect
from uopc.backends.cpu import elf_loader
from uopc.dump.files import write_bytes
from uopc.errors import UserError, UserTypeError
from uopc.exporting import machines, manifest, names, self_test
from uopc.exporting.archive import archive
from uopc.exporting.exported import Exported, lowered_for, request_for
from uopc.exporting.header import header
from uopc.exporting.load import ExportedFunction
from uopc.exporting.object_code import object_file
from uopc.exporting.shared_library import shared
from uopc.ir.builder import checks
from uopc.ir.core.arena import arena
from uopc.ir.core.uop import UOp
from uopc.target import CPUS

# By kind: the ending of the file, and what makes its content of a function and the file's stem.
KINDS: dict[str, tuple[str, Callable[[Exported, str], bytes]]] = {
    "object": (".o", lambda f, stem: object_file(f)),
    "static": (".a", lambda f, stem: archive({f"{stem}.o": object_file(f)})),
    "shared": (".so", lambda f, stem: shared(object_file(f), f"{stem}.so")),
}


@dataclass(frozen=True)
class Export:
    """What an export wrote: `files`, the code last; `manifest` is the content of the `.json` file.

    Examples:
        >>> import tempfile
        >>> made = uopc.export(uopc.param("x", (3,)) * 2, f"{tempfile.mkdtemp()}/twice")
        >>> [file.name for file in made.files]
        ['twice.h', 'twice.json', 'twice.o']
        >>> made.manifest["work"]["bytes"]
        0
    """

    files: tuple[Path, ...]
    manifest: Mapping[str, Any]


def export(
    graph: Any, path: str | os.PathLike[str], *, kind: str = "object", target: str = "host",
    inputs: Sequence[UOp | str] | None = None, name: str | None = None, vectors: bool = True,
    optimize: bool = True, examples: Any = None,
) -> Export:  # fmt: skip
    """Write a graph as code that needs neither uopc nor Python: no other library either.

    graph: as for `compile`, or a Program. path: of the files, without an ending; missing folders
    are made. kind: `object` (.o), `static` (.a) or `shared` (.so); a header and a manifest (.json)
    stand beside it. target: `host`, or a level of x86-64 such as `x86-64-v3`. inputs, optimize: as
    for `compile`. name: of the function; by default that of the file. vectors: False computes one
    element at a time. examples: arguments of one call, as a list or a dict; a self-test in C,
    NAME_test.c, has the bits that must come out.

    The function takes the arrays, those of results last, then the sizes, then memory for
    intermediate values. Any shapes and dtypes are taken. Results have the bits of a program with
    threads=1 for the same target. The same graph gives the same bytes, on any machine if the target
    is named.

    UserError for a bad argument, or a file that cannot be written; Unsupported for code that would
    need a library.

    Examples:
        >>> import tempfile
        >>> x = uopc.param("x", (2, uopc.variable("n", 1, 100)), dtypes.float64)
        >>> made = uopc.export({"norm": (x * x).sum(axis=0).sqrt()}, f"{tempfile.mkdtemp()}/norm")
        >>> print(*[line for line in made.files[0].read_text().splitlines() if "norm(" in line])
        int norm(const double *x, double *norm, int64_t n, void *work);
    """
    made_in, stem = _place(path)
    function = names.checked_function(stem if name is None else name)
    if kind not in KINDS:
        raise UserError(f"export: unknown kind {kind!r}; choose {', '.join(KINDS)}")
    machine = machines.machine(target)
    if not checks.flag("export", "vectors", vectors):
        machine = machine.without_vectors()
    optimize = checks.flag("export", "optimize", optimize)
    with arena():
        f = lowered_for(request_for(graph, inputs, optimize, function), machine, function)
        ending, make = KINDS[kind]
        content = {f"{stem}.h": header(f).encode(), f"{stem}{ending}": make(f, stem)}
        if examples is not None:
            content[f"{stem}_test.c"] = _test(f, examples).encode()
    text = manifest.manifest(f, kind, content)
    content[f"{stem}.json"] = text.encode()
    content[f"{stem}{ending}"] = content.pop(f"{stem}{ending}")
    return Export(_written(made_in, content), manifest.parsed(text))


def _place(path: Any) -> tuple[Path, str]:
    """The folder and the stem of the files."""
    try:
        whole = Path(path)
    except TypeError:
        raise UserTypeError(f"export: path must be a path, got {path!r}") from None
    if not whole.name:
        raise UserError(f"export: path must end with the name of the files, got {str(path)!r}")
    return whole.parent, whole.name


def _written(folder: Path, content: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files by name. UserError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in content.items():
            new = folder / f".{name}.{os.getpid()}"  # a library may be in use: it is not changed
            write_bytes(new, data)
            os.replace(new, folder / name)
    except OSError as error:
        raise UserError(f"export: {folder}: {error.strerror or error}") from None
    return tuple([folder / name for name in content])


def _test(f: Exported, examples: Any) -> str:
    """The self-test: the code itself, loaded here, gives the bits."""
    if f.machine.target.cpu in CPUS:
        detect.check_runs(f.machine.target.cpu)
    named = examples if isinstance(examples, Mapping) else {}
    if not isinstance(examples, (Mapping, list, tuple)):
        raise UserTypeError(f"export: examples must be a list or a dict, got {examples!r}")
    arrays = [] if named else list(examples)
    function = in_process(f)
    return self_test.self_test(f, *function.traced(arrays, named))


def in_process(f: Exported) -> ExportedFunction:
    """The function, loaded into this process from its object file."""
    import ctypes

    image = elf_loader.load(object_file(f), (f.name,))
    return ExportedFunction(
        manifest.contract(f), ctypes.CFUNCTYPE(ctypes.c_int)(image.symbols[f.name]), image
    )
