"""Random programs of views, aliases and writes; NumPy runs the same program and is the oracle.

    python -m tests.fuzz.views --seed 1 --first 200     prints the programs that differ
"""

import argparse
import sys

import numpy as np

import uopc

VIEWS = (
    "{v}[1:]", "{v}[:-1]", "{v}[::2]", "{v}[::-1]", "{v}.T", "{v}.reshape(-1)", "{v}.copy()",
    "{v}[None]", "{v}[0]", "np.flip({v})", "{v}", "{v} * 2", "{v}.ravel()", "np.zeros_like({v})",
)  # fmt: skip
WRITES = (
    "{v}[...] = {v} + {n}", "{v}[0] = {n}", "{v} += {n}", "{v}[1:] *= 2", "{v}[{v} > {n}] = 1",
    "{v}[{v} > {n}] += 1", "{v}[:-1] = {v}[1:]", "{v} -= {v}[0]", "{v}[...] = {w}.sum()",
    "{v}[-1] = {w}.max()", "np.negative({v}, out={v})", "{v}.sort()", "{v}[::-1] = {v}",
)  # fmt: skip


def program(rng):
    """The lines of a function of two arrays, in NumPy."""
    lines, names = [], ["x", "y"]
    for k in range(int(rng.integers(4, 9))):
        v, w = (str(rng.choice(names)) for _ in range(2))
        number = str(rng.integers(-2, 3))
        if rng.random() < 0.45:
            names.append(f"v{k}")
            lines.append(f"v{k} = {str(rng.choice(VIEWS)).format(v=v)}")
        else:
            lines.append(str(rng.choice(WRITES)).format(v=v, w=w, n=number))
    results = ", ".join([f"{n} + 0" for n in names])
    return "\n    ".join(["def f(x, y):", *lines, f"return {results}"])


def differs(text, rng):
    """What is not as in NumPy, or an empty text."""
    names = {"np": np}
    exec(text, names)
    x, y = (rng.integers(-3, 4, (3, 4)).astype(float) for _ in range(2))
    mine = x.copy(), y.copy()
    try:
        want = names["f"](x, y)
    except (IndexError, ValueError, TypeError, AttributeError):
        return ""  # no program of NumPy
    got = uopc.jit(names["f"])(*mine)
    for k, (g, w) in enumerate(zip((*got, *mine), (*want, x, y))):
        if not np.array_equal(g, w):
            return f"value {k}: {np.asarray(g).tolist()}, NumPy {np.asarray(w).tolist()}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=50)
    args = parser.parse_args()
    wrong = 0
    for n in range(args.first):
        rng = np.random.default_rng((args.seed, n))
        text = program(rng)
        try:
            found = differs(text, rng)
        except uopc.Error as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            print(f"seed {args.seed}, program {n}\n{text}\n{found}\n")
            wrong += 1
    print(f"{args.first - wrong} of {args.first} programs as in NumPy")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
