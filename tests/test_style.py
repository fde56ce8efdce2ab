"""The shape of the code: which way imports point, sizes, documentation, tables that are current."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests import ROOT, numpy_stubs, stub, tables
from uopc.ir.core.levels import INVARIANTS, MEANING, Level
from uopc.ir.core.ops import Op
from uopc.ir.text.printer import parse, print_graph
from uopc.ir.verify.verifier import verify
from uopc.passes import ORDER, PIPELINE

PACKAGE = ROOT / "uopc"
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = ROOT / "tests"
TABLES = {  # flat on purpose: one row per line
    "uopc/ir/core/ops.py", "uopc/passes/analysis/thresholds.py",
    "uopc/passes/optimize/schedule/gpu_thresholds.py",
}
_PRAGMA = re.compile(r"\s*# (type: ignore|fmt: |noqa).*")
MOST_LINES, MOST_FUNCTION, MOST_WIDTH = 700, 60, 100


@functools.cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"), str(path))


def name_of(path):
    """uopc/ir/core/ops.py → uopc.ir.ops"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def each_file(test):
    """A test of every file of the package; it fails with the text of all that fail."""

    def of_all():
        found = []
        for path in FILES:
            try:
                test(path)
            except AssertionError as error:
                found.append(f"{path.relative_to(ROOT)}: {error}")
        assert not found, "\n".join(found)

    of_all.__name__, of_all.__doc__ = test.__name__, test.__doc__
    return of_all


@functools.cache
def imports(path):
    """The modules of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("uopc")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("uopc"):
            inner = {f"{node.module}.{a.name}" for a in node.names}
            found |= {m if m in MODULES else node.module for m in inner}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
    return frozenset(found)


# ---------------------------------------------------------------- imports point one way
# Areas in order: a file imports its own area and those before it. Areas of one line do not know
# each other. A function-level or typing-only import counts as any other.
HOUSE = (
    ("errors",), ("ir",), ("config", "target"), ("cost",), ("tensor", "passes", "backends"),
    ("derivatives",), ("sparse",),
    ("cache", "dump"), ("program",), ("search",),
    ("driver",), ("distributed",), ("exporting",), ("numpy",), ("tracing",),
    ("",), ("casadi", "onnx"), ("cli",), ("__main__",),
)  # fmt: skip
IR = (
    ("forks", "records"), ("core",), ("index", "text"), ("devices",), ("builder",), ("nest",),
    ("rewrite",), ("symbolic",), ("verify",), ("interpret",),
)  # fmt: skip
# Any pass may import these; no pass imports another pass.
SHARED = ("analysis", "conditions", "contract", "effects", "sharding")
# The public names are gathered in these; any file may ask `uopc.ir` for those of the IR.
FRONTS = {"uopc.ir"}


def rank(area, order):
    return next(i for i, areas in enumerate(order) if area in areas)


def part(module, at):
    parts = module.split(".")
    return parts[at] if len(parts) > at else ""


def may_import(me, other):
    """True if the import rule lets one module import another."""
    mine, its = part(me, 1), part(other, 1)
    if mine != its:
        return rank(its, HOUSE) < rank(mine, HOUSE)
    if mine == "ir" and other not in FRONTS and me not in FRONTS:
        mine, its = part(me, 2), part(other, 2)
        return mine == its or rank(its, IR) < rank(mine, IR)
    if mine == "passes" and me not in ("uopc.passes", "uopc.passes.pass_manager"):
        return part(other, 2) in {part(me, 2), *SHARED}
    return True


@each_file
def test_import_direction(path):
    me = name_of(path)
    wrong = sorted(other for other in imports(path) if not may_import(me, other))
    assert not wrong, f"{me} imports {', '.join(wrong)}"


def test_the_order_of_packages_is_the_documented_one():
    page = " ".join((ROOT / "docs/architecture.md").read_text("utf-8").split())
    for order in (HOUSE, IR):
        areas = [" | ".join(name or "uopc" for name in names) for names in order]
        written = " < ".join(a for a in areas if a != "__main__")
        assert written in page, written


def circles(below):
    """The nodes that import each other, directly or through others."""
    below = {me: {*others} & below.keys() - {me} for me, others in below.items()}
    while free := [me for me, others in below.items() if not others]:
        for me in free:
            del below[me]
        for others in below.values():
            others.difference_update(free)
    return sorted(below)


def test_no_import_circle():
    """Nor one that a function-level or typing-only import closes."""
    found = circles({me: imports(path) for me, path in MODULES.items()})
    assert not found, f"these import each other: {', '.join(found)}"


def test_no_import_circle_that_a_stub_closes():
    below = {me: imports(path) for me, path in MODULES.items()}
    for path in PACKAGE.rglob("*.pyi"):
        below[name_of(path)] = imports(path) | below.get(name_of(path), set())
    found = circles(below)
    assert not found, f"these import each other: {', '.join(found)}"


def test_the_stub_of_a_node_imports_nothing_above_it():
    found = imports(PACKAGE / "ir/core/uop.pyi")
    assert all(part(name, 2) == "core" or name == "uopc.errors" for name in found), found
    with pytest.raises(TypeError, match="write a Protocol"):
        stub.alias("from uopc.tensor.updates import Indexed", set())


@pytest.mark.parametrize("depth", range(2, 6))
def test_no_circle_of_folders(depth):
    """Nor one of the entries of a folder: what is in a folder below counts as one entry."""
    below = {}
    for me, path in MODULES.items():
        names = {entry(other, depth) for other in imports(path)}
        below.setdefault(entry(me, depth), set()).update(names)
    found = circles(below)
    assert not found, f"these import each other: {', '.join(found)}"


def entry(module, depth):
    return ".".join(module.split(".")[:depth])


def test_a_circle_is_found():
    chain = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(chain) == [] and circles({**chain, "c": {"a"}}) == ["a", "b", "c"]


# ---------------------------------------------------------------- the core and its wings
# A program of one device is compiled and called without the wings. Modules and packages of each:
WINGS = {
    "derivatives": ("derivatives",), "sparse": ("sparse",), "files": ("tracing.files",),
    "tracing": ("tracing",), "exporting": ("exporting",), "onnx": ("onnx",),
    "cli": ("cli", "__main__"),
    "dump": ("dump", "program.reports", "program.saved"), "search": ("search",),
    "numpy": ("numpy",), "casadi": ("casadi",),
    "meshes": (
        "distributed", "backends.exchange", "ir.devices.mesh", "ir.devices.launches",
        "ir.devices.overlap", "ir.devices.part_sizes", "ir.devices.parts", "ir.devices.traffic",
        "ir.builder.unrolled", "ir.interpret.lockstep", "ir.interpret.exchanges",
        "passes.partition", "passes.unroll_devices", "passes.place_exchanges",
        "passes.order_launches", "program.graph.sharding",
    ),
}  # fmt: skip
# The modules of the core that import a wing. `uopc` itself has the public names of all.
DOORS = {
    "dump": {"driver", "program.backend", "program.launches", "program.program"},  # a run as text
    "search": {"program.tuned.figures", "program.tuned.schedules"},  # `beam`, figures
    "numpy": {"tensor.numpy_protocols"},  # NumPy's functions of a UOp
    "meshes": {
        "tensor.elementwise",  # shard
        "backends.plan", "backends.device_rows", "program.planner",  # several devices in a plan
        "program.cached.record", "program.cpu", "program.cuda", "program.program",
        "program.request", "program.speed.predict", "driver",
        "ir.interpret.interpreter", "passes.join_kernels", "passes.pass_manager", "passes.sharding",
    },
}  # fmt: skip
# The wings that a wing is built on.
BUILT_ON = {
    "sparse": {"derivatives"}, "tracing": {"derivatives", "sparse", "numpy", "meshes"},
    "exporting": {"dump", "sparse", "meshes", "search"}, "onnx": {"tracing"},
    "casadi": {"exporting", "tracing"},
    "dump": {"meshes", "search"}, "files": {"tracing"}, "search": {"dump", "meshes"},
    "meshes": {"search"},
    "cli": {"casadi", "dump", "exporting", "onnx", "search", "sparse", "tracing"},
}  # fmt: skip


def wing_of(module):
    """The wing of a module; None for one of the core."""
    inner = module.removeprefix("uopc.")
    places = [(name, place) for name, own in WINGS.items() for place in own]
    found = (name for name, place in places if f"{inner}.".startswith(f"{place}."))
    return next(found, None)


def wings_of(path):
    """The wings that a file of the core imports, in functions and for types, too, or by a name."""
    texts = {n.value for n in ast.walk(parsed(path)) if isinstance(n, ast.Constant)}
    named = {text for text in texts if isinstance(text, str) and text in MODULES}
    return {wing for module in imports(path) | named if (wing := wing_of(module))}


def test_the_core_imports_no_wing_but_through_doors():
    found = {}
    for me, path in MODULES.items():
        if me != "uopc" and wing_of(me) is None:
            for wing in wings_of(path):
                found.setdefault(wing, set()).add(me.removeprefix("uopc."))
    assert found == DOORS


_SMALLEST = """
import sys, uopc
uopc.compile(uopc.param("x", (3,)) * 2, optimize=False)
print(*sys.modules)
"""
UNITS = (
    "uopc.backends.cuda", "uopc.backends.nvptx", "uopc.program.cuda",  # GPUs
    "uopc.passes.place_stages.gpu_operands",
    "uopc.backends.llvm.tiles", "uopc.ir.devices.tensor_cores", "uopc.passes.expand.fragments",
    "uopc.passes.analysis.matrix_tiles", "uopc.passes.analysis.shared_tiles",  # matrix units
    "uopc.cost", "uopc.passes.place_stages.doubts", "uopc.passes.place_stages.by_cycles",
)  # fmt: skip


def test_the_smallest_compile_needs_no_gpu_no_matrix_unit_and_no_wing():
    run = subprocess.run([sys.executable, "-c", _SMALLEST], cwd=ROOT, capture_output=True,
                         text=True, check=True)  # fmt: skip
    loaded = [name for name in run.stdout.split() if name.startswith("uopc.")]
    assert len(loaded) > 100
    assert not [name for name in loaded if wing_of(name) or name.startswith(UNITS)]


_IMPORT_ALL = """
import importlib, sys
for module in {0}:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:  # an optional package
        assert error.name.split(".")[0] != "uopc", error
print(*sys.modules)
"""


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_is_imported_alone(wing):
    """A fresh process imports all modules of a wing, and no wing that this is not built on."""
    own = sorted(m for m in MODULES if wing_of(m) == wing and m != "uopc.__main__")
    code = _IMPORT_ALL.format(own)
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = {wing_of(m) for m in run.stdout.split() if m.startswith("uopc.")} - {None, wing}
    allowed, new = set(), BUILT_ON.get(wing, set())
    while new:
        allowed |= new
        new = {w for other in new for w in BUILT_ON.get(other, set())} - allowed
    assert found <= allowed, f"{wing} imports {found - allowed}"


MOST_ENTRIES = 24


def test_a_folder_can_be_read_at_a_glance():
    folders = {path.parent for path in FILES}
    entries = {
        folder: [e for e in folder.iterdir() if e.name not in ("__pycache__", "py.typed")]
        for folder in folders
    }
    del entries[PACKAGE / "passes"]  # the pipeline is as long as it is
    wide = {f: len(e) for f, e in entries.items() if len(e) > MOST_ENTRIES}
    assert not wide, f"folders of more than {MOST_ENTRIES} entries: {wide}"


def test_only_the_environment_module_reads_the_environment():
    """`config.py` knows every variable; what else looks at `os.environ` is listed here."""
    readers = {
        name_of(path) for path in FILES
        if {"environ", "getenv"}
        & {n.attr for n in ast.walk(parsed(path)) if isinstance(n, ast.Attribute)}
    }  # fmt: skip
    assert readers == {"uopc.config"}


# ---------------------------------------------------------------- sizes
@each_file
def test_file_size(path):
    lines = path.read_text("utf-8").splitlines()
    if str(path.relative_to(ROOT)) in TABLES:
        return
    assert len(lines) <= MOST_LINES, f"{len(lines)} lines"
    wide = [i for i, line in enumerate(lines, 1) if len(_PRAGMA.sub("", line)) > MOST_WIDTH]
    assert not wide, f"lines of more than {MOST_WIDTH} characters: {wide}"


@each_file
def test_function_size(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MOST_FUNCTION, f"{node.name} has {lines} lines"


# ---------------------------------------------------------------- words
def public(tree):
    """Public functions and classes of a module, and the public methods of those classes."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node, ""


@each_file
def test_docstrings(path):
    tree = parsed(path)
    assert ast.get_docstring(tree) or path.stat().st_size == 0, "no module docstring"
    missing = [
        n.name for n, _ in public(tree)
        if not ast.get_docstring(n) and lines_of(n) > 3 and not is_of_table(n)
    ]  # fmt: skip
    assert not missing, f"without a docstring: {missing}"


def is_of_table(node):
    """True for a function whose docstring is made of its row (`uopc/tensor/table.py`)."""
    return any("table.routine" in ast.unparse(d) for d in node.decorator_list)


_NOUN_CLAUSE = re.compile(r"(What|Whether|Where|How|Who|Whatever)\b")


def test_docstrings_begin_with_their_subject():
    """"The bytes of a node", not "What a node costs"; "True if …", not "Whether …"."""
    found = []
    folders = (PACKAGE, ROOT / "benchmarks", ROOT / "examples")
    for path in sorted(p for folder in folders for p in folder.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                doc = ast.get_docstring(node) or ""
                if _NOUN_CLAUSE.match(doc):
                    found.append(f"{path.relative_to(ROOT)}: {doc.splitlines()[0]}")
    assert not found, "\n".join(found)


def lines_of(node):
    return node.end_lineno - node.lineno + 1


BAD_NAMES = ("util", "helper", "misc", "common", "stuff")


@each_file
def test_names(path):
    assert not any(word in path.stem for word in BAD_NAMES)
    names = [
        n.name for n in ast.walk(parsed(path)) if isinstance(n, (ast.FunctionDef, ast.ClassDef))
    ]
    assert not [n for n in names if n.startswith("do_")]


def named_twice(trees):
    """The classes whose name another class has, too; private names count without underscore."""
    found = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name.strip("_"), []).append(f"{path}:{node.lineno}")
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_class_name_means_one_thing():
    """A reader who finds `Loop` knows which one: grep finds each class by its name alone."""
    found = named_twice({path.relative_to(ROOT): parsed(path) for path in FILES})
    assert not found, "\n".join(f"{name}: {', '.join(places)}" for name, places in found.items())


def test_a_class_name_that_means_two_things_is_found():
    first, second = ast.parse("class Loop: ..."), ast.parse("class _Loop: ...\nclass Nest: ...")
    assert named_twice({"a.py": first, "b.py": second}) == {"Loop": ["a.py:1", "b.py:1"]}


@each_file
def test_no_python_recursion_tricks_and_no_swallowed_exceptions(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr != "setrecursionlimit"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            broad = isinstance(node.type, ast.Name) and node.type.id in (
                "Exception",
                "BaseException",
            )
            silent = all(isinstance(s, (ast.Pass, ast.Continue)) for s in node.body)
            assert not (broad and silent), f"line {node.lineno}: an exception is swallowed"


def test_files_are_read_and_written_in_one_encoding():
    """A file without a stated encoding is garbled where the locale is not UTF-8."""
    for path in (*FILES, *TESTS.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            name = getattr(getattr(node, "func", None), "attr", "")
            if name in ("read_text", "write_text"):
                known = len(node.args) + len(node.keywords) > (name == "write_text")
                assert known, f"{path.relative_to(ROOT)}:{node.lineno}: {name} without an encoding"


def test_tests_can_fail():
    """Every test compares or expects something; none asserts a constant."""
    for path in sorted(TESTS.rglob("test_*.py")):
        check_tests(path)


OF_THE_WHOLE = {"benchmarks", "docs", "kinds"}  # folders that mirror no package


def test_tests_are_where_their_module_is():
    """The folders of tests are those of the package, and no file is too long to be read at once."""
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.parent.relative_to(TESTS)
        known = str(folder) in OF_THE_WHOLE or (PACKAGE / folder / "__init__.py").exists()
        assert known, f"tests/{folder} mirrors no package: where is the module of {path.name}?"
        lines = path.read_text("utf-8").count("\n")
        assert lines <= MOST_LINES, f"{path.relative_to(ROOT)}: {lines} lines"


def check_tests(path):
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            where = f"{path.name}, line {node.lineno}"
            assert not isinstance(node.test, ast.Constant), f"{where} asserts a constant"
    helpers = asserting(path) | asserting_imports(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert checks_something(node, helpers), f"{path.name}: {node.name} checks nothing"


@functools.cache
def asserting(path):
    """The functions of a file that assert something."""
    return {
        n.name for n in ast.walk(parsed(path))
        if isinstance(n, ast.FunctionDef)
        and any(isinstance(i, (ast.Assert, ast.Raise)) for i in ast.walk(n))
    }  # fmt: skip


def asserting_imports(path):
    """The functions of other tests that a file imports, and that assert something."""
    found = set()
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            source = ROOT / f"{node.module.replace('.', '/')}.py"
            if source.exists():
                found |= asserting(source) & {a.name for a in node.names}
    return found


def checks_something(function, helpers):
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            f = node.func
            name = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
            if name in ("raises", "check", "check_call", "fail") or name in helpers or (
                name.startswith(("assert_", "check", "verify", "equal", "same", "expect", "refuse"))
            ):  # fmt: skip
                return True
    return False


def test_every_op_has_a_doc():
    for op in Op.all():
        assert len(op.doc) >= 8 and op.doc.endswith("."), f"{op.name}: {op.doc!r}"


def test_every_level_and_invariant_has_a_sentence():
    assert set(MEANING) == set(Level)
    for name, (levels, sentence) in INVARIANTS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and levels and sentence.endswith("."), name


def test_the_folder_of_the_passes_is_the_pipeline():
    """The module of a pass has its name; nothing else is beside them but what runs them, and what
    several of them ask."""
    modules = {p.name.replace("-", "_"): p.module.__name__ for _, p in PIPELINE}
    for name, module in modules.items():
        is_folder = (PACKAGE / "passes" / name).is_dir()
        assert module == f"uopc.passes.{name}" + (f".{name}" if is_folder else "")
    found = {p.stem for p in (PACKAGE / "passes").iterdir() if p.name != "__pycache__"}
    assert found == {*modules, *SHARED, "pass_manager", "__init__", "README"}


def test_every_pass_has_an_order_reason():
    names = [p.name for _, p in PIPELINE]
    for name in names:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name), name
        assert any(name in (first, second) for first, second, _ in ORDER), name
    assert all(len(reason) > 20 for _, _, reason in ORDER)


# ---------------------------------------------------------------- documentation that is generated
@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_current(name, blessed):
    path, make = tables.TABLES[name]
    stored = tables.find(ROOT / path, name)
    blessed.check(ROOT / path, stored, tables.block(name, make()))


STUBS = {
    "ir/core/uop.pyi": stub.text, "numpy/namespace.pyi": numpy_stubs.namespace_text,
    "numpy/random.pyi": numpy_stubs.random_text,
    "numpy/array_methods.pyi": numpy_stubs.methods_text,
}  # fmt: skip


@pytest.mark.parametrize("name", STUBS)
def test_stubs_are_current(name, blessed):
    path = PACKAGE / name
    blessed.check(path, path.read_text("utf-8"), STUBS[name]())


def test_every_stub_is_installed_and_generated():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    installed = set(settings["tool"]["setuptools"]["package-data"]["uopc"])
    assert {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.pyi")} == set(STUBS)
    assert set(STUBS) <= installed


def test_files_named_in_the_documentation_exist():
    folders = [ROOT / name for name in ("uopc", "tests", "docs", "benchmarks", "examples")]
    names = [f"/{p.relative_to(ROOT)}" for folder in folders for p in folder.rglob("*.*")]
    for page in ("uopc/ir/README.md", "uopc/passes/README.md", "uopc/program/README.md",
                 "uopc/search/README.md",
                 "uopc/backends/cpu/README.md", "tests/README.md"):
        for name in re.findall(r"`([\w/]+\.(?:py|md|uop))`", (ROOT / page).read_text("utf-8")):
            known = any(path.endswith(f"/{name}") for path in names) or (ROOT / name).exists()
            assert known, f"{page}: {name}"


def test_the_graph_in_the_ir_readme_is_a_kernel():
    text = re.search(
        r"```\n// level: kernel\n(.*?)\n```", (ROOT / "uopc/ir/README.md").read_text("utf-8"), re.S
    )
    assert text is not None
    graph = parse(text[1])
    verify(graph, Level.KERNEL, "README")
    assert print_graph(graph) == text[1]


# ---------------------------------------------------------------- importing
# `import uopc` brings NumPy along and may cost as much again; the 0.2 s that we promise are stated
# where NumPy takes 0.07 s. A ratio holds on a slow or busy machine too.
MOST_TIMES_NUMPY = 2.2
# Time of the process, so that others on the machine do not matter.
_TIMED = "import time; s = time.process_time(); import {0}; print(time.process_time() - s)"


def seconds(module, environment):
    run = subprocess.run([sys.executable, "-c", _TIMED.format(module)], cwd=ROOT, env=environment,
                         capture_output=True, text=True, check=True)  # fmt: skip
    return float(run.stdout)


def test_import_is_quick(tmp_path, capsys):
    """Of code that is compiled, as of an installed package: the first import writes it."""
    env = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    seconds("uopc", env)
    pairs = [(seconds("uopc", env), seconds("numpy", env)) for _ in range(5)]
    own, numpy = (min(times) for times in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\nimport uopc {own:.3f} s, import numpy {numpy:.3f} s, ratio {own / numpy:.2f}")
    assert own < MOST_TIMES_NUMPY * numpy, f"import uopc takes {own:.3f} s"


@pytest.mark.parametrize("module", ["llvmlite", "rich", "pycuda", "uopc.driver", "uopc.passes"])
def test_import_is_lazy(module):
    code = f"import sys, uopc; print({module!r} in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == "False", found.stdout + found.stderr


def test_dataclasses_write_their_methods_later():
    """`uopc.ir.records` has the decorator; that of the standard library writes at import."""
    found = [
        str(path.relative_to(ROOT)) for path in FILES if path != PACKAGE / "ir/records.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        and "dataclass" in [a.name for a in node.names]
    ]  # fmt: skip
    assert not found, found


def test_a_program_from_a_cache_needs_no_pass():
    """The driver imports the passes, the interpreter and the checks once they are needed."""
    later = ("uopc.passes", "uopc.ir.interpret", "uopc.ir.symbolic", "uopc.ir.verify")
    code = f"import sys, uopc.driver; print([m for m in sys.modules if m.startswith({later})])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
