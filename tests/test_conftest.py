"""The tests that run with each option of conftest.py, and the last lines of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


class Item:
    """A case of a test, with the markers of its function and its own."""

    def __init__(self, name: str, case: int, *markers: Any) -> None:
        self.nodeid, self.obj = f"test_it.py::{name}[{case}]", SimpleNamespace()
        self.function, self.markers = name, {m.name: m for m in markers}

    def get_closest_marker(self, name: str) -> Any:
        return self.markers.get(name)


SLOW, FEW, OTHERS = pytest.mark.slow.mark, pytest.mark.few(3).mark, pytest.mark.others(6).mark
SUITE = [
    *[Item("plain", i) for i in range(5)], *[Item("few", i, FEW) for i in range(9)],
    *[Item("partly_slow", i, FEW, *[SLOW] * (i > 6)) for i in range(9)],
    *[Item("other", i, FEW, OTHERS) for i in range(8)], Item("slow", 0, SLOW),
]  # fmt: skip


def run(
    *flags: str, skipped: tuple[str, ...] = (), machine: str = "laptop"
) -> dict[str, list[int]]:
    """The cases that run, by test."""
    options = {"--all": "--all" in flags, "--rest": "--rest" in flags, "--machine": machine}
    config = SimpleNamespace(
        getoption=options.__getitem__, option=SimpleNamespace(markexpr=""), args=["tests"],
        cache=SimpleNamespace(get=lambda name, default: [*skipped]),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )  # fmt: skip
    items, found = [*SUITE], {}
    conftest.pytest_collection_modifyitems(config, items)
    for item in items:
        found.setdefault(item.function, []).append(int(item.nodeid.split("[")[1][:-1]))
    return found


def test_few_cases_of_a_test_are_spread_and_the_rest_are_the_others() -> None:
    default, rest, everything = run(), run("--rest"), run("--all")
    assert default == {"plain": [0, 1, 2, 3, 4], "few": [0, 4, 8], "partly_slow": [0, 3, 6],
                       "other": [0, 3, 7]}  # fmt: skip
    assert rest["slow"] == [0] and rest["partly_slow"] == [1, 2, 4, 5, 7, 8]
    for name, cases in everything.items():
        assert sorted(default.get(name, []) + rest.get(name, [])) == cases


def test_what_was_skipped_runs_with_the_rest() -> None:
    assert run("--rest", skipped=("test_it.py::plain[3]",))["plain"] == [3]
    assert run("--rest", skipped=("test_it.py",))["few"] == [*range(9)]  # it was not imported


def test_other_machines_take_two_cases_or_as_many_as_are_marked() -> None:
    found = run(machine="others")
    assert found == {"plain": [0, 4], "few": [0, 8], "partly_slow": [0, 6],
                     "other": [0, 1, 2, 4, 5, 7]}  # fmt: skip


def test_the_reasons_of_skipped_tests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "MOST_REASONS", 2)
    reasons = ["no JAX", "no JAX", "no torch", "no torch", "no torch", "no qemu"]
    reports = [
        SimpleNamespace(nodeid=f"t[{i}]", longrepr=("t.py", 1, f"Skipped: {reason}"))
        for i, reason in enumerate(reasons)
    ]
    lines: list[str] = []
    skipped = {"skipped": [*reports, reports[0]]}  # two processes collect a file
    conftest.pytest_terminal_summary(SimpleNamespace(stats=skipped, write_line=lines.append))
    assert lines == ["3 skipped: no torch", "2 skipped: no JAX",
                     "1 skipped for other reasons: -rs lists all"]  # fmt: skip
