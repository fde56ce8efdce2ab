"""The kinds of random cases, in one table: a new kind is a module with `run`, and a row here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module

Seen = Counter[tuple[str, str, str]]  # (level, op, dtype)


@dataclass
class Verdict:
    """The result of a case: nothing wrong, refused for a stated reason, or failures.

    `report`: the graph and the arguments of a case that failed, as text.
    """

    failures: list[str] = field(default_factory=list)
    refused: str = ""
    seen: Seen = field(default_factory=Counter)
    report: str = ""


@dataclass(frozen=True)
class Kind:
    """`module` has `run(seed, number) -> Verdict`, which gives the same whenever it is asked."""

    module: str
    meaning: str
    suite: int  # cases in the default test run


KINDS = {
    "graphs": Kind(
        "tests.fuzz.check", "every op on every dtype, compiled in several ways and interpreted", 0
    ),
    "special": Kind(
        "tests.fuzz.special", "special values of each op and dtype, and of each cast", 8
    ),
    "simplify": Kind(
        "tests.fuzz.algebra", "scalar graphs simplified: equal at all points, and only once", 12
    ),
    "assigns": Kind(
        "tests.fuzz.assigns", "assignments to parts of arrays in turn, apart and nested, by values",
        24,
    ),
    "symbolic": Kind(
        "tests.fuzz.symbolic", "symbolic sizes in several bindings, also bad ones, guard pages", 12
    ),
    "functions": Kind(
        "tests.fuzz.functions", "nested functions, precompiled and not, by values", 12
    ),
    "derivatives": Kind(
        "tests.fuzz.derivatives", "functions differentiated in every mode, against differences", 3
    ),
    "loops": Kind(
        "tests.fuzz.loops", "loops and branches of mixed carries differentiated in every mode", 2
    ),
    "kernels": Kind(
        "tests.fuzz.kernels", "kernels written by hand, against a simulation step by step", 12
    ),
    "lists": Kind(
        "tests.fuzz.lists", "lists of Opts that begin with the schedule's, refused or right", 6
    ),
    "onnx": Kind(
        "tests.fuzz.onnx_models", "models with named sizes, against ONNX's evaluator in NumPy", 12
    ),
    "exports": Kind(
        "tests.fuzz.exports", "graphs exported as C and libraries, bit by bit, many at a time", 4
    ),
    "numpy": Kind(
        "tests.fuzz.numpy_programs", "NumPy programs through jit, against NumPy", 12
    ),
    "texts": Kind(
        "tests.fuzz.texts", "changed texts and raw nodes of every stage, refused or right", 0
    ),
}  # fmt: skip


def run(module: str, seed: int, number: int) -> Verdict:
    """Run case `number` of a seed of the kind with this module."""
    verdict: Verdict = import_module(module).run(seed, number)
    return verdict
