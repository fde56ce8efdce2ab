"""The bar of a long compile."""

from __future__ import annotations

import io
import subprocess
import sys
import types

import pytest

import uopc
from uopc.dump import progress
from uopc.passes import PIPELINE
from uopc.passes.contract import watch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compiled() -> None:
    x = uopc.param("x", (16, 8))
    with uopc.options(cache_dir="", programs=0):
        uopc.compile((x * 2).softmax(1), name="rows")


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by a test itself: between a fixture and its test pytest puts its own stderr back."""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_a_short_compile_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SECONDS", 1e9)
    compiled()
    assert terminal.getvalue() == ""


def test_a_long_one_shows_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(progress, "_LEAST_PAUSE", 0.0)
    compiled()
    shown = terminal.getvalue()
    for step in ("canonicalize", "linearize", "machine code"):
        assert f"rows: {step}" in shown
    assert watch.get() is None


@pytest.mark.parametrize("off", ("option", "no terminal", "closed", "no console"))
def test_it_is_off(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    if off == "option":
        with uopc.options(progress=False):
            compiled()
        assert terminal.getvalue() == ""
        return
    other = None if off == "no console" else io.StringIO()
    if other is not None and off == "closed":
        other.close()
    monkeypatch.setattr(sys, "stderr", other)
    compiled()
    if other is not None and off == "no terminal":
        assert other.getvalue() == ""


@pytest.mark.parametrize(("shell", "shown"), [
    (types.SimpleNamespace(kernel="one"), True),  # of a notebook
    (types.SimpleNamespace(), False),  # of IPython on a terminal, its output in a file
    (None, False),  # IPython and ipykernel are imported, and run nothing
])  # fmt: skip
def test_a_running_kernel_shows_it(
    shell: object, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert not uopc.config.is_interactive()
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert uopc.config.is_interactive() == shown


KERNEL = """
import io, sys
sys.stderr = io.StringIO()
import ipykernel.kernelapp, uopc
print(uopc.config.is_interactive())
from ipykernel.inprocess.manager import InProcessKernelManager
manager = InProcessKernelManager()
manager.start_kernel()
client = manager.client()
client.start_channels()
client.execute("import sys, uopc; sys.__stdout__.write(str(uopc.config.is_interactive()))")
"""


@pytest.mark.slow
def test_in_a_kernel_of_ipython() -> None:
    pytest.importorskip("ipykernel")
    run = subprocess.run([sys.executable, "-c", KERNEL], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


def test_steps_never_go_back() -> None:
    told: list[tuple[str, float]] = []
    token = watch.set(lambda step, share: told.append((step, share)))
    try:
        compiled()
    finally:
        watch.reset(token)
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] < 1
    assert {p.name for _, p in PIPELINE} < {step for step, _ in told}


def test_an_error_takes_the_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SECONDS", 0.0)

    def fails(u: uopc.UOp) -> None:
        raise KeyError(u)

    with pytest.raises(KeyError), uopc.options(programs=0):
        uopc.compile(uopc.param("x", (4,)) + 1, rules={"linearize": fails})
    assert watch.get() is None
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back
