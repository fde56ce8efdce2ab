"""Options of the suite; the machine that each test speaks of.

A test runs for the machine that its marker names, `@pytest.mark.machine("server")`, else for the
one that `--machine` names: see machines.py.

`--bless` writes what the tests find into goldens, docstrings and tables instead of failing.

`--rule-use` names at the end the rules of simplify that no test needed: slower, since rules are
tried one by one. Without tests/ir/symbolic/test_rules.py it says which rules no program needed.
"""

from __future__ import annotations

import collections
import difflib
import gc
import locale
import os
from pathlib import Path

_SETTINGS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES", "XDG_CACHE_HOME",
             "OMP_NUM_THREADS")  # fmt: skip
for _name in [n for n in os.environ if n.startswith("UOPC_") or n in _SETTINGS]:
    del os.environ[_name]  # before uopc looks
# Files and output of other processes are UTF-8 here, in workers and in processes of tests, whatever
# the locale is.
os.environ["PYTHONUTF8"] = "1"
if locale.getpreferredencoding(False).lower() != "utf-8":
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
_PATHS = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))  # other processes import this uopc
os.environ["UOPC_CACHE_DIR"] = ""  # no test writes to the user's cache, or is made fast by it

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import engine

from tests import machines
from uopc.errors import UserError
from uopc.program.cached import key

# The same examples everywhere; `--hypothesis-profile=random` draws others each time.
settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")
FEWEST_EXAMPLES, SHARE_OF_EXAMPLES = 5, 8  # without --all: one of so many, but as many at least
CASES_OF_OTHERS = 2  # of a test that is not marked `others`: all ran for the default machine
MOST_REASONS = 25  # why tests were skipped, at the end of a run
SKIPPED = "uopc/skipped"  # where the cache of pytest has the names of skipped tests
engine.MAX_SHRINKING_SECONDS = 10  # five minutes by itself, and no setting for it


key.installation()  # with the cache off, so that no test finds it among its own entries


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="rewrite goldens and generated tables")
    parser.addoption("--rule-use", action="store_true", help="name the rules that never matched")
    parser.addoption("--all", action="store_true", help="slow tests too, and every example")
    parser.addoption("--rest", action="store_true",
                     help="what --all adds to the last run without it, and what that run skipped")
    parser.addoption(
        "--machine", choices=[*machines.MACHINES, machines.THIS, machines.OTHERS],
        default=machines.DEFAULT,
        help=f"the machine of the tests that name none; {machines.OTHERS}: one for each test",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With `-n`, a file stays in one process as far as can be: what its tests share (programs,
    servers, libraries) is made once."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_configure(config):
    if config.getoption("--bless") and os.environ.get("CI", "").lower() in ("1", "true"):
        raise pytest.UsageError("--bless is refused on CI: bless on your machine and read the diff")


def _marked_few(item):
    marker = item.get_closest_marker("few")
    return marker.args[0] if marker and not item.get_closest_marker("slow") else None


def _of_others(item):
    marker = item.get_closest_marker("others")
    return marker.args[0] if marker else CASES_OF_OTHERS


def _beyond(items, most):
    """Of the cases of each test, all but `most(item)` that are spread evenly; None: no limit."""
    cases = {}
    for item in items:
        if most(item) is not None:
            cases.setdefault(item.function, []).append(item)
    left_out = set()
    for of_one in cases.values():
        n = most(of_one[0])
        kept = {i * (len(of_one) - 1) // max(n - 1, 1) for i in range(n)}
        left_out |= {item for i, item in enumerate(of_one) if i not in kept}
    return left_out


_skipped = []  # tests, and files that could not be imported


def pytest_runtest_logreport(report):
    if report.skipped:
        _skipped.append(report.nodeid)


pytest_collectreport = pytest_runtest_logreport


def pytest_sessionfinish(session):
    """The process that speaks to the user writes what `--rest` reads."""
    config = session.config
    if hasattr(config, "workerinput") or config.getoption("--rest"):
        return
    if config.pluginmanager.has_plugin("cacheprovider"):
        config.cache.set(SKIPPED, sorted({*_skipped}))


def _beyond_default(items):
    """The tests that run with `--all` only."""
    return _slow(items) | _beyond(items, _marked_few)


def _slow(items):
    return {item for item in items if item.get_closest_marker("slow")}


def _deselect(config, items, left_out):
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_modifyitems(config, items):
    """Without `--all`: no slow tests but those asked for, and an eighth of the drawn examples. With
    `--rest`: the slow tests, those that draw examples, with all of them, and those that the last
    run skipped, whose tools may be installed by now."""
    if config.getoption("--all"):
        return
    drawn = [item for item in items if hasattr(item.obj, "hypothesis")]
    if config.getoption("--rest"):
        skipped = {*config.cache.get(SKIPPED, [])}
        again = {i for i in items if not skipped.isdisjoint((i.nodeid, i.nodeid.split("::")[0]))}
        _deselect(config, items, {*items} - _beyond_default(items) - {*drawn} - again)
        return
    for test in {item.obj for item in drawn}:
        whole = test._hypothesis_internal_use_settings
        few = max(FEWEST_EXAMPLES, whole.max_examples // SHARE_OF_EXAMPLES)
        test._hypothesis_internal_use_settings = settings(whole, max_examples=few)
    if not config.option.markexpr and not any("::" in argument for argument in config.args):
        if config.getoption("--machine") == machines.OTHERS:
            _deselect(config, items, _slow(items))
            _deselect(config, items, _beyond(items, _of_others))
        else:
            _deselect(config, items, _beyond_default(items))


def pytest_collection_finish():
    """Leave modules and the list of tests, some million objects, out of garbage collections."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config):
    name = config.getoption("--machine")
    with machines.described(machines.of_test(name)) as target:
        return f"machine: {name}, runs code for {target.cpu}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    marker = item.get_closest_marker("machine")
    name = marker.args[0] if marker else item.config.getoption("--machine")
    with machines.described(machines.of_test(name, item.nodeid)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    with machines.described(machines.of_test(session.config.getoption("--machine"))):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """A test of code for another processor is skipped where it does not run."""
    try:
        return (yield)
    except UserError as error:
        if "does not run on this machine" in str(error):
            pytest.skip(str(error))
        raise


def pytest_terminal_summary(terminalreporter):
    """Print each reason for skipped tests, such as a missing tool, and their number."""
    reports = terminalreporter.stats.get("skipped", ())
    reasons = {r.nodeid: r.longrepr[2].removeprefix("Skipped: ") for r in reports}
    counts = collections.Counter(reasons.values()).most_common()
    for reason, count in counts[:MOST_REASONS]:
        terminalreporter.write_line(f"{count} skipped: {reason}")
    if rest := sum([count for _, count in counts[MOST_REASONS:]]):
        terminalreporter.write_line(f"{rest} skipped for other reasons: -rs lists all")


def pytest_sessionstart(session):
    if session.config.getoption("--rule-use"):
        session.config.pluginmanager.register(RuleUse(), "rule-use")


class RuleUse:
    """The rules that matched in the tests of this process and of its workers (pytest-xdist)."""

    def __init__(self):
        self.matched: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        from uopc.ir.rewrite import statistics

        statistics.collect(True)  # a test before this one may have ended it
        try:
            return (yield)
        finally:
            self.matched |= {r.rule.name for r in statistics.statistics() if r.matches}

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["matched"] = sorted(self.matched)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.matched |= set(getattr(node, "workeroutput", {}).get("matched", ()))

    def pytest_terminal_summary(self, terminalreporter):
        from uopc.ir.symbolic import simplify

        names = [r.name for r in simplify.RULES.rules]
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
            text = path.read_text("utf-8")
            assert text.count(stored) == 1, f"{path}: the text to replace is not there once"
            path.write_text(text.replace(stored, made), "utf-8")
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
