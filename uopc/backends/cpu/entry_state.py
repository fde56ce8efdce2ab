"""The state of a program: the words that the native entry reads for its calls."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from uopc.backends.cpu import structs
from uopc.backends.cpu.layout import data_address, scalar_class
from uopc.backends.cpu.runner import Runner
from uopc.backends.cpu.size_code import Size, SizeCode, fixed
from uopc.backends.cpu.structs import UNKNOWN
from uopc.backends.plan import Argument, Plan, ResultArray

_C_CONTIGUOUS, _ALIGNED = 0x1, 0x100
# Python's numbers that the entry converts, by the dtype of the argument.
_NUMBERS = {
    "float64": structs.NUMBERS["wide_float"], "float32": structs.NUMBERS["narrow_float"],
    "int64": structs.NUMBERS["wide_int"], "int32": structs.NUMBERS["narrow_int"],
}  # fmt: skip


class EntryState:
    """The words that the entry reads, and the objects that it needs.

    They are tuples, arrays and methods, which stay whole while the garbage collector takes a cycle
    apart; none refers to the program.
    """

    def __init__(self, runner: Runner) -> None:
        plan = runner.plan
        self._owned: list[object] = []
        self._sizes = SizeCode(plan.variables)
        state = self._call(runner) | self._arrays(plan) | self._variables(plan)
        for c in plan.conditions:
            self._sizes.require_relation(c.relation, c.left, c.right)
        words = np.array([state.get(name, 0) for name in structs.STATE.fields], np.int64)
        self.address = self._keep(words)
        if plan.variables:
            if fixed(plan.arena_bytes) is None:
                at = self.address + structs.STATE.offset("arena_bytes")
                self._sizes.place(plan.arena_bytes, at)
            for name, word in self._size_code().items():
                words[structs.STATE.offset(name) // 8] = word
        self.owned = (*self._owned, plan.constants, runner.image.memory, runner.arena.words)

    def _keep(self, array: npt.NDArray[np.int64]) -> int:
        self._owned.append(array)
        return data_address(array)

    def _words(self, words: Sequence[Size]) -> int:
        """The address of words; those that depend on variables are written before each call."""
        array = np.array([fixed(w) or 0 for w in words] or [0], np.int64)
        address = self._keep(array)
        for i, word in enumerate(words):
            if fixed(word) is None:
                self._sizes.place(word, address + 8 * i)
        return address

    def _call(self, runner: Runner) -> dict[str, int]:
        """The launches of a call, and the memory that it needs."""
        plan, arena = runner.plan, runner.arena
        bases = [0] * (plan.arena_base + 1) + runner.fixed_bases()
        needs_flag = bool(plan.variables) or plan.arena_bytes != 0
        return {
            "nogil": int(plan.nogil),
            "bases": len(bases),
            "room": len(bases) + 5 * plan.arena_base,
            "table": self._words(runner.call_words()),
            "base_template": self._words(bases),
            "flag": arena.words_address if needs_flag else 0,
            "arena": arena.words_address,
            "arena_bytes": fixed(plan.arena_bytes) or 0,
        }

    def _arrays(self, plan: Plan) -> dict[str, int]:
        """The arguments and results."""
        outer: list[Argument | ResultArray] = [*plan.arguments, *plan.fresh]
        records = [word for shaped in outer for word in self._record(shaped)]
        fresh = itertools.count(len(plan.arguments))
        sources = [next(fresh) if r.source is None else r.source for r in plan.results]
        # Names in calls are interned, so that one object stands for each.
        names = tuple([sys.intern(argument.name) for argument in plan.arguments])
        written_arguments = [i for i, arg in enumerate(plan.arguments) if arg.writable]
        self._owned += [names, plan.keys, *[shaped.dtype for shaped in outer]]
        return {
            "arguments": len(plan.arguments),
            "takes_out": int(len(plan.fresh) == len(plan.results) and plan.structure != "dict"),
            "arrays": len(outer),
            "results": len(plan.results),
            "structure": structs.STRUCTURES[plan.structure],
            "records": self._words(records),
            "sources": self._words(sources),
            # With out= the outputs, which follow the arguments, are written as well.
            "written": self._words([*written_arguments, *range(len(names), plan.arena_base)]),
            "written_count": len(written_arguments),
            "argument_names": self._words([id(name) for name in names]),
            "keys": self._words([id(key) for key in plan.keys]),
        }

    def _record(self, shaped: Argument | ResultArray) -> list[Size]:
        written = isinstance(shaped, ResultArray) or shaped.writable
        number = not written and not shaped.shape
        size = shaped.dtype.itemsize
        record: dict[str, Size] = {
            "dtype": id(shaped.dtype),
            "type_number": shaped.dtype.num,
            "ndim": len(shaped.shape),
            "flags": _C_CONTIGUOUS | _ALIGNED | (structs.WRITEABLE if written else 0),
            "nbytes": (*shaped.shape, size),
            "itemsize": size,
            "dims": self._words(shaped.shape),
            "scalar": id(scalar_class(shaped.dtype)) if number else 0,
            "number": _NUMBERS.get(shaped.dtype.name, 0) if number else 0,
        }
        assert tuple(record) == tuple(structs.RECORD.fields)
        return list(record.values())

    def _variables(self, plan: Plan) -> dict[str, int]:
        """The variables, and the shapes that give them."""
        names = tuple([sys.intern(v.name) for v in plan.variables])
        self._owned.append(names)
        by_shape: dict[str, tuple[int, int]] = {}
        for number, argument in enumerate(plan.arguments):
            for axis, dim in enumerate(argument.shape):
                if not isinstance(dim, int) and dim.variable is not None:
                    by_shape.setdefault(dim.variable, (number, axis))
        defaults = [
            UNKNOWN if v.default is None or v.name in by_shape else v.default
            for v in plan.variables
        ]  # fmt: skip
        inputs = [w for name, at in by_shape.items() for w in (*at, names.index(name))]
        return {
            "variables": len(names),
            "variable_names": self._words([id(name) for name in names]),
            "inputs": self._words(defaults),
            "defaults": self._words(defaults),
            "dim_inputs": self._words(inputs),
            "dim_inputs_count": len(by_shape),
            "evaluated": self._words([UNKNOWN] * len(names)),
        }

    def _size_code(self) -> dict[str, int]:
        code = self._sizes
        return {
            "registers": self._words(code.registers),
            "instructions": self._words([w for row in code.instructions for w in row]),
            "instructions_count": len(code.instructions),
            "required": self._words(code.required),
            "required_count": len(code.required),
            "patches": self._words([w for row in code.patches for w in row]),
            "patches_count": len(code.patches),
        }
