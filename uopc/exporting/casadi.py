"""CasADi's interface of an external function for an exported function: in C, and in LLVM IR.

    int jac_g(const double **arg, double **res, long long *iw, double *w, int mem)

Other functions describe the arguments: names, structures of matrices (column by column), sizes of
memory. CasADi's `external()`, its solvers and acados call them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uopc.backends.c.names import code, table
from uopc.backends.llvm.builder import (
    DOUBLE,
    I8,
    I32,
    I64,
    VOID,
    Builder,
    Operand,
    PointerTo,
    Signature,
    Type,
)
from uopc.ir.records import dataclass

_ADDRESS, _NUMBERS = PointerTo(I8), PointerTo(DOUBLE)


@dataclass(frozen=True)
class Port:
    """An input or an output. `structure`: rows and columns, then positions if entries are
    missing."""

    name: str
    structure: tuple[int, ...]
    count: int  # of entries


@dataclass(frozen=True)
class Interface:
    """CasADi's view of a function. `entry` is the exported function that computes it."""

    name: str
    entry: str
    work: int  # of the entry, in doubles
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def places(self) -> tuple[int, ...]:
        """For each output, its offset in the memory w, used if the caller omits it."""
        starts = [self.work]
        for port in self.outputs:
            starts.append(starts[-1] + port.count)
        return tuple(starts[:-1])

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The lengths of arg, res, iw and w."""
        values = sum([port.count for port in self.outputs])
        return len(self.inputs), len(self.outputs), 0, self.work + values

    @property
    def zeros(self) -> int:
        """The length of an array of zeros for inputs that the caller omits."""
        return max([port.count for port in self.inputs], default=0) or 1

    @property
    def tables(self) -> dict[tuple[int, ...], str]:
        """A name for each distinct structure."""
        found = dict.fromkeys([p.structure for p in (*self.inputs, *self.outputs)])
        return {structure: f"{self.name}_s{i}" for i, structure in enumerate(found)}


_PLAIN = (
    ("int", "checkout", "void", "return 0;"), ("int", "alloc_mem", "void", "return 0;"),
    ("int", "init_mem", "int mem", "(void)mem; return 0;"),
    ("void", "release", "int mem", "(void)mem;"), ("void", "free_mem", "int mem", "(void)mem;"),
    ("void", "incref", "void", ""), ("void", "decref", "void", ""),
)  # fmt: skip
_SIZES = ("sz_arg", "sz_res", "sz_iw", "sz_w")
_MAIN = "const casadi_real **arg, casadi_real **res, casadi_int *iw, casadi_real *w, int mem"


def _prototypes(c: Interface) -> Iterator[str]:
    """The declarations of all functions, without semicolons."""
    yield f"int {c.name}({_MAIN})"
    for result, name, given, _ in _PLAIN:
        yield f"{result} {c.name}_{name}({given})"
    for name in ("n_in", "n_out"):
        yield f"casadi_int {c.name}_{name}(void)"
    yield f"casadi_real {c.name}_default_in(casadi_int i)"
    for side in ("in", "out"):
        yield f"const char *{c.name}_name_{side}(casadi_int i)"
        yield f"const casadi_int *{c.name}_sparsity_{side}(casadi_int i)"
    for name in ("work", "work_bytes"):
        yield f"int {c.name}_{name}({', '.join([f'casadi_int *{s}' for s in _SIZES])})"


def declarations(c: Interface) -> str:
    """The part of the header. `casadi_int` is `long long int`; acados defines it as int."""
    macros = [("casadi_real", "double"), ("casadi_int", "long long int")]
    lines = ["", "/* CasADi's interface. Matrices are in column-major order. */"]
    lines += [f"#ifndef {name}\n#define {name} {t}\n#endif" for name, t in macros]
    return "\n".join([*lines, *[code(f"{p};") for p in _prototypes(c)]])


# ---------------------------------------------------------------- C
def source(c: Interface) -> str:
    """The functions in C."""
    heads = {p.partition("(")[0].split()[-1].lstrip("*"): p for p in _prototypes(c)}
    parts = [
        table(f"static const casadi_int {name}[{len(words)}]", [str(w) for w in words])
        for words, name in c.tables.items()
    ]
    parts.append(f"static const casadi_real {c.name}_zeros[{c.zeros}] = {{0.0}};")
    bodies = {c.name: _main(c)}
    bodies |= {f"{c.name}_{name}": [body] if body else [] for _, name, _, body in _PLAIN}
    for side, ports in (("in", c.inputs), ("out", c.outputs)):
        bodies[f"{c.name}_n_{side}"] = [f"return {len(ports)};"]
        texts = [f'"{p.name}"' for p in ports]
        bodies[f"{c.name}_name_{side}"] = _switch_lines(texts)
        bodies[f"{c.name}_sparsity_{side}"] = _switch_lines([c.tables[p.structure] for p in ports])
    bodies[f"{c.name}_default_in"] = ["(void)i;", "return 0.0;"]
    units = ("const casadi_real *", "casadi_real *", "casadi_int", "casadi_real")
    for name in ("work", "work_bytes"):
        lines = []
        for size, amount, unit in zip(_SIZES, c.sizes, units):
            each = f" * (casadi_int)sizeof({unit})" if name == "work_bytes" else ""
            lines += [f"if ({size} != NULL) {{", f"    *{size} = {amount}{each};", "}"]
        bodies[f"{c.name}_{name}"] = [*lines, "return 0;"]
    for name, head in heads.items():
        body = "".join([f"    {line}\n" for line in bodies[name]])
        parts.append(f"{code(head)}\n{{\n{body}}}")
    return "\n\n".join(parts)


def _switch_lines(values: Sequence[str]) -> list[str]:
    cases = [f"case {i}: return {value};" for i, value in enumerate(values)]
    return ["switch (i) {", *cases, "default: return NULL;", "}"]


def _main(c: Interface) -> list[str]:
    given = [f"arg[{i}] != NULL ? arg[{i}] : {c.name}_zeros" for i in range(len(c.inputs))]
    given += [f"res[{i}] != NULL ? res[{i}] : w + {at}" for i, at in enumerate(c.places)]
    return ["(void)iw;", "(void)mem;", f"return {c.entry}({', '.join([*given, 'w'])});"]


# ---------------------------------------------------------------- LLVM IR
def module_text(c: Interface) -> str:
    """The functions in LLVM IR, where `casadi_int` has 64 bits."""
    parts = []
    for words, name in c.tables.items():
        items = ", ".join([f"i64 {w}" for w in words])
        parts.append(f"@{name} = internal unnamed_addr constant [{len(words)} x i64] [{items}]")
    texts = dict.fromkeys([p.name for p in (*c.inputs, *c.outputs)])
    names = {text: f"@{c.name}_t{i}" for i, text in enumerate(texts)}
    for text, name in names.items():
        size = len(text) + 1
        parts.append(f'{name} = internal unnamed_addr constant [{size} x i8] c"{text}\\00"')
    parts.append(
        f"@{c.name}_zeros = internal unnamed_addr constant [{c.zeros} x double] zeroinitializer"
    )
    parts.append(_main_ir(c))
    for result, name, given, _ in _PLAIN:
        t, value = (I32, 0) if result == "int" else (VOID, None)
        taken = "i32 %mem" if given != "void" else ""
        parts.append(_constant_ir(t, f"{c.name}_{name}", taken, value))
    parts.append(_constant_ir(DOUBLE, f"{c.name}_default_in", "i64 %i", 0.0))
    for side, ports in (("in", c.inputs), ("out", c.outputs)):
        parts.append(_constant_ir(I64, f"{c.name}_n_{side}", "", len(ports)))
        structures = [f"@{c.tables[p.structure]}" for p in ports]
        for what, values in (("name", [names[p.name] for p in ports]), ("sparsity", structures)):
            parts.append(_choose_ir(f"{c.name}_{what}_{side}", values))
    for name, unit in (("work", 1), ("work_bytes", 8)):
        parts.append(_sizes_ir(f"{c.name}_{name}", [n * unit for n in c.sizes]))
    return "\n\n".join(parts)


def _constant_ir(t: Type, name: str, taken: str, value: float | None) -> str:
    b = Builder(t)
    b.ret(value)
    return b.definition(f"define {t.text} @{name}({taken}) nounwind")


def _main_ir(c: Interface) -> str:
    b = Builder(I32)
    arg, res = (Operand(b, PointerTo(_NUMBERS), f"%{name}") for name in ("arg", "res"))
    work, zeros = Operand(b, _NUMBERS, "%w"), Operand(b, _NUMBERS, f"@{c.name}_zeros")
    ports = [(arg, i, zeros, 0) for i in range(len(c.inputs))]
    ports += [(res, i, work, at) for i, at in enumerate(c.places)]
    passed = []
    for array, i, other, at in ports:
        given, own = array.at(i).load(), other.at(at)
        passed.append(given.eq(None).select(own, given))
    passed.append(work)
    b.ret(b.call(f"@{c.entry}", Signature(I32, *[v.t for v in passed]), passed))
    taken = "ptr %arg, ptr %res, ptr %iw, ptr %w, i32 %mem"
    return b.definition(f"define i32 @{c.name}({taken}) nounwind")


def _choose_ir(name: str, values: Sequence[str]) -> str:
    b = Builder(_ADDRESS)
    number, chosen = Operand(b, I64, "%i"), Operand(b, _ADDRESS, "null")
    for i, value in enumerate(values):
        chosen = number.eq(i).select(Operand(b, _ADDRESS, value), chosen)
    b.ret(chosen)
    return b.definition(f"define ptr @{name}(i64 %i) nounwind")


def _sizes_ir(name: str, sizes: Sequence[int]) -> str:
    b = Builder(I32)
    places = [Operand(b, PointerTo(I64), f"%p{i}") for i in range(len(sizes))]
    for place, size in zip(places, sizes):
        with b.unless(place.eq(None)):
            place.store(size)
    b.ret(0)
    taken = ", ".join([f"ptr {place.name}" for place in places])
    return b.definition(f"define i32 @{name}({taken}) nounwind")
