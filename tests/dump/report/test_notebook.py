"""The display of programs and values in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import uopc
from uopc.dump.report.notebook import MOST_KERNELS


class Balanced(HTMLParser):
    """Fails on a tag that is not closed; collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(program: uopc.Program) -> str:
    parser = Balanced()
    parser.feed(program._repr_html_())
    assert not parser.open
    return parser.text


@pytest.mark.parametrize("options", ({}, {"optimize": False}, {"device": "cuda:sm_80"}))
def test_loop_nests(options: dict[str, object]) -> None:
    x, w = uopc.param("x", (64, 128)), uopc.param("w", (128, 32))
    program = uopc.compile((x @ w).softmax(1), **options)
    for _ in range(2):
        text = text_of(program)
        assert text.startswith("<uopc.Program (x: f32(64, 128), w: f32(128, 32))")
        assert "for i in" in text
        assert "# reduce" in text
        # A GPU reads slices of the factors in shared memory.
        factor = "tile1[" if "device" in options else "w["
        assert f"] * {factor}" in text
        for kernel in program.kernels:
            assert kernel.name in text
        program = uopc.compile((x @ w).softmax(1), **options)
        assert program.stats["cache"] == "memory"


def test_a_program_without_kernels() -> None:
    assert text_of(uopc.compile(uopc.param("x", (0,)))).endswith("0 kernels>")


def test_most_kernels_and_lines() -> None:
    x = uopc.param("x", (100,))
    program = uopc.compile([(x[: 5 + i] * 2.0).contiguous() for i in range(20)])
    assert len(program.kernels) == 20
    assert f"and {20 - MOST_KERNELS} more kernels" in text_of(program)
    many = uopc.compile([(x[: 5 + i] * 2.0).contiguous() for i in range(70)])
    assert text_of(many).endswith("70 kernels>: see program.report(file)")
    long = x
    for _ in range(90):
        long = long.sin() * long + x
    text = text_of(uopc.compile(long))
    assert "more lines" in text
    assert len(text) < 20_000
