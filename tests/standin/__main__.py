"""python -m tests.standin [--rehearse [CORPUS]]: the real pycuda on a libcuda.so.1 of our own.

Runs the runtime's tests. With --rehearse: benchmarks/gpu_check.sh, at tiny sizes, in this Python's
environment, as on a machine with a device.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.standin import library

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.standin", description=__doc__)
    parser.add_argument("--rehearse", nargs="?", const="", metavar="CORPUS")
    args = parser.parse_args()
    reason = library.reason_not()
    if reason:
        print(f"cannot run here: {reason}")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = library.build(folder)
        if args.rehearse is not None:
            return rehearse(made, folder / "report", args.rehearse)
        library.built = library.load(made)
        tests = ROOT / "tests" / "backends" / "cuda" / "test_cuda_runtime.py"
        chosen = ["-k", "not on_a_stand_in_library and not no_pycuda"]
        return int(pytest.main(["-v", "-p", "no:cacheprovider", str(tests), *chosen]))


def rehearse(made: Path, report: Path, corpus: str) -> int:
    """The script for a machine with a device: 0 where each step is done that can be done here."""
    report.mkdir()
    (report / "venv").symlink_to(sys.prefix)
    path = [str(Path(__file__).parent / "site"), str(ROOT), *filter(None, sys.path)]
    environment = os.environ | {
        "UOPC_STANDIN_LIBRARY": str(made), "PYTHONPATH": os.pathsep.join(path), "SMALL": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -k 'not ten_microseconds and not recorded'",
    }  # fmt: skip
    script = [str(ROOT / "benchmarks" / "gpu_check.sh"), corpus, str(report)]
    run = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    print(run.stdout, run.stderr, sep="")
    bad = [s for s in run.stdout.rsplit("\n\n", 1)[-1].splitlines() if ": well, " not in s]
    for line in bad:
        name = line.partition(":")[0]
        lines = (report / f"{name}.txt").read_text("utf-8").splitlines()
        print(f"---- {name}", *lines[-20:], sep="\n")
    return int(any(not line.startswith("nvidia-smi:") for line in bad))


if __name__ == "__main__":
    sys.exit(main())
