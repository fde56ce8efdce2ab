"""python -m tests.standin: the runtime's tests on the real pycuda and a libcuda.so.1 of our own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.standin import library


def main() -> int:
    reason = library.reason_not()
    if reason:
        print(f"cannot run here: {reason}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        library.built = library.build(Path(folder))
        tests = Path(__file__).resolve().parent.parent / "test_cuda_runtime.py"
        chosen = ["-k", "not on_a_stand_in_library and not no_pycuda"]
        return int(pytest.main(["-v", "-p", "no:cacheprovider", str(tests), *chosen]))


if __name__ == "__main__":
    sys.exit(main())
