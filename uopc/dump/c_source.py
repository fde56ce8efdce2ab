"""Linear kernels as C11, with vectors of gcc and clang, beside their LLVM IR and assembly.

A kernel is a function of its arrays, its variables, the memory for its tiles and the number of the
part to run; parameters that it does not use are left out. Its bits are those of the machine code.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.backends.c.kernel import CKernel
from uopc.backends.c.names import comment, identifier
from uopc.backends.c.prelude import Prelude
from uopc.backends.c.texts import HEAD
from uopc.dump.storage_names import StorageNames
from uopc.errors import Unsupported
from uopc.ir.core import storage
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text.source_lines import source_lines
from uopc.passes.pass_manager import Lowered

_INCLUDES = "#include <stddef.h>\n#include <stdint.h>"


class CSource:
    """The kernels of a run in C."""

    def __init__(self, run: Lowered) -> None:
        self.run, self.names = run, StorageNames(run)

    def kernel(self, kernel: UOp) -> str:
        """A file with one kernel. Unsupported if the kernel cannot be written in C."""
        prelude = Prelude()
        return self._file(prelude, [self._function(kernel, prelude, set())])

    def listing(self, kernels: Sequence[UOp]) -> str:
        """A file with several kernels. A kernel that cannot be written in C becomes a line that
        says so and does not compile."""
        prelude, taken = Prelude(), set[str]()
        functions = []
        for k in kernels:
            try:
                functions.append(self._function(k, prelude, taken))
            except Unsupported as error:
                why = str(error).replace("\\", "/").replace('"', "'")
                functions.append(f'#error "{why}"')
        return self._file(prelude, functions)

    def _file(self, prelude: Prelude, functions: Sequence[str]) -> str:
        machine = self.run.context.target
        head = comment(f"Made by uopc for {machine.name}, in C11 for gcc and clang.")
        parts = [head, f"{_INCLUDES}\n{HEAD}", prelude.text(), *functions]
        return "\n\n".join([p for p in parts if p]) + "\n"

    def _function(self, kernel: UOp, prelude: Prelude, taken: set[str]) -> str:
        """The function of a kernel, under a name that is not in `taken`; add it to `taken`."""
        if self.run.context.target.gpu is not None:
            raise Unsupported(f"{kernel.arg.name}: c: a kernel of a GPU has no C code")
        name = identifier(kernel.arg.name, taken, of_function=True)
        places = storage.word_places(kernel)
        own = {name, "scratch", "chunk"}
        slots = self.names.slots(kernel)
        names = {
            u: identifier(self._like(u, slots), own) for u in sorted(places, key=places.__getitem__)
        }
        made = CKernel(name, kernel, prelude, names, self.names.are_apart(kernel))
        try:
            text = made.run(linkage="")
        except Unsupported as error:
            raise Unsupported(f"{kernel.arg.name}: {error}") from None
        lines = ", ".join(source_lines(self.run.located(kernel))) or "no line of the user's"
        return f"{comment(f'{kernel.arg.name}: {lines}')}\n{text}"

    @staticmethod
    def _like(u: UOp, slots: dict[int, str]) -> str:
        """The user's name for an argument if known."""
        if u.op is Ops.VARIABLE:
            return str(u.arg.name)
        return f"c{u.arg.slot}" if u.op is Ops.NUMBER else slots.get(u.arg.slot, f"p{u.arg.slot}")
