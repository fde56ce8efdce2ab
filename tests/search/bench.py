"""A bench without a clock, for tests of searches."""

from __future__ import annotations

from uopc.ir.core.args import Opt
from uopc.search import beam
from uopc.search.beam import Match, Start

OWN = (Opt("VECTOR", 0, 8),)


class Bench:
    """A bench whose times are a function of the list. `failing` have no code, `wrong` ones compute
    something else, `slow` has none that ends in time."""

    def __init__(self, seconds, start=OWN, failing=(), wrong=(), slow=()):
        self.seconds, self.first = seconds, start
        self.failing, self.wrong, self.slow = failing, wrong, slow
        self.matches, self.finals, self.made = [], [], []

    def start(self):
        return Start(self.first, self.seconds(self.first), str(self.first))

    def compiled(self, lists):
        self.made += lists
        return [None if opts in self.failing else str(opts) for opts in lists]

    def match(self, opts, samples):
        (self.finals if samples == beam.FINAL_SAMPLES else self.matches).append(opts)
        if opts in self.slow:
            return None
        return Match([self.seconds(opts)] * samples, [self.seconds(self.first)] * samples)

    def agrees(self, opts):
        return opts not in self.wrong
