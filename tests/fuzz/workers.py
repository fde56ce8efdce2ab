"""Cases in child processes: a case that crashes, hangs or eats memory is a finding, not the end.

A worker answers one case at a time: a line `module seed number` in, a line of JSON out.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import kinds
from tests.fuzz.kinds import Verdict

MEMORY = 24 << 30  # bytes of address space of a worker
_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 3000  # characters of a dead worker's stderr in a report


class Worker:
    """A child process, started again after a case that ended it."""

    def __init__(self, path: Sequence[str] = ()) -> None:
        known = [str(_ROOT), *path, os.environ.get("PYTHONPATH", "")]
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, known)), "UOPC_CACHE_DIR": "",
        }  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def run(self, module: str, seed: int, number: int, seconds: float) -> Verdict:
        """The verdict on a case, which may take so many seconds."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        print(module, seed, number, file=process.stdin, flush=True)
        if not select.select([process.stdout], [], [], seconds)[0]:
            return Verdict([f"still running after {seconds:g} s"], report=self.close())
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Verdict([f"the process died: {name}"], report=self.close())
        fields = json.loads(line)
        fields["seen"] = Counter({(a, b, c): n for a, b, c, n in fields["seen"]})
        return Verdict(**fields)

    def close(self) -> str:
        """End the process. Returns the last that it wrote to stderr."""
        if self._process is None:
            return ""
        self._process.kill()
        self._process.communicate()
        self._process = None
        with self._errors as errors:
            errors.seek(0)
            return errors.read()[-_SHOWN:].decode("utf-8", "replace")

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.workers"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._environment,
        )  # fmt: skip
        return self._process


def main() -> None:
    """Answer cases until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # no print of a case is an answer
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        module, seed, number = line.split()
        verdict = kinds.run(module, int(seed), int(number))
        fields = vars(verdict) | {"seen": [[*k, n] for k, n in verdict.seen.items()]}
        print(json.dumps(fields), file=answers, flush=True)


if __name__ == "__main__":
    main()
