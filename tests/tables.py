"""The tables of the documentation, made from the code: `test_style.py` keeps them current."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import partial

from tests import ROOT
from uopc.derivatives import primitives, walk
from uopc.derivatives.values import Mask
from uopc.ir.core import args, dtypes
from uopc.ir.core.levels import INVARIANTS, MEANING, Level
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import intern
from uopc.numpy import elementwise, reductions
from uopc.numpy.samples import statistics
from uopc.onnx.registry import operators
from uopc.passes import ORDER, PIPELINE
from uopc.passes.optimize.opts.split import Split
from uopc.passes.optimize.opts.table import OPTS
from uopc.tensor.creation import param
from uopc.tensor.table import ROWS

_ALL = tuple(Level)
_LETTERS = {level: level.text[0].upper() for level in _ALL}


def _row(*cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"




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
        *folder, name = p.module.__name__.removeprefix("uopc.passes.").split(".")
        link = f"{folder[0]}/" if folder else f"{name}.py"
        doc = p.module.__doc__
        first = doc.strip().split("\n\n")[0].replace("\n", " ")
        levels = (
            p.accepts.text if p.accepts is p.promises else f"{p.accepts.text} → {p.promises.text}"
        )
        each = "program" if p.scope == "graph" else "kernel"
        sums = "may change last bits" if p.reassociates else ""
        needs = ", ".join([c.text for c in p.conditions])
        rows.append((number, f"[{p.name}]({link})", p.group, levels, each, needs, sums, first))
    heads = ("", "pass", "group", "level", "runs on each", "if", "", "what it does")
    return _table(heads, rows)


def stages():
    rows = []
    for number, p in PIPELINE:
        path = p.module.__name__.removeprefix("uopc.").replace(".", "/") + ".py"
        first = p.module.__doc__.strip().split("\n\n")[0].replace("\n", " ")
        level = "" if p.accepts is p.promises else "→ "
        rows.append((f"{number} {p.name}", p.group, level + p.promises.text, f"`{path}`", first))
    return _table(("pass", "group", "level", "file", "what it does"), rows)


def order():
    return _table(("before", "after", "because"), [(a, b, why) for a, b, why in ORDER])


def opts():
    """The Opts; of one that splits a loop, the kind of the range that it makes, and the rest."""
    rows = []
    for name, row in OPTS.items():
        split = row.change if isinstance(row.change, Split) else None
        how = f"{split.kind or 'loop'}, {split.rest.__name__}" if split else ""
        rows.append((f"`{name}(axis, n)`", how, row.meaning, f"`{row.example}`"))
    return _table(("Opt", "split", "what it does", "before → after"), rows)


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


def _expression(u, y):
    """A value of the result `u` as Python would write it: functions by their names."""
    found = u.substitute(y)
    known = {}
    for v in found.toposort():
        if v.op is Ops.PRIMITIVE:
            inner = ", ".join([_expression(s.substitute(known), {}) for s in v.src[1:]])
            number = f"_{v.arg.details[0]}" if v.arg.name in _FAMILIES else ""
            made = f"{v.arg.name}{number}({inner})"
            known[v] = intern(Ops.PARAM, v.dtype, (), args.ParamArg(made, ()))
    return found.substitute(known).render(simplify=False).replace('"', "")


def _factor_text(factor, y):
    """The factor of an operand's tangent, as text."""
    if factor is None or isinstance(factor, (int, float)):
        return "0" if factor is None else f"{factor:g}"
    if isinstance(factor, Mask):
        scale = "1" if factor.scale is None else _factor_text(factor.scale, y)
        condition = _expression(factor.condition, y)
        return f"({scale} if {condition} else 0)" if factor.on else f"(0 if {condition} else 1)"
    return _expression(factor, y)


def _partials_text(rule, op, arg, count, skip):
    """The derivative of an elementwise op: a sum over its operands."""
    names = ["p", "a", "b"] if op is Ops.WHERE else ["a", "b", "c"][:count]
    types = [dtypes.bool_ if n == "p" else dtypes.float64 for n in names]
    operands = tuple([param(n, (), t) for n, t in zip(names, types)])
    y = param("y", (), dtypes.float64)
    u = intern(op, dtypes.float64, (*[y] * skip, *operands), arg)
    terms = [f"{_factor_text(rule.factor(u, i + skip), {u: y})} {n}'" for i, n in enumerate(names)]
    return "`" + " + ".join([t for t in terms if not t.startswith("0 ")]) + "`"


_FAMILIES = ("power_log", "sinc")  # each function of these has a number
_LINEAR = {
    "reshape": "reshape", "expand": "sum over the repeats", "permute": "the inverse permutation",
    "flip": "flip", "pad": "the part that is not padding", "shrink": "pad with zeros",
    "stack": "the parts", "cat": "the parts", "index": "add where it was read",
    "accumulate": "of sums: sums from the end; of max and min: to the element that it is; of"
    " products: a loop",
    "contiguous_backward": "the same, stored",
}  # fmt: skip
_REDUCE = (
    "the sum of a'; of max and min: shared by the elements that it is; of products: times the"
    " others"
)


def derivatives():
    rows = []
    zero = {op for op, rule in walk.RULES.items() if rule.kind == "zero"}
    for op, rule in walk.RULES.items():
        if op in zero:
            continue
        if op is Ops.REDUCE:
            text = _REDUCE
        elif rule.kind == "linear":
            text = f"the op on a'; backwards: {_LINEAR.get(op.name, 'the same')}"
        else:
            text = _partials_text(rule, op, None, op.arity[0], 0)
        if text == "``":  # of each operand
            zero.add(op)
            continue
        rows.append((f"`{op.name}`", rule.kind, text))
    for name, rule in primitives.RULES.items():
        if rule.kind == "partials":
            arg = args.PrimitiveArg(name, (1,) if name in _FAMILIES else ())
            text = _partials_text(rule, Ops.PRIMITIVE, arg, rule.count - 1, 1)
        elif "." in name:  # a user's
            continue
        else:
            text = f"`{type(rule).__module__.split('.')[-1]}.{type(rule).__name__.lstrip('_')}`"
        rows.append((f"`{name}`", rule.kind, text))
    names = sorted([f"`{op.name}`" for op in zero])
    return _table(("op", "rule", "y'"), rows) + "\n\nZero: " + ", ".join(names) + "."


def onnx_operators():
    import uopc.onnx.importer  # noqa: F401  the functions of all operators are in the registry then

    rows: dict[str, list[str]] = {}
    for domain, name, versions in operators():
        since = "" if versions == [1] else f" ({', '.join(map(str, versions))})"
        rows.setdefault(domain or "ai.onnx", []).append(f"`{name}`{since}")
    return _table(("domain", "operators"), [(d, ", ".join(n)) for d, n in sorted(rows.items())])


def entries(*names):
    """The entries of functions of `uopc.numpy` in the reference."""
    return "\n" + "".join([f"::: uopc.numpy.{name}\n" for name in sorted(names)])


def functions_of_elements():
    return entries(*elementwise.__all__, *[row.name for row in ROWS if row.numpy])


def numpy_names():
    names = [f"`{name}` is `{standard}`" for name, standard in elementwise.NUMPY_NAMES.items()]
    return textwrap.fill(", ".join(["`concatenate` is `concat`", *names]) + ".", 140)


# Packages whose page has a table of their files, by the table's name.
PACKAGES = {
    "cpu": "backends/cpu", "derivative": "derivatives", "pass": "passes",
    **{name: name for name in (
        "backends", "cost", "exporting", "ir", "numpy",
        "onnx", "program", "search", "sparse", "tensor", "tracing",
    )},
}  # fmt: skip
TABLES = {
    **{
        f"{name}-files": (f"uopc/{package}/README.md", partial(files, f"uopc/{package}"))
        for name, package in PACKAGES.items()
    },
    "functions-of-elements": ("docs/namespace.md", functions_of_elements),
    "reductions": (
        "docs/namespace.md", lambda: entries(*reductions.__all__, *reductions.FUNCTIONS)
    ),
    "statistics": (
        "docs/namespace.md", lambda: entries(*statistics.__all__, *statistics.FUNCTIONS)
    ),
    "numpy-names": ("docs/namespace.md", numpy_names),
    "onnx-operators": ("docs/models.md", onnx_operators),
    "derivative-rules": ("docs/derivatives.md", derivatives),
    "levels": ("uopc/ir/README.md", levels),
    "invariants": ("uopc/ir/README.md", invariants),
    "ops": ("uopc/ir/README.md", ops),
    "stages": ("docs/architecture.md", stages),
    "pipeline": ("uopc/passes/README.md", pipeline),
    "order": ("uopc/passes/README.md", order),
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
