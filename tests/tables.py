"""The tables of the documentation, made from the code: `test_style.py` keeps them current."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from uopc.ir.core.levels import INVARIANTS, MEANING, Level
from uopc.ir.core.ops import Op
from uopc.passes import ORDER, PIPELINE
from uopc.passes.optimize.opts.table import OPTS

_ALL = tuple(Level)
_LETTERS = {level: level.text[0].upper() for level in _ALL}


def _row(*cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


ROOT = Path(__file__).resolve().parent.parent


def _table(heads, rows):
    return "\n".join([_row(*heads), _row(*["---"] * len(heads)), *[_row(*r) for r in rows]])


def _levels(levels):
    """One letter for each level, a dot where the op is not legal."""
    return "`" + "".join(_LETTERS[v] if v & levels else "·" for v in _ALL) + "`"


def ops():
    rows = []
    for op in Op.all():
        arg = " or ".join(t.__name__ for t in op.arg if t is not type(None)) or "–"
        notes = [
            word for word, holds in (
                ("commutes", op.commutes), ("effect", op.effect),
                ("movement", op.movement),
            ) if holds
        ]  # fmt: skip
        symbol = f" `{op.symbol}`" if op.symbol else ""
        operands = " ".join(op.operands) or "–"
        rows.append(
            (f"`{op.name}`{symbol}", operands, arg, op.dtype, op.shape, _levels(op.levels),
             ", ".join(notes), op.doc)
        )  # fmt: skip
    heads = ("op", "operands", "arg", "dtype", "shape", "levels", "is", "meaning")
    return _table(heads, rows)


def levels():
    return _table(
        ("level", "letter", "meaning"), [(v.text, f"`{_LETTERS[v]}`", MEANING[v]) for v in _ALL]
    )


def invariants():
    rows = [(f"`{name}`", _levels(where), text) for name, (where, text) in INVARIANTS.items()]
    return _table(("invariant", "levels", "what holds"), rows)


def pipeline():
    rows = []
    for number, p in PIPELINE:
        *folder, name = p.run.__module__.removeprefix("uopc.passes.").split(".")
        link = f"{folder[0]}/" if folder else f"{name}.py"
        doc = __import__(p.run.__module__, fromlist=["PASS"]).__doc__
        first = doc.strip().split("\n\n")[0].replace("\n", " ")
        levels = (
            p.accepts.text if p.accepts is p.promises else f"{p.accepts.text} → {p.promises.text}"
        )
        each = "program" if p.scope == "graph" else "kernel"
        sums = "reorders sums" if p.reassociates else ""
        rows.append((number, f"[{p.name}]({link})", levels, each, sums, first))
    return _table(("", "pass", "level", "runs on each", "", "what it does"), rows)


def order():
    return _table(("before", "after", "because"), [(a, b, why) for a, b, why in ORDER])


def opts():
    rows = [(f"`{n}(axis, n)`", row.meaning, f"`{row.example}`") for n, row in OPTS.items()]
    return _table(("Opt", "what it does", "before → after"), rows)


def files(package):
    """The files of a package, those of its subpackages under them, by their docstrings."""
    rows = []
    for path in sorted((ROOT / package).rglob("*.py"), key=lambda p: (p.parent, p.name)):
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        first = " ".join((doc or "").split("\n\n")[0].split())
        name = str(path.relative_to(ROOT / package))
        if name == "__init__.py" or not first:
            continue
        is_package = name.endswith("__init__.py")
        shown = f"**`{name.removesuffix('__init__.py')}`**" if is_package else f"`{name}`"
        rows.append((shown, first.replace("|", "\\|")))
    return _table(("file", "what is in it"), rows)


TABLES = {
    "ir-files": ("uopc/ir/README.md", lambda: files("uopc/ir")),
    "cpu-files": ("uopc/backends/cpu/README.md", lambda: files("uopc/backends/cpu")),
    "program-files": ("uopc/program/README.md", lambda: files("uopc/program")),
    "levels": ("uopc/ir/README.md", levels),
    "invariants": ("uopc/ir/README.md", invariants),
    "ops": ("uopc/ir/README.md", ops),
    "pipeline": ("uopc/passes/README.md", pipeline),
    "order": ("uopc/passes/README.md", order),
    "pass-files": ("uopc/passes/README.md", lambda: files("uopc/passes")),
    "opts": ("uopc/passes/README.md", opts),
}


def block(name, text):
    """A table between its markers."""
    return f"<!-- {name}: generated, see tests/tables.py -->\n{text}\n<!-- end -->"


def find(path, name):
    """The block of that name as the file has it."""
    m = re.search(rf"<!-- {name}: .*?<!-- end -->", path.read_text("utf-8"), re.DOTALL)
    assert m is not None, f"{path}: no block {name}"
    return m[0]
