"""The page of a model, made once a file."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import zlib

import pytest

from tests import ROOT

MODEL = """import uopc
x = uopc.param("x", (64, 400))
w = uopc.param("w", (400, 96))
b = uopc.param("b", (96,))

hidden = (x @ w + b).maximum(0.0)
centred = hidden - hidden.mean(axis=1, keepdims=True)
graph = (centred * 2.0).softmax()
"""


def page_data(text):
    """The data of a page."""
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text)
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The page of a model, and its data. Two threads of a named CPU, so that Opts are known."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "model.py").write_text(MODEL, "utf-8")
    environment = {"UOPC_THREADS": "2", "UOPC_TARGET_CPU": "x86-64-v3", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "uopc", "dump", "model.py", "--html", "page.html"]
    subprocess.run(
        command, cwd=folder, env=os.environ | environment, check=True, capture_output=True
    )
    text = (folder / "page.html").read_text("utf-8")
    return folder / "page.html", text, page_data(text)


@pytest.fixture(scope="module")
def data(model):
    return model[2]
