"""The stub of `uopc/ir/core/uop.py` for type checkers: its own definitions, and the methods of UOp.

`uopc/tensor/methods.py` installs the methods, where a type checker does not see them. The stub
imports only modules that lie below `uop.py`, as `uop.py` does. It writes out an alias of any other
module (`Shape` is `tuple[Any, ...]`) and refuses a class of one: `typed.py` has a Protocol instead.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types

from uopc.ir.core import uop
from uopc.tensor.methods import Methods

_HEAD = '"""Generated from uop.py and tensor/methods.py: `pytest tests/test_style.py --bless`."""'
_EVERY_CLASS_HAS = ("__module__", "__doc__", "__dict__", "__weakref__", "__qualname__",
                    "__firstlineno__", "__static_attributes__")  # fmt: skip
_BELOW = ("uopc.errors", "uopc.ir.core.args", "uopc.ir.core.dtypes", "uopc.ir.core.ops",
          "uopc.ir.core.typed")  # fmt: skip


def text() -> str:
    """The whole file."""
    imports: set[str] = set()
    methods = "\n".join(_methods(imports))
    definitions = "\n".join(_definitions(methods, imports))
    while above := sorted(line for line in imports if _is_above(line)):
        for line in above:
            imports.remove(line)
            name, meaning = alias(line, imports)
            definitions = re.sub(rf"\b{name}\b", meaning, definitions)
    names: dict[str, list[str]] = {}
    for line in sorted(imports):
        module, name = line.removeprefix("from ").split(" import ")
        names.setdefault(module, []).append(name)
    lines = [f"from {module} import {', '.join(found)}" for module, found in names.items()]
    ours = [line for line in lines if line.startswith("from uopc")]
    theirs = [line for line in lines if line not in ours]
    return "\n".join([_HEAD, "", *theirs, "", *ours, "", definitions, ""])


def _is_above(line: str) -> bool:
    """True for an import of a module that does not lie below `uop.py`."""
    module = line.split()[1]
    return module.startswith("uopc") and module not in _BELOW


def alias(line: str, imports: set[str]) -> tuple[str, str]:
    """The name and the meaning of an alias; the names in the meaning are noted as imports."""
    _, path, _, name = line.split()
    module = importlib.import_module(path)
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            meaning = ast.unparse(node.value)
            imports |= {_origins(module)[n] for n in _names(meaning)}
            return name, meaning
    raise TypeError(f"the stub of UOp: {line!r} is above ir/core: write a Protocol in typed.py")


def _definitions(methods: str, imports: set[str]) -> list[str]:
    """The functions and classes of uop.py without their bodies."""
    out = []
    for node in ast.parse(inspect.getsource(uop)).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            out.append(_without_body(node))
        elif isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            out.append(f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}")
        elif isinstance(node, ast.ClassDef):
            fields = [ast.unparse(n) for n in node.body if isinstance(n, ast.AnnAssign)]
            own = [_without_body(n) for n in node.body if isinstance(n, ast.FunctionDef)]
            inner = "\n".join(fields + own) + ("\n" + methods if node.name == "UOp" else "")
            bases = ", ".join(ast.unparse(b) for b in [*node.bases, *node.keywords])
            heading = f"class {node.name}({bases}):" if bases else f"class {node.name}:"
            out.append(f"{heading}\n{textwrap.indent(inner, '    ')}\n")
        else:
            continue
        own_text = out[-1].replace(methods, "")
        imports |= {i for n in _names(own_text) if (i := _origins(uop).get(n))}
    return out


def _without_body(node: ast.FunctionDef) -> str:
    return f"def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}: ..."


def _methods(imports: set[str]) -> list[str]:
    """One entry per method, each from the function that `Methods` names."""
    out = []
    for name, member in vars(Methods).items():
        if isinstance(member, property):
            returned = signature_of(member.fget, imports).return_annotation
            out += ["@property", f"def {name}(self) -> {returned}: ..."]
        elif isinstance(member, staticmethod):
            out += ["@staticmethod", _method(name, signature_of(member.__func__, imports))]
        elif isinstance(member, types.FunctionType):
            signature = signature_of(member, imports)
            first, *rest = signature.parameters.values()
            me = first.replace(name="self", annotation=inspect.Parameter.empty)
            out.append(_method(name, signature.replace(parameters=[me, *rest])))
        elif name not in _EVERY_CLASS_HAS:
            out.append(f"{name}: {type(member).__name__}".replace("NoneType", "None"))
    return out


def _method(name: str, signature: inspect.Signature) -> str:
    return f"def {name}{signature}: ..."


def signature_of(function: types.FunctionType, imports: set[str]) -> inspect.Signature:
    """The signature of a function; its annotations' names are noted as imports."""
    signature = inspect.signature(function)
    if function.__name__ == "<lambda>":  # an operator
        first, second = signature.parameters.values()
        second = second.replace(name="other", annotation=Text("Any"))
        imports.add("from typing import Any")
        return signature.replace(parameters=[first, second], return_annotation=Text("UOp"))
    origins = _origins(sys.modules[inspect.unwrap(function).__globals__["__name__"]])
    for annotation in inspect.unwrap(function).__annotations__.values():
        imports |= {origins[n] for n in _names(annotation)}
    shown = [
        p.replace(default=_shown(p.default), annotation=Text(p.annotation))
        for p in signature.parameters.values()
    ]
    return signature.replace(
        parameters=shown, return_annotation=Text(signature.return_annotation)
    )


def _shown(default: object) -> object:
    """A default as a stub writes it: a number or a string as such, anything else as `...`."""
    if default is inspect.Parameter.empty or default is None:
        return default
    return default if type(default) in (bool, int, float, str) else Text("...")


class Text(str):
    """Shown without quotes."""

    __repr__ = str.__str__


def _names(annotation: str) -> set[str]:
    without_strings = re.sub(r"([\"']).*?\1", "", annotation)
    found = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", without_strings))
    return found - vars(builtins).keys() - {"UOp"}


@functools.cache
def _origins(module: types.ModuleType) -> dict[str, str]:
    """The import statements of a module's names; those of its own names too."""
    tree = ast.parse(inspect.getsource(module))
    out = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for target in targets:
            name = getattr(target, "id", getattr(target, "name", None))
            if name and module is not uop:
                out[name] = f"from {module.__name__} import {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for a in node.names:
                known = f" as {a.asname}" if a.asname else ""
                out[a.asname or a.name] = f"from {node.module} import {a.name}{known}"
    return out
