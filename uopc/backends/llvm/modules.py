"""Functions in LLVM IR, given one by one, to object files: a thread compiles some while others are
written.

    add a, b, c │ add d, e, …   →   module a b c: LLVM in a thread, beside what makes d
                                    module d e: LLVM at the end, by whoever waits for it

One module for all would cost a millisecond less for each cut, but LLVM would begin when everything
is written, and its memory would grow with the program.
"""

from __future__ import annotations

import time

from uopc.backends.llvm import jit
from uopc.backends.llvm.emitter import module
from uopc.ir.core.arena import NativeThread

Function = tuple[str, list[str]]  # the text, and the declarations that it needs

# Characters of LLVM IR in a module: a tenth of a second of LLVM (docs/lab/llvm_effort.md).
ENOUGH = 200_000


class _Module:
    """Some functions, and their object file once `run` has ended. Errors are raised by `done`."""

    def __init__(self, cpu: str | None) -> None:
        self.cpu = cpu
        self.functions: list[Function] = []
        self.names: list[str] = []
        self.seconds = 0.0
        self._size = 0
        self._thread: NativeThread | None = None
        self._made: bytes | BaseException = b""

    def add(self, name: str, function: Function) -> None:
        self.names.append(name)
        self.functions.append(function)
        self._size += len(function[0])

    @property
    def is_full(self) -> bool:
        return self._size >= ENOUGH

    def start(self) -> None:
        self._thread = NativeThread(target=self.run, name="uopc-llvm")
        self._thread.start()

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
        if self._thread is not None:
            self._thread.join()
        if isinstance(self._made, BaseException):
            raise self._made
        return self._made


class Modules:
    """The functions of a program. `cpu`: of a machine by name, or None for this one."""

    def __init__(self, cpu: str | None = None) -> None:
        self.cpu = cpu
        self._modules: list[_Module] = []

    def add(self, name: str, function: Function) -> None:
        """The next function. A module that is full is compiled from now on."""
        if not self._modules or self._modules[-1].is_full:
            if self._modules:
                self._modules[-1].start()
            self._modules.append(_Module(self.cpu))
        self._modules[-1].add(name, function)

    def finish(self) -> tuple[dict[str, bytes], float]:
        """The object file of each function by its name, and the CPU seconds that LLVM took."""
        for last in self._modules[-1:]:
            last.run()
        code = {name: m.done() for m in self._modules for name in m.names}
        return code, sum([m.seconds for m in self._modules])
