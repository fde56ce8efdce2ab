"""Applications of ONNX Runtime, with its own module or with this one under its name.

    python -m tests.onnx.applications NAME onnxruntime|uopc

prints the answers of an application as JSON. Pages and sounds are made here; models are those in
the packages.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def page(lines: list[str], size: tuple[int, int] = (480, 160), height: int = 28) -> Any:
    """An image of printed lines."""
    from PIL import Image, ImageDraw, ImageFont

    made = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(made), ImageFont.load_default(height)
    for i, line in enumerate(lines):
        pen.text((20, 12 + i * (height + 22)), line, "black", font=font)
    return made


def as_png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def hum(seconds: int) -> np.ndarray:
    """Tones of a voice that sets in and stops, with some noise."""
    at = np.arange(16000 * seconds) / 16000
    bent = 2 * np.pi * at * (1 + 0.02 * np.sin(6 * at))
    tones = sum(np.sin(f * bent) / f for f in (120, 240, 700))
    noise = np.random.default_rng(0).standard_normal(len(at))
    return (25 * tones * (np.sin(4.4 * at) > 0) + 0.003 * noise).astype(np.float32)


def rapidocr() -> Any:
    """The lines of two pages, and how sure each is."""
    from rapidocr_onnxruntime import RapidOCR

    read = RapidOCR()
    pages = page(["Hello world", "sizes as they come"]), page(["12345"], (640, 96), 32)
    return [[(text, float(sure)) for _, text, sure in read(np.asarray(p))[0]] for p in pages]


def silero() -> Any:
    """How much of each piece of a sound is a voice, at both rates."""
    import torch
    from silero_vad import load_silero_vad

    heard, sound = load_silero_vad(onnx=True), torch.tensor(hum(2))
    made = [[float(heard(part, 16000)) for part in sound[: 40 * 512].split(512)]]
    heard.reset_states()
    return [*made, [float(heard(part, 8000)) for part in sound[: 20 * 256].split(256)]]


def openwakeword() -> Any:
    """The scores of all words for each piece of a sound."""
    from openwakeword.model import Model

    heard, sound = Model(), (hum(2) * 20000).astype(np.int16)
    made = [heard.predict(sound[i : i + 1280]) for i in range(0, len(sound), 1280)]
    return [{name: float(score) for name, score in scores.items()} for scores in made]


def magika() -> Any:
    """The types of contents, and how sure each is."""
    from magika import Magika

    contents = (
        b"import os\nprint(os.getcwd())\n" * 5, b"#include <stdio.h>\nint main() {}\n" * 5,
        b"SELECT * FROM t WHERE a = 3;\n" * 8, b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
    )  # fmt: skip
    found = [Magika().identify_bytes(c) for c in contents]
    return [(r.output.label, float(r.score)) for r in found]


def ddddocr() -> Any:
    """The words of images by the model of floats and by that of bytes, and the places of words."""
    from ddddocr import DdddOcr

    images = [as_png(page([word], (140, 60), 30)) for word in ("k7Tp", "2w9x")]
    new, old = DdddOcr(show_ad=False), DdddOcr(show_ad=False, old=True)
    found = DdddOcr(det=True, ocr=False, show_ad=False)
    return [
        [f(image) for image in images]
        for f in (new.classification, old.classification, found.detection)
    ]


APPLICATIONS: dict[str, Callable[[], Any]] = {
    "rapidocr_onnxruntime": rapidocr, "silero_vad": silero, "openwakeword": openwakeword,
    "magika": magika, "ddddocr": ddddocr,
}  # fmt: skip

if __name__ == "__main__":
    _, name, runtime = sys.argv
    if runtime == "uopc":
        import uopc.onnx

        sys.modules["onnxruntime"] = uopc.onnx
    print(json.dumps(APPLICATIONS[name]()))
