"""`--bless` writes what the tests find into goldens, docstrings and tables instead of failing."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="rewrite goldens and generated tables")


def pytest_configure(config):
    os.environ["UOPC_CACHE_DIR"] = ""  # no test writes to the user's cache, or is made fast by it
    if config.getoption("--bless") and os.environ.get("CI", "").lower() in ("1", "true"):
        raise pytest.UsageError("--bless is refused on CI: bless on your machine and read the diff")


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
