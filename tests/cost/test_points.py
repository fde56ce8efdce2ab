"""The cost against measured times of 3,050 lists of Opts of 261 kernels."""

from __future__ import annotations

import pytest

from tests.cost.points import XEON, points, scores
from uopc.cost.accuracy import Score
from uopc.cost.cycles import cycles
from uopc.cost.machine import machine_of

LEAST_PAIRS, MOST_REGRET = 0.95, 1.07


def found(step):
    machine = machine_of(XEON)
    return scores(points(step), lambda outline: cycles(outline, machine))


def check(score, least=LEAST_PAIRS, most=MOST_REGRET):
    assert score.share >= least and score.regret <= most, f"{score.share:.3f} {score.regret:.3f}"


@pytest.mark.slow
def test_lists_that_differ_are_in_order():
    """Fails where a change of the cost, the outline or an Opt makes choices worse."""
    assert sum(p.refused for p in points()) == 0, "lists that cannot be applied any more"
    made = found(1)
    check(made["all"])
    for family, least, most in (
        ("product", 0.95, 1.07), ("convolution", 0.95, 1.07), ("reduction", 0.95, 1.07),
        ("rows", 0.95, 1.09), ("movement", 0.93, 1.10), ("elementwise", 0.92, 1.05),
        ("stencil", 0.92, 1.10), ("sum of products", 0.95, 1.07),
    ):  # fmt: skip
        check(made[family], least, most)


def test_lists_of_some_kernels_are_in_order():
    """The same of every 32nd kernel, in a second or two."""
    check(found(32)["all"], 0.94, 1.08)


def test_a_score_counts_pairs_that_differ_and_the_loss_of_the_first():
    score = Score()
    score.add([10.0, 11.0, 20.0], [3.0, 2.0, 5.0])
    assert (score.pairs, score.share, score.regrets) == (2, 1.0, [1.1])
    score.add([10.0, 20.0], [5.0, 5.0])
    assert (score.pairs, score.ordered) == (3, 2.5)
    assert score.regret == pytest.approx(1.1**0.5) and score.ratio == pytest.approx(0.25)
