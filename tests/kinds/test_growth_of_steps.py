"""Programs of many small steps: each step more costs what the one before did.

A step reads elements of the one before on several paths: parts of a CAT, a selection by position,
an update. The number of nodes that a compile makes grows with the steps, not with the paths.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import uopc
from tests import ROOT
from tests.effort import births
from uopc.passes.optimize.schedule import loop_order

sys.path.append(str(ROOT / "benchmarks"))
from corners import factors

# ---------------------------------------------------------------- chains of steps
X, ROWS, places = uopc.param("x", (24,)), uopc.param("x", (8, 6)), uopc.arange(24)
SHUFFLED = uopc.constant(np.array([(7 * i + 3) % 24 for i in range(24)]))


def at(k, n):
    """A place that differs from step to step."""
    return (5 * k + 3) % n


def selected(x, k):
    return uopc.where(places < at(k, 24), x * 2.0 + k, x)


def selected_rows(x, k):
    axis, n = (0, 8) if k % 2 else (1, 6)
    place = uopc.arange(n).reshape((n, 1) if axis == 0 else (1, n))
    return uopc.where(place < at(k, n), x * 2.0 + k, x)


def halves(x, k):
    return uopc.cat(x[:10] + x[10:20], x[10:] * 0.5)


def set_parts(x, k):
    first = at(k, 12)
    return x.at[first : first + 12].set(x[first : first + 12] * 2.0)


STEPS = {
    "selections": (X, selected),
    "selections of rows and columns": (ROWS, selected_rows),
    "selections in a band": (
        X, lambda x, k: uopc.where((places >= at(k, 12)) & (places < 12 + at(k, 12)), x * x, x - 1),
    ),
    "selections of a diagonal": (
        ROWS, lambda x, k: uopc.where(
            uopc.arange(8).reshape(8, 1) + uopc.arange(6) < at(k, 13), x * 2.0 + k, x),
    ),
    "halves that overlap": (X, halves),
    "parts of other lengths": (
        X, lambda x, k: uopc.cat(x[: 1 + at(k, 22)] * 2.0, x[1 + at(k, 22) :] + x[0]),
    ),
    "columns that overlap": (
        ROWS, lambda x, k: uopc.cat(x[:, :2] + x[:, 2:4], x[:, 2:] * 0.5, axis=1),
    ),
    "rolls": (X, lambda x, k: uopc.cat(x[at(k, 23) + 1 :], x[: at(k, 23) + 1]) * 0.5 + 1.0),
    "flips of halves": (X, lambda x, k: uopc.cat(x[:12].flip(0), x[12:] + x[:12])),
    "elements set": (X, lambda x, k: x.at[at(k, 24)].set(x[at(k, 24)] * 2.0 + x[at(k + 1, 24)])),
    "elements added to": (X, lambda x, k: x.at[at(k, 24)].add(x[at(k + 2, 24)])),
    "parts set": (X, set_parts),
    "parts set, then selections": (X, lambda x, k: (selected if k % 2 else set_parts)(x, k)),
    "gathers, then parts set": (
        X, lambda x, k: x[SHUFFLED] * 0.5 if k % 2 else x.at[:12].set(x[12:] + x[:12]),
    ),
}  # fmt: skip


def made_by(graph):
    """The number of nodes that a compile makes."""
    with uopc.options(cache_dir="", programs=0), births() as made:
        uopc.compile(graph, verify=False, threads=1)
    return len(made)


def steps(name, n):
    x, step = STEPS[name]
    for k in range(n):
        x = step(x, k)
    return x


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.few(3)
def test_a_step_more_makes_no_more_nodes_than_the_one_before(name):
    """Each step made them anew for each path to an element: twice as many for each step more."""
    fewest = made_by(steps(name, 8))
    assert made_by(steps(name, 16)) <= 3 * fewest


@pytest.mark.parametrize("step", [
    lambda x, last: x * 2.0 + last, lambda x, last: x * last, lambda x, last: x.maximum(last),
    lambda x, last: uopc.where(x > 0.5, last * 2.0, last + x),
])  # fmt: skip
def test_a_running_value_more_makes_no_more_nodes(step):
    """Up to 16 stacked values are selections by their place, each with the one before in it."""

    def running(n):
        x = uopc.param("x", (n,))
        values = [x[0]]
        for k in range(1, n):
            values.append(step(x[k], values[-1]))
        return uopc.stack(*values)

    assert made_by(running(10)) <= 3 * made_by(running(8))


def test_a_second_derivative_of_a_product_of_more_makes_few_nodes():
    """All second derivatives of the exponential of a product: selections by two places."""

    def second(n):
        x = uopc.param("x", (n,))
        product = x[0]
        for i in range(1, n):
            product = product * x[i]
        gradient = uopc.grad(product.exp() + (x * x).sum(), x)
        return uopc.stack(*[uopc.grad(gradient[i], x) for i in range(n)])

    assert made_by(second(6)) <= 4 * made_by(second(3))


def test_factors_by_updates_make_few_nodes():
    assert made_by(factors(6)) <= 4 * made_by(factors(4))


def test_conditions_are_asked_without_making_nodes(monkeypatch):
    """Which iterations a condition holds in is known from what all conditions share: none of them
    is made again for each iteration."""
    counts, copies_taken = [], loop_order.copies_taken

    def counted(*of):
        with births() as made:
            found = copies_taken(*of)
        counts.append(len(made))
        return found

    monkeypatch.setattr(loop_order, "copies_taken", counted)
    with uopc.options(cache_dir="", programs=0):
        uopc.compile(uopc.cat(uopc.param("x", (3,)).sin(), uopc.param("y", (4,)) * 2.0), threads=1)
    assert counts and max(counts) == 0
