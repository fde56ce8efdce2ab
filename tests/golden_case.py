"""A golden: a graph before and after one pass, as text. Two ways to write one down:

a file `golden/NNN_pass_name/case_name.uop`

    // pass-name / case-name
    // One line that says what there is to learn.
    --- before kernel threads=4
    …
    --- after kernel
    …

and the Before/After block of the pass's docstring, in two columns, or one below the other where
the lines are long. What stands after the level of `before` is how the pass is run: see `Setting`.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from tests import meshes
from uopc.backends import detect
from uopc.config import Options
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.data import arrays
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.devices.mesh import make_mesh
from uopc.ir.index import affine
from uopc.ir.interpret import interpreter, lockstep
from uopc.ir.text.printer import parse, print_graph
from uopc.passes.contract import Context
from uopc.passes.pass_manager import kernel_costs, run_pass
from uopc.passes.sharding import MeshLayout
from uopc.target import gpu_target

GOLDEN = Path(__file__).parent / "golden"
# The constant arrays that goldens name by content hash.
CONSTANTS = [arrays.register(np.arange(n, dtype=np.float32).reshape(-1, 64)) for n in (4096, 128)]


def _rules(name):
    from uopc import PatternMatcher, UPat

    x = UPat.var("x")
    table = {
        "double": PatternMatcher([(x * 2.0, lambda x: x + x)]),
        "square": PatternMatcher(
            [(UPat(Ops.POW, src=(x, UPat.const(None, 2.0))), lambda x: x * x)]
        ),
    }
    return {"apply-rules": table[name]} if name else {}


@dataclass(frozen=True)
class Setting:
    """The facts that a pass may use beside its graph; the way to draw its inputs and to compare."""

    optimize: bool = True
    threads: int = 1
    cost: bool = True  # passes may ask what kernels cost: on a CPU, one device
    device: str = ""
    cpu: str = "x86-64-v3"
    features: str = ""  # more than the named CPU has, as amx-tile+amx-int8
    dots: bool = False  # the option dot_products
    rules: str = ""  # a name in `_rules`
    low: int = 0  # integer inputs are low ≤ v < high; low = high: any integers
    high: int = 0
    devices: str = ""  # of this process, as cpu+cpu:1
    mesh: str = ""  # the axes of a mesh of devices, as data:4+model:2
    bucket: int = 0  # the bytes of a bucket, where exchanges run beside launches
    ulps: int = 0  # a function and its polynomial may differ by so many units in the last place

    @staticmethod
    def read(text: str) -> Setting:
        kinds = {f.name: type(f.default) for f in dataclasses.fields(Setting)}
        fields = {}
        for item in text.replace(",", " ").split():
            name, _, value = item.partition("=")
            kind = kinds[name]
            fields[name] = value == "true" if kind is bool else kind(value)
        return Setting(**fields)

    def context(self) -> Context:
        """A GPU, or the named CPU, by default of 256 bits, whatever this one has."""
        gpu = self.device.partition("cuda:")[2]
        machine = gpu_target(gpu) if gpu else detect.host(self.cpu)
        if self.features:
            machine = dataclasses.replace(machine, features=f"+{self.features.replace('+', ',+')}")
        made = Context(machine, self.optimize, self.threads, rules=_rules(self.rules))
        made.options = Options(dot_products=self.dots, trim_stores=True)
        made.sharding = MeshLayout(self.made_mesh(), bucket=self.bucket) if self.mesh else None
        made.devices = tuple(self.devices.split("+")) if self.devices else made.devices
        if self.cost and self.optimize and not gpu and len(made.devices) == 1:
            made.cost = kernel_costs(made)
        return made

    def made_mesh(self):
        """The mesh."""
        axes = [axis.split(":") for axis in self.mesh.split("+")]
        return make_mesh([int(n) for _, n in axes], [name for name, _ in axes])


@dataclass(frozen=True)
class Case:
    """`block` is the stored text; `write(before, after)` is what should stand there."""

    path: Path
    block: str
    accepts: str
    setting_text: str
    promises: str
    before: str
    after: str
    title: str = ""

    @property
    def setting(self) -> Setting:
        return Setting.read(self.setting_text)

    def write(self, before: str, after: str) -> str:
        if self.title:
            return _file_text(self, before, after)
        return _docstring_text(self, before, after)


# ---------------------------------------------------------------- files
_PARTS = re.compile(
    r"(?P<title>(?://.*\n){2})--- before (?P<accepts>\w+)(?P<setting>[^\n]*)\n(?P<before>.*?)"
    r"--- after (?P<promises>\w+)\n(?P<after>.*)",
    re.DOTALL,
)


def read_file(path: Path) -> Case:
    text = path.read_text("utf-8")
    m = _PARTS.fullmatch(text)
    assert m is not None, (
        f"{path}: expected two comment lines, `--- before LEVEL`, `--- after LEVEL`"
    )
    before, after = m["before"].rstrip("\n"), m["after"].rstrip("\n")
    return Case(
        path, text, m["accepts"], m["setting"].strip(), m["promises"], before, after, m["title"]
    )


def _file_text(case: Case, before: str, after: str) -> str:
    setting = f" {case.setting_text}" if case.setting_text else ""
    return (
        f"{case.title}--- before {case.accepts}{setting}\n{before}\n"
        f"--- after {case.promises}\n{after}\n"
    )


# ---------------------------------------------------------------- docstrings
_WIDTH = 100
_BESIDE = re.compile(
    r"^Before \((\w+)\)(.*?)\s{2,}After \((\w+)\)\n((?:(?:  .*)?\n)*?)(?=\n\S|\Z)", re.M
)
_BELOW = re.compile(r"^Before \((\w+)\)(.*)\n((?:    .*\n)+)After \((\w+)\)\n((?:    .*\n)+)", re.M)


def read_docstring(path: Path) -> Case:
    """The block of a pass's module docstring."""
    source = path.read_text("utf-8")
    doc = source[: source.index('"""', 3)]
    m = _BELOW.search(doc)
    if m is not None:
        before, after = (_indented(m[i]) for i in (3, 5))
        return Case(path, m[0], m[1], m[2].strip(" ,"), m[4], before, after)
    m = _BESIDE.search(doc)
    assert m is not None, f"{path}: the docstring has no Before/After block"
    at = m[0].index("After (")
    lines = m[4].rstrip("\n").splitlines()
    before = "\n".join([line[2:at].rstrip() for line in lines]).rstrip("\n")
    after = "\n".join([line[at + 2 :].rstrip() for line in lines]).rstrip("\n")
    return Case(path, m[0], m[1], m[2].strip(" ,"), m[3], before, after)


def _indented(block: str) -> str:
    return "\n".join([line[4:] for line in block.rstrip("\n").splitlines()])


def _docstring_text(case: Case, before: str, after: str) -> str:
    setting = f", {case.setting_text}" if case.setting_text else ""
    head, tail = f"Before ({case.accepts}){setting}", f"After ({case.promises})"
    left, right = before.splitlines(), after.splitlines()
    at = max(len(line) for line in [head, *left]) + 4
    if at + 2 + max(len(line) for line in right) > _WIDTH:
        inner = ["\n".join(["    " + line for line in lines]) for lines in (left, right)]
        return f"{head}\n{inner[0]}\n{tail}\n{inner[1]}\n"
    rows = [head.ljust(at) + tail]
    for i in range(max(len(left), len(right))):
        a = "  " + left[i] if i < len(left) else ""
        b = "  " + right[i] if i < len(right) else ""
        rows.append((a.ljust(at) + b).rstrip())
    return "\n".join(rows) + "\n"


# ---------------------------------------------------------------- running
def run(case: Case, p) -> tuple[str, str]:
    """The texts of both sides, as they are printed."""
    before = parse(case.before)
    return print_graph(before), print_graph(run_pass(p, before, case.setting.context()))


_EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]


def draw_array(rng, dtype, dims, setting: Setting, special: bool):
    """Random contents: any integers, floats around 1 (with `special`: infinities and NaN too)."""
    count = int(np.prod(dims))
    if dtype.is_float:
        out = rng.standard_normal(count) * 4
        if special and count:
            places = rng.integers(0, count, max(1, count // 4))
            out[places] = rng.choice(_EXTREMES, len(places))
            out[0] = np.inf
    elif dtype.kind == "bool":
        out = rng.integers(0, 2, count)
    elif setting.low < setting.high:
        out = rng.integers(setting.low, setting.high, count)
    else:
        low, high = dtype.bounds
        wide = rng.integers(low, high, count, dtype=dtype.numpy, endpoint=True)
        near = rng.choice(np.array([low, high, 0, 1, 2, 7, high - 1], dtype.numpy), count)
        out = np.where(rng.integers(0, 2, count) > 0, wide, near)
    return out.astype(dtype.numpy).reshape(dims)


def draw_inputs(nodes, setting: Setting, seed: int):
    """Variables with values in their bounds, and contents for every PARAM and BUFFER that a kernel
    is called with: a local one is the kernel's own."""
    rng = np.random.default_rng(seed)
    variables = {}
    for u in nodes:
        if u.op is Ops.VARIABLE:
            low, high = u.arg.low, u.arg.high
            drawn = [low, high, int(rng.integers(low, high + 1))][seed % 3]
            variables[u.arg.name] = drawn
    storage = {}
    for u in nodes:
        if u.op is Ops.PARAM or (u.op is Ops.BUFFER and u.arg.space == "global"):
            dims = [_value(d, variables) for d in shapes.with_dims(u.arg.dims, u.src)]
            storage[u] = draw_array(rng, u.dtype, dims, setting, seed % 2 == 1)
    return storage, variables


def _value(d, variables):
    if isinstance(d, int):
        return d
    constant, terms = affine.form(d)
    return constant + sum(k * variables[m.arg.name] for m, k in terms.items())


def interpret_graph(graph, level, storage, variables):
    """The results of a graph: its values, then the contents of storage that it wrote in place."""
    storage = {u: a.copy() for u, a in storage.items()}
    if level == "tensor":
        given = {u.arg.name: a for u, a in storage.items() if u.op is Ops.PARAM}
        values = interpreter.evaluate(graph, given, variables)
        params = sorted((u.arg.name, a) for u, a in storage.items() if u.op is Ops.PARAM)
        return [*values, *[a for _, a in params]]
    if level == "indexed":
        made = interpreter.run_indexed(graph, storage, variables)
        values = [made[before_effects(v)] for v in graph.src if v.dtype is not dtypes.void]
        params = sorted((u.arg.name, made[u]) for u in storage if u.op is Ops.PARAM)
        return [*values, *[a for _, a in params]]
    slots = sorted((u for u in storage if u.op is Ops.PARAM), key=lambda u: u.arg.slot)
    buffers = [storage[u] for u in slots]
    interpreter.run_kernel(graph, buffers, variables)
    return buffers


def interpret_program(graph, storage, variables):
    """The contents of all storage after the calls of a program."""
    storage = {u: a.copy() for u, a in storage.items()}
    interpreter.run_program(graph, storage, variables)
    return storage


def same(a, b, reassociates: bool, ulps: int) -> bool:
    """True if two arrays hold the same numbers; NaN is NaN, and -0.0 is not 0.0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    if reassociates or ulps:
        step = float(ml_dtypes.finfo(a.dtype).eps) * (64 if reassociates else ulps)
        return bool(np.allclose(x, y, step, step if reassociates else 0.0, equal_nan=True))
    return bool(np.array_equal(x, y, equal_nan=True)) and bool(
        np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))
    )


def run_indexed(graph, storage, variables):
    """The contents of all storage after an indexed SINK."""
    return interpreter.run_indexed(graph, {u: a.copy() for u, a in storage.items()}, variables)


# ---------------------------------------------------------------- several devices
def interpret_parts(graph, sharding, whole, storage, variables):
    """The values of the graph of one device on the parts of whole arguments, put together."""
    given = {u.arg.name: a.copy() for u, a in storage.items() if u.op is Ops.PARAM}
    values = meshes.run(graph, sharding, given, [w.shape for w in whole], variables)
    return [*values, *[given[n] for n in sorted(given)]]


def interpret_devices(graph, setting, seed):
    """The values of a graph with exchanges on devices with arguments of their own, and these."""
    nodes = [u for u in graph.toposort() if u.op is Ops.PARAM and u.arg.name]
    mesh, inputs, found = setting.made_mesh(), [], []
    if graph.op is Ops.LINEAR:
        nodes = sorted({u for c in graph.src for u in c.src[1:]}, key=lambda u: str((u.op, u.arg)))
        drawn = [draw_inputs(nodes, setting, 2 * (10 * seed + r)) for r in range(mesh.size)]
        made = lockstep.run_program(graph, mesh, [storage for storage, _ in drawn], drawn[0][1])
        return [own[u] for own in made for u in nodes]
    for rank in range(mesh.size):
        storage, variables = draw_inputs(nodes, setting, 2 * (10 * seed + rank))
        inputs.append({u.arg.name: a for u, a in storage.items() if u.op is Ops.PARAM})
    variables = {k: v for k, v in variables.items() if not k.startswith("at_")}
    for own in lockstep.evaluate(graph, mesh, inputs, variables):
        found += own
    return [*found, *[a for own in inputs for a in own.values()]]
