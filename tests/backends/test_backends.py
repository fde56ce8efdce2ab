"""A backend is a folder, a module with a BACKEND, and a row of `backend.BACKENDS`."""

from __future__ import annotations

import pickle
import re
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

import uopc
from uopc import cache
from uopc.backends import detect
from uopc.cli.main import main
from uopc.errors import Unsupported
from uopc.ir.interpret import interpreter
from uopc.program import backend
from uopc.program.artifact import Artifact
from uopc.program.backend import Backend
from uopc.program.compiled_kernel import Afterwards, Code, pack
from uopc.program.program import Program

DATA = np.arange(12, dtype=np.float32).reshape(3, 4)


class Listing(Artifact):
    """The code of a kernel is a text, packed."""

    def check(self):
        self.packed_code()


class Runner:
    """Runs a graph in the interpreter."""

    def __init__(self, request):
        self.request = request

    def call(self, positional, named):
        names = [p.arg.name for p in self.request.params]
        return interpreter.evaluate(self.request.graph, dict(zip(names, positional)) | named)[0]


def render(lowered, kernels):
    return {k.arg.name: f"; {k.arg.name} of {len(k.src)} statements" for k in kernels}


def assemble(modules, machine, cpu):
    return {name: text.upper() for name, text in modules.items()}


def compiled(lowered, symbols):
    sources = {k: f"; {symbols[k]} of {len(k.src)} statements" for k in lowered.kernels}
    return Code(sources, {k: pack(text) for k, text in sources.items()}, {"render": 0, "llvm": 0})


def load(request, found, arrays):
    program = object.__new__(Program)
    program._runner = runner(request, found, found.plan_for(request, arrays))
    return program


def runner(request, found, plan):
    return Runner(request)


def bind(program, values):
    raise Unsupported("bind: a program that is interpreted")


@pytest.fixture
def listing(monkeypatch, tmp_path):
    """A device of this name, in a cache of the test's own."""
    module = ModuleType("uopc.program.listing")

    def target(device, cpu):
        return replace(detect.host(cpu), device=device)

    module.BACKEND = Backend(
        target, render, assemble, Listing, lambda request: Afterwards(compiled), load, runner, bind
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = (re.compile(r"listing(:\d+)?").fullmatch, "listing", module.__name__)
    monkeypatch.setattr(backend, "BACKENDS", (*backend.BACKENDS, row))
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield
    cache.clear()


def made():
    program = uopc.compile((uopc.param("x", (3, 4)) * 2 + 1).sum(axis=1), device="listing")
    np.testing.assert_array_equal(program(DATA), (DATA * 2 + 1).sum(axis=1))
    return program


def test_a_program_is_compiled_and_found_again(listing):
    program = made()
    where = [program.stats["cache"], made().stats["cache"]]
    cache.clear()
    assert [*where, made().stats["cache"]] == ["", "memory", "disk"]
    (kernel,) = program.kernels
    assert kernel.source.startswith("; r_3_4 of") and kernel.asm == kernel.source.upper()
    again = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(again(x=DATA), program(DATA))


def test_the_command_line_knows_it(listing, tmp_path, capsys):
    text = "import uopc\ngraph = uopc.param('x', (3, 4)).sum(axis=1)\n"
    (tmp_path / "a.py").write_text(text, "utf-8")
    assert main(["dump", str(tmp_path / "a.py"), "--device", "listing", "--at", "asm"]) == 0
    assert capsys.readouterr().out.startswith("; R_3_4 OF ")


def test_a_device_without_a_backend_is_answered_with_those_there_are(listing):
    with pytest.raises(uopc.UserError, match=r"unknown device 'tpu'; choose cpu.* listing$"):
        uopc.compile(uopc.param("x", (3,)) + 1, device="tpu")
