"""Functions in LLVM IR, given one by one, to object files: a thread compiles some while others are
written.

    add a │ add b, c, d │ add e   →   module a: LLVM in a thread, beside what makes b
                                      module b c d: by the thread, if it is through with a
                                      module e: LLVM at the end, by whoever waits for it

One module for all would cost a millisecond less for each cut, but LLVM would begin when everything
is written, and its memory would grow with the program. The first module is short, so that LLVM
begins with the first kernels.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from uopc.backends.llvm import jit
from uopc.backends.llvm.emitter import module
from uopc.ir.core.arena import NativeThread

Function = tuple[str, list[str]]  # the text, and the declarations that it needs

# Characters of LLVM IR in the first module and in later ones, each of which has twice as many as
# the one before: a hundredth and a 25th of a second of LLVM (docs/lab/llvm_effort.md).
FIRST, ENOUGH = 20_000, 80_000


class _Module:
    """Some functions of at least `size` characters, and their object file once `run` has ended.
    Errors are raised by `done`."""

    def __init__(self, cpu: str | None, size: int) -> None:
        self.cpu = cpu
        self.functions: list[Function] = []
        self.names: list[str] = []
        self.seconds = 0.0
        self._missing = size
        self._made: bytes | BaseException = b""

    def add(self, name: str, function: Function) -> None:
        self.names.append(name)
        self.functions.append(function)
        self._missing -= len(function[0])

    @property
    def is_full(self) -> bool:
        return self._missing <= 0

    def run(self) -> None:
        begin = time.thread_time()  # threads wait for each other in llvmlite
        try:
            self._made = jit.compile_object(module(self.functions), self.cpu)
        except BaseException as error:
            self._made = error
        self.seconds = time.thread_time() - begin
        self.functions.clear()

    def done(self) -> bytes:
        """The object file; InvalidIR if LLVM refuses the text."""
        if isinstance(self._made, BaseException):
            raise self._made
        return self._made


class Modules:
    """The functions of a program. `cpu`: of a machine by name, or None for this one."""

    def __init__(self, cpu: str | None = None) -> None:
        self.cpu = cpu
        self._modules: list[_Module] = []
        self._waiting: deque[_Module] = deque()  # that nobody has taken
        self._lock = threading.Lock()  # of the two below
        self._thread: NativeThread | None = None  # that takes what waits

    def add(self, name: str, function: Function) -> None:
        """The next function. A module that is full is compiled from now on."""
        if not self._modules or self._modules[-1].is_full:
            size = min(ENOUGH, FIRST << len(self._modules))
            self._modules.append(_Module(self.cpu, size))
        last = self._modules[-1]
        last.add(name, function)
        if last.is_full:
            self._begin(last)

    def _begin(self, module: _Module) -> None:
        with self._lock:
            self._waiting.append(module)
            if self._thread is None:
                self._thread = NativeThread(target=self._work, name="uopc-llvm")
                self._thread.start()

    def _work(self) -> None:
        """Compile what waits, one module after the other."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                module = self._waiting.popleft()
            module.run()

    def finish(self) -> tuple[dict[str, bytes], float]:
        """The object file of each function by its name, and the CPU seconds that LLVM took. The
        caller compiles what nobody has taken."""
        with self._lock:
            self._waiting += [m for m in self._modules[-1:] if not m.is_full]
            thread = self._thread
        self._work()
        if thread is not None:
            thread.join()
        code = {name: m.done() for m in self._modules for name in m.names}
        return code, sum([m.seconds for m in self._modules])
