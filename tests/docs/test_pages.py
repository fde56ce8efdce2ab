"""Every snippet of the README and of docs/ runs and prints what the page shows."""

from __future__ import annotations

import platform
import re

import pytest

from tests import ROOT, pages
from tests.pages import PAGES
from uopc.passes import PIPELINE

x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="code for x86-64")
LAB = sorted((ROOT / "docs" / "lab").rglob("*.md"))
RUNNABLE = [
    p
    for p in PAGES
    if p != pages.EXTENDING and any(b.language in pages.RUN for b in pages.blocks(p))
]


@x86
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.stem)
@pytest.mark.few(4)
def test_every_snippet_runs(page, tmp_path, monkeypatch, blessed):
    if page.stem == "casadi":
        pytest.importorskip("casadi")
    monkeypatch.chdir(tmp_path)
    wrong = pages.run(page, tmp_path)
    for block, shown, printed in wrong:
        where = f"{page.name}:{block.line}"
        assert block.language == "console", f"{where}\n{printed}"
        blessed.check(page, shown, printed)


@pytest.mark.parametrize("page", [*PAGES, *LAB], ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_masked_output_agrees_and_a_wrong_one_does_not():
    assert pages.agrees("1 kernel, 2.31 ms\n...\nend", "1  kernel, 0.4 ms\na\nb\nend\n")
    assert not pages.agrees("1 kernel", "2 kernels")


def test_a_wrong_page_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 2\n```\n```pycon\n>>> x + 1\n4\n```\n", "utf-8")
    (wrong,) = pages.run(page, tmp_path)
    assert "Expected:\n    4\nGot:\n    3" in wrong[2]
    page.write_text("```python\n1 / 0\n```\n", "utf-8")
    with pytest.raises(ZeroDivisionError):
        pages.run(page, tmp_path)


def test_the_list_of_weaknesses_keeps_its_form():
    """A contents list, then sections of entries: a weakness in bold, and when it is removed."""
    text = (ROOT / "docs" / "lab" / "todo.md").read_text("utf-8")
    top, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    titles = [section.partition("\n")[0] for section in sections]
    links = [(t, re.sub(r"[^\w ]", "", t).lower().replace(" ", "-")) for t in titles]
    assert re.findall(r"^- \[(.*)\]\(#(.*)\)$", top, re.MULTILINE) == links
    for title, section in zip(titles, sections, strict=True):
        blank, *entries = re.split(r"^- ", section.removeprefix(title), flags=re.MULTILINE)
        assert not blank.strip() and entries, title
        for entry in entries:
            form = r"\*\*.*?\*\*.*\n  \*Removed when:\* .*\.\n+"
            assert re.fullmatch(form, entry, re.DOTALL), entry
            assert entry.count("*Removed when:*") == 1 and len(entry) < 1400, entry


def test_decisions_keep_their_form():
    """Entries that bind, by room, of at most five lines; whatever code or pages cite is there."""
    text = (ROOT / "DECISIONS.md").read_text("utf-8")
    assert len(text.encode()) <= 60_000
    _, *rooms = re.split(r"^## ", text, flags=re.MULTILINE)
    found: list[int] = []
    for room in rooms:
        title, *entries = re.split(r"^- ", room, flags=re.MULTILINE)
        first = []
        for entry in entries:
            m = re.match(r"\*\*(\d+(?:, \d+)*)\. .+?\*\*", entry, re.DOTALL)
            assert m and entry.strip().count("\n") < 5, f"{title.strip()}: {entry}"
            first.append(int(m[1].split(",")[0]))
            found += [int(n) for n in m[1].split(",")]
            found += [int(n) for n in re.findall(r"\b(\d+): ", entry)]
        assert first == sorted(first), f"{title.strip()}: in the order of their numbers"
    assert len(found) == len(set(found))
    history = (ROOT / "docs" / "lab" / "history" / "decisions.md").read_text("utf-8")
    known = set(found) | {int(n) for n in re.findall(r"^## (\d+)\. ", history, re.MULTILINE)}
    sources = [*(ROOT / "uopc").rglob("*.py"), *PAGES, *LAB]
    for path in sources:
        for n in re.findall(r"DECISIONS(?:\.md,)? (\d+)", path.read_text("utf-8")):
            assert int(n) in known, f"{path.name} cites decision {n}"


def test_files_that_the_architecture_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", text))
    assert len(named) > 50
    missing = [n for n in sorted(named) if not any((ROOT / f / n).exists() for f in ("uopc", "."))]
    assert missing == []


def test_the_architecture_has_every_pass_in_order():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) ([\w-]+) \|", text, re.MULTILINE)
    assert rows == [(str(number), p.name) for number, p in PIPELINE]
