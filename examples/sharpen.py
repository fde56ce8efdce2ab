"""Sharpen scikit-learn's sample photograph: a blur and an unsharp mask in one fused kernel.

    python examples/sharpen.py [FOLDER]

Bytes in, bytes out, integer arithmetic between, so that the result is equal to scipy.ndimage's to
the bit. The photograph before and after goes to FOLDER (default: sharpen_out) as PNG.

    blur  = (Σ weight · pixel + 128) >> 8        5 × 5 binomial weights, which add up to 256
    sharp = pixel + 2 (pixel - blur)             cut off at 0 and 255

The two outermost rows and columns, where the window does not fit, stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import uopc

HEIGHT, WIDTH, COLOURS = 427, 640, 3
WEIGHTS = (1, 4, 6, 4, 1)
REACH = len(WEIGHTS) // 2
AMOUNT = 2


def graph() -> uopc.UOp:
    """The sharpened image u8[427, 640·3] of x: a row is the pixels' colours side by side."""
    rows, columns = HEIGHT, WIDTH * COLOURS
    border = ((REACH, REACH), (REACH * COLOURS, REACH * COLOURS))
    x = uopc.param("x", (rows, columns), uopc.dtypes.uint8)
    padded = x.pad(border)
    total = uopc.constant(128, uopc.dtypes.int32)
    for dy, weight_y in enumerate(WEIGHTS):
        for dx, weight_x in enumerate(WEIGHTS):
            left = dx * COLOURS
            neighbour = padded[dy : dy + rows, left : left + columns].cast(uopc.dtypes.int32)
            total = total + neighbour * (weight_y * weight_x)
    blur = total >> 8
    pixel = x.cast(uopc.dtypes.int32)
    sharp = (pixel + AMOUNT * (pixel - blur)).clip(0, 255).cast(uopc.dtypes.uint8)
    inner = (rows - 2 * REACH, columns - 2 * REACH * COLOURS)
    inside = uopc.ones(inner, uopc.dtypes.bool).pad(border)
    return uopc.where(inside, sharp, x)


def reference(image: np.ndarray) -> np.ndarray:
    """The same by scipy.ndimage, which does the blur one axis after the other."""
    from scipy.ndimage import correlate1d

    pixel = image.astype(np.int32)
    once = correlate1d(pixel, WEIGHTS, axis=0, mode="constant")
    blur = (correlate1d(once, WEIGHTS, axis=1, mode="constant") + 128) >> 8
    sharp = np.clip(pixel + AMOUNT * (pixel - blur), 0, 255).astype(np.uint8)
    out = image.copy()
    inside = (slice(REACH, -REACH), slice(REACH, -REACH))
    out[inside] = sharp[inside]
    return out


def photograph() -> np.ndarray:
    """scikit-learn's picture of a temple, u8[427, 640, 3]."""
    from sklearn.datasets import load_sample_image

    return np.array(load_sample_image("china.jpg"))


def job(seed: int) -> tuple[uopc.UOp, tuple[np.ndarray, ...], Callable[[], np.ndarray]]:
    """The graph, its arguments, and the same by SciPy."""
    image = photograph()
    return graph(), (image.reshape(HEIGHT, -1),), lambda: reference(image)


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both agree."""
    from PIL import Image
    from timing import line, side_by_side, verdict

    folder = Path(arguments[0] if arguments else "sharpen_out")
    folder.mkdir(parents=True, exist_ok=True)
    image = photograph()
    rows = image.reshape(HEIGHT, -1)
    program = uopc.compile(graph(), name="sharpen")
    sharp = program(rows).reshape(image.shape)
    different = int((sharp != reference(image)).sum())
    for name, picture in (("before", image), ("after", sharp)):
        Image.fromarray(picture).save(folder / f"{name}.png")
    print(f"{image.size} bytes, {different} of them different; kernels: {len(program.kernels)}")
    print(f"wrote {folder / 'before.png'} and {folder / 'after.png'}")
    ours, theirs = side_by_side(lambda: program(rows), lambda: reference(image))
    print(line(ours, "scipy.ndimage", theirs))
    return verdict("sharpen", different == 0 and len(program.kernels) == 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
