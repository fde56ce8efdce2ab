"""python -m tests.onnx_nodes [PATTERN] [--bless]: ONNX's node tests, and how each comes out."""

from __future__ import annotations

import argparse
import collections
import re
import sys

from tests.onnx_nodes.cases import EXCLUDED, cases, excluded, run

# Reasons to exclude tests, by their names; others by their results.
REASONS = (
    ("attention.*(bf16|fp16)", "one unit of 16 bits: the results here are nearer to float64"),
    ("dft_inverse", "the values are 0, and those of the test are its own noise of float32"),
    ("regex", "a matcher of regular expressions that surely ends: Python's may not"),
    ("bernoulli|dropout", "random numbers of another generator"),
    ("image_decoder", "files of images are no tensors"),
)


def _reason(name: str, outcome: str) -> str:
    for pattern, reason in REASONS:
        if re.search(pattern, name):
            return reason
    return outcome.split("\n")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--bless", action="store_true", help="write excluded.txt")
    args = parser.parse_args()
    found = {
        name: run(case) for name, case in cases().items() if re.search(args.pattern, name)
    }  # fmt: skip
    known, failed = excluded() if EXCLUDED.exists() else {}, 0
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name, outcome in found.items():
        if outcome != "passed":
            groups[_reason(name, outcome)].append(name)
        unexpected = (outcome == "passed") == (name in known)
        failed += unexpected
        if unexpected or args.pattern:
            print(f"{name}: {outcome}")
    if args.bless:
        lines = [f"# {reason}\n" + "\n".join(names) for reason, names in sorted(groups.items())]
        EXCLUDED.write_text("\n\n".join(lines) + "\n", "utf-8")
    passed = sum([o == "passed" for o in found.values()])
    print(f"{passed} of {len(found)} pass; {failed} come out otherwise than excluded.txt says")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
