"""`export`: a graph as files that programs in any language use without Python or uopc."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from uopc.backends import detect
from uopc.backends.cpu import elf_loader
from uopc.dump.files import write_bytes
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.exporting import (
    column_major,
    data_files,
    levels,
    machines,
    manifest,
    names,
    places,
    self_test,
    wasm,
)
from uopc.exporting.exported import Exported, lowered_for, request_for
from uopc.exporting.header import header
from uopc.exporting.load import ExportedFunction
from uopc.exporting.object_code import archive, object_file
from uopc.exporting.shared_library import shared
from uopc.exporting.source import source
from uopc.ir.builder import checks
from uopc.ir.core import dtypes
from uopc.ir.core.arena import arena
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.program.request import Request
from uopc.sparse.sparsity import Sparse, Sparsity
from uopc.target import CPUS

# By kind: the file's ending, and the function that makes its content (from f and the file's stem).
KINDS: dict[str, tuple[str, Callable[[Exported, str], bytes]]] = {
    "c": (".c", lambda f, stem: source(f, stem).encode()),
    "object": (".o", lambda f, stem: object_file(f)),
    "static": (".a", lambda f, stem: archive({f"{stem}.o": object_file(f)})),
    "shared": (".so", lambda f, stem: shared(object_file(f), f"{stem}.so")),
}
_MODULE = ".wasm", lambda f, stem: wasm.module(object_file(f))  # WebAssembly's shared library
ABIS = ("uopc", "casadi")
MATH = ("own", "libm")


@dataclass(frozen=True)
class Export:
    """The result of an export: `files`, the code last; `manifest` is the content of the `.json`
    file.

    Examples:
        >>> import tempfile
        >>> made = uopc.export(uopc.param("x", (3,)) * 2, f"{tempfile.mkdtemp()}/twice")
        >>> [file.name for file in made.files]
        ['twice.h', 'twice.json', 'twice.o']
        >>> made.manifest["work"]["bytes"]
        0
    """

    files: tuple[Path, ...]
    manifest: Mapping[str, Any] = field(repr=False)


def export(
    graph: Any, path: str | os.PathLike[str], *, kind: str = "object",
    target: str | Sequence[str] | None = None, inputs: Sequence[UOp | str | Sparse] | None = None,
    name: str | None = None, vectors: bool | None = None, optimize: bool = True,
    examples: Any = None, abi: str = "uopc", math: str = "own", threads: int = 1,
    weights: str = "auto", stack_bytes: int | None = None, index_bits: int | None = None,
) -> Export:  # fmt: skip
    """Write a graph as code that needs no uopc, no Python and no other library.

    graph: as for `compile` (nested results are named by path), a Program, or a model of
    `onnx.load`. path: of the files, without an ending; missing folders are made. kind: `object`
    (.o), `static` (.a), `shared` (.so; a module, .wasm, for `wasm32`) or `c` (C11), each with a
    header and a manifest (.json). target: `host`, a level of x86-64 such as `x86-64-v3`, `aarch64`,
    `aarch64-dotprod`, `-i8mm`, `riscv64`, `wasm32`, `cortex-m3`, `-m4f`, `-m7`, or `c11`, the
    default of C, for any machine; a list of levels: code for each level. inputs, optimize: as for
    `compile`. name: of the function; by default the file's name. vectors: False computes one
    element at a time, and C needs no vectors of gcc and clang; by default the machine decides, and
    `c11` has none. examples: arguments of one call, as a list or a dict, for a self-test in C,
    NAME_test.c. abi: `casadi` adds the functions that CasADi's `external` and acados call, by the
    name of the function; the function itself is then NAME_uopc, and takes matrices in column-major
    order. A sparse input is a Sparse in `inputs` whose data is a param. math: `libm`, in C, calls
    `sin`, `exp` and others of the C library, whose bits may differ. threads: above 1, large kernels
    have this many parts, and the function takes a callback that runs them. weights: the place of
    C's constant arrays, `inline` as text, `file` as NAME_data.S, for an assembler, with a .bin file
    each; `auto`: files for arrays of 64 KiB and more. stack_bytes: the most memory on the stack for
    the buffers of one kernel, others are part of `work`; by default 1 KiB on Cortex-M, else 32 KiB
    an array. index_bits: of loops and indices, if bounds allow 32; by default 32 on Cortex-M.

    The function takes the arrays (results last), then the sizes, then memory for intermediate
    values. Rows and columns of a Sparse are constant arrays. Results have the bits of a program
    with as many threads for the same target. The same graph gives the same bytes.

    UserError for a bad argument, or a file that cannot be written; Unsupported for code that would
    need a library, or an array or a loop that `index_bits` cannot count.

    Examples:
        >>> import tempfile
        >>> x = uopc.param("x", (2, uopc.variable("n", 1, 100)), dtypes.float64)
        >>> made = uopc.export({"norm": (x * x).sum(axis=0).sqrt()}, f"{tempfile.mkdtemp()}/norm")
        >>> print(*[line for line in made.files[0].read_text().splitlines() if "norm(" in line])
        int norm(const double *x, double *norm, int64_t n, void *work);
    """
    made_in, stem = _place(path)
    function = names.checked_function(stem if name is None else name)
    found = _machines(kind, target, vectors, examples)
    found = _with_options(found, _calls_library(math, kind, examples), stack_bytes, index_bits)
    params, structures = column_major.params_of(inputs)
    _check_abi(abi, examples, threads, structures)
    with arena():
        if abi == "casadi":
            f = _for_casadi(graph, params, structures, optimize, function, found)
        else:
            f = _lowered(graph, params, optimize, function, threads, found)
        f = data_files.separated(f, weights if kind == "c" else "inline")
        content = _content(f, stem, kind, examples)
    text = manifest.manifest(f, kind, content)
    content[f"{stem}.json"] = text.encode()
    code = f"{stem}{_form(f, kind)[0]}"
    content[code] = content.pop(code)
    return Export(_written(made_in, content), manifest.parsed(text))


def _with_options(
    found: list[machines.TargetMachine], library: bool, stack_bytes: int | None,
    index_bits: int | None,
) -> list[machines.TargetMachine]:
    """Add the library's functions and the user's limits to the machines."""
    if library:
        found = [machine.with_functions() for machine in found]
    if stack_bytes is not None:
        if type(stack_bytes) is not int or stack_bytes < 0:
            raise UserError(f"export: stack_bytes must be a number of bytes, got {stack_bytes!r}")
        found = [machine.with_stack(stack_bytes) for machine in found]
    if index_bits is not None:
        if type(index_bits) is not int or index_bits not in (32, 64):
            raise UserError(f"export: index_bits must be 32 or 64, got {index_bits!r}")
        found = [machine.with_indices(index_bits) for machine in found]
    return found


def _form(f: Exported, kind: str) -> tuple[str, Callable[[Exported, str], bytes]]:
    """The file ending and the writer of a kind, for the function's machine."""
    return _MODULE if f.machine.is_wasm and kind == "shared" else KINDS[kind]


def _content(f: Exported, stem: str, kind: str, examples: Any) -> dict[str, bytes]:
    """The files of an export by name, without the manifest."""
    ending, make = _form(f, kind)
    content = {f"{stem}.h": header(f).encode(), f"{stem}{ending}": make(f, stem)}
    content |= data_files.files(f, stem)
    if examples is not None:
        content[f"{stem}_test.c"] = _test(f, examples, stem).encode()
    return content


def _check_abi(abi: str, examples: Any, threads: int, sparse: Mapping[str, Sparsity]) -> None:
    """UserError for an unknown interface, or for options that CasADi's interface lacks."""
    if abi not in ABIS:
        raise UserError(f"export: unknown abi {abi!r}; choose {', '.join(ABIS)}")
    if abi == "casadi" and examples is not None:
        raise UserError("export: examples need abi='uopc': leave examples out")
    if abi == "casadi" and threads != 1:
        raise UserError("export: threads need abi='uopc': leave threads out")
    if abi != "casadi" and sparse:
        raise UserError("export: a sparse input needs abi='casadi': pass the param of its entries")


def _for_casadi(
    graph: Any, inputs: Sequence[UOp | str] | None, structures: Mapping[str, Sparsity],
    optimize: bool, name: str, found: Sequence[machines.TargetMachine],
) -> Exported:  # fmt: skip
    """The function with CasADi's interface. structures: of sparse inputs, by name."""
    if found[0].size_bits == 32:
        raise Unsupported(
            "export: a function for CasADi needs a target of 64 bits: choose kind='c'"
        )
    own = f"{column_major.checked_name(name)}_uopc"
    f = _lowered(graph, inputs, optimize, own, 1, found, column_major.transposed)
    return column_major.with_interface(f, name, structures)


def _lowered(
    graph: Any, inputs: Sequence[UOp | str] | None, optimize: bool, name: str, threads: int,
    found: Sequence[machines.TargetMachine], change: Callable[[Request], Request] = lambda r: r,
) -> Exported:  # fmt: skip
    """Lower the graph for a machine, or for each of several levels of x86-64."""
    optimize = checks.flag("export", "optimize", optimize)
    request = change(request_for(graph, inputs, optimize, name, threads, found[0].target))
    matrices = places.matrices(request, name)
    if len(found) == 1:
        return lowered_for(request, found[0], name, matrices)
    made = [
        replace(
            lowered_for(request, m, f"{name}_{levels.suffix(m.name)}", matrices), is_level=True
        )
        for m in found
    ]
    names = ", ".join([machine.name for machine in found])
    machine = replace(made[0].machine, name=names)
    return replace(made[0], name=name, machine=machine, levels=tuple(made), is_level=False)


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


def _machines(
    kind: str, target: Any, vectors: bool | None, examples: Any
) -> list[machines.TargetMachine]:
    """The machine for a kind of file, or several levels of x86-64, the lowest first."""
    if kind not in KINDS:
        raise UserError(f"export: unknown kind {kind!r}; choose {', '.join(KINDS)}")
    if target is None or isinstance(target, str):
        return [_machine(kind, target, vectors)]
    if not isinstance(target, (list, tuple)) or not target:
        raise UserTypeError(f"export: target must be a name or a list of names, got {target!r}")
    if unknown := [t for t in target if not isinstance(t, str) or t not in CPUS]:
        raise UserError(
            f"export: one file may hold code for several levels of x86-64 ({', '.join(CPUS)}), "
            f"but {unknown[0]!r} is not a level: export it alone"
        )
    if len(set(target)) == 1:
        return [_machine(kind, target[0], vectors)]
    if kind == "c":
        raise Unsupported("export: C is compiled for one level at a time: choose one target")
    if examples is not None:
        raise Unsupported(
            "export: the results of levels differ in last bits: export examples for one target"
        )
    return [_machine(kind, t, vectors) for t in levels.ordered(list(set(target)))]


def _machine(kind: str, target: str | None, vectors: bool | None) -> machines.TargetMachine:
    """The machine for a kind of file."""
    if target is None:
        target = machines.ANY_C if kind == "c" else machines.HOST
    machine = machines.machine(target)
    if machine.is_source and kind != "c":
        raise UserError(f"export: target={target!r} needs kind='c'; choose host or another target")
    if vectors is not None and checks.flag("export", "vectors", vectors):
        if not machine.has_vectors:
            raise UserError(
                f"export: {target} has no vectors: choose another target, such as x86-64-v3"
            )
    elif vectors is not None:
        machine = machine.without_vectors()
    return machine.for_source() if kind == "c" and not machine.is_source else machine


def _calls_library(math: str, kind: str, examples: Any) -> bool:
    """True for code that calls the functions of the C library."""
    if math not in MATH:
        raise UserError(f"export: unknown math {math!r}; choose {', '.join(MATH)}")
    if math == "libm" and (kind != "c" or examples is not None):
        raise Unsupported("export: math='libm' needs kind='c' and no examples, because bits differ")
    return math == "libm"


def _test(f: Exported, examples: Any, stem: str) -> str:
    """The text of the self-test. The same kernels, run here, give the expected bits."""
    here = f.machine.here()
    cpu = here.cpu or here.target.cpu
    if cpu in CPUS:
        detect.check_runs(cpu)
    named = examples if isinstance(examples, Mapping) else {}
    if not isinstance(examples, (Mapping, list, tuple)):
        raise UserTypeError(f"export: examples must be a list or a dict, got {examples!r}")
    arrays = [] if named else list(examples)
    function = in_process(f)
    given, wanted, values = function.traced(arrays, named)
    shared, together = self_test.twins(f, given), []
    if shared:
        inputs = [given[shared.get(i, i)] for i, a in enumerate(f.arrays) if a.is_input]
        sizes = {name: value for name, value in named.items() if name in values}
        together = function.traced(inputs, sizes)[1]
    return self_test.self_test(f, given, wanted, values, stem, shared, together)


def in_process(f: Exported) -> ExportedFunction:
    """Load the function into this process from its object file."""
    import ctypes

    own = f.here()
    try:
        code = object_file(own)
    except Unsupported:
        here, there = detect.host(), own.machine.target
        if here.has_fma(dtypes.float32) or not there.has_fma(dtypes.float32):
            raise
        raise UserError(
            f"export: examples run code for {f.machine.name}, which does not run on this machine:"
            " it has no instruction for a*b + c"
        ) from None
    image = elf_loader.load(code, (f.name,))
    return ExportedFunction(
        manifest.contract(f), ctypes.CFUNCTYPE(ctypes.c_int)(image.symbols[f.name]), image
    )
