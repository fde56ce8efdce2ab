"""`--bless` writes what the tests find into goldens, docstrings and tables instead of failing.

`--rule-use` names at the end the rules of simplify that no test needed: slower, since rules are
tried one by one. Without tests/test_rules.py it says which rules no program needed.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="rewrite goldens and generated tables")
    parser.addoption("--rule-use", action="store_true", help="name the rules that never matched")


def pytest_configure(config):
    os.environ["UOPC_CACHE_DIR"] = ""  # no test writes to the user's cache, or is made fast by it
    if config.getoption("--bless") and os.environ.get("CI", "").lower() in ("1", "true"):
        raise pytest.UsageError("--bless is refused on CI: bless on your machine and read the diff")


def pytest_sessionstart(session):
    if session.config.getoption("--rule-use"):
        session.config.pluginmanager.register(RuleUse(), "rule-use")


class RuleUse:
    """Which rules matched, over the tests of this process and of its workers (pytest-xdist)."""

    def __init__(self):
        self.matched: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        from uopc.ir.rewrite import statistics as match_statistics

        match_statistics.collect(True)  # a test before this one may have ended it
        try:
            return (yield)
        finally:
            self.matched |= {r.rule.name for r in match_statistics.statistics() if r.matches}

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["matched"] = sorted(self.matched)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.matched |= set(getattr(node, "workeroutput", {}).get("matched", ()))

    def pytest_terminal_summary(self, terminalreporter):
        from uopc.ir.symbolic import simplify as symbolic

        names = [r.name for r in symbolic.RULES.rules]
        never = [n for n in names if n not in self.matched]
        terminalreporter.write_sep("=", f"{len(never)} of {len(names)} rules never matched")
        for name in never:
            terminalreporter.write_line(name)


class Blessed:
    """Compares text that is generated with the text that is stored."""

    def __init__(self, config):
        self.on = config.getoption("--bless")

    def check(self, path: Path, stored: str, made: str) -> None:
        """Fail with a diff where `made` is not what the file has; with --bless, write it there.

        `stored` is a part of the file (or all of it) and is what gets replaced.
        """
        if stored == made:
            return
        if self.on:
            text = path.read_text()
            assert text.count(stored) == 1, f"{path}: the text to replace is not there once"
            path.write_text(text.replace(stored, made))
            return
        diff = difflib.unified_diff(
            stored.splitlines(), made.splitlines(), "stored", "made", lineterm=""
        )
        module = os.environ["PYTEST_CURRENT_TEST"].split("::")[0]
        pytest.fail(
            "\n".join(
                [f"{path} is not what is made now:", *diff, "",
                 "If the new text is right, read the diff and run:",
                 f"  python -m pytest {module} --bless"]
            ),
            pytrace=False,
        )  # fmt: skip


@pytest.fixture
def blessed(request):
    return Blessed(request.config)
