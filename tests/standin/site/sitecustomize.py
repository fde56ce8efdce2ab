"""Puts the stand-in under every Python that has this folder on its path: see `rehearse`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.standin import library

library.built = library.load(Path(os.environ["UOPC_STANDIN_LIBRARY"]))
