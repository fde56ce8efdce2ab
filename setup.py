"""Build steps beyond pyproject.toml.

A wheel that is built with NumPy and llvmlite at hand (`pip wheel --no-build-isolation .`) contains
the runtime's machine code for the building Python and processor architecture, so that no process
has to compile it; and is tagged for both. Without them the wheel is for every Python.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HAS_LLVM = all(importlib.util.find_spec(name) for name in ("numpy", "llvmlite", "ml_dtypes"))


class BuildWithRuntime(build_py):
    """Copy the package; then compile the runtime with the copy, into the copy."""

    def run(self) -> None:
        super().run()
        if HAS_LLVM and not self.editable_mode:
            sys.path.insert(0, str(Path(self.build_lib).resolve()))
            from uopc.backends.cpu import native

            native.ship()


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return HAS_LLVM


setup(cmdclass={"build_py": BuildWithRuntime}, distclass=PlatformDistribution)
