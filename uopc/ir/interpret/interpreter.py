"""The reference interpreter: runs a graph of any level on NumPy.

The code is meant to be read and trusted, not to be fast. It shares the evaluator of single nodes
with constant folding, and nothing with the passes. `tensor.py` runs tensor graphs, `machine.py` all
graphs with ranges; this file checks the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uopc.errors import InvalidIR, UserError
from uopc.ir.builder.lengths import lengths_of, with_variables
from uopc.ir.builder.primitives import without_primitives
from uopc.ir.core import dtypes, walk
from uopc.ir.core.calls import graph_order, is_length
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.interpret.arguments import Variables, check_array, name_of
from uopc.ir.interpret.machine import StepMachine, run_kernel
from uopc.ir.interpret.tensor import TensorRun

__all__ = ["evaluate", "evaluate_with_effects", "run_indexed", "run_kernel", "run_program"]
_NO_VARIABLES: Mapping[str, int] = {}


def evaluate(
    graph: UOp | Sequence[UOp],
    inputs: Mapping[str, Array],
    variables: Mapping[str, int] = _NO_VARIABLES,
) -> Array | list[Array]:
    """The value of a tensor graph; for a sequence of graphs, a TUPLE or a SINK, a list of values.

    `inputs`: an array per PARAM, by name, of exactly its shape and dtype. Symbolic dimensions take
    their values from the shapes, or from `variables`. Arrays that the graph stores to change in
    place, after all values are computed. UserError if an argument does not fit.
    """
    return evaluate_with_effects(graph, inputs, variables)[0]


def evaluate_with_effects(
    graph: UOp | Sequence[UOp],
    inputs: Mapping[str, Array],
    variables: Mapping[str, int] = _NO_VARIABLES,
) -> tuple[Array | list[Array], dict[UOp, Array]]:
    """`evaluate`, and the last contents of every PARAM and BUFFER that the graph stores to."""
    found = graph.src if isinstance(graph, UOp) and graph.op in (Ops.TUPLE, Ops.SINK) else graph
    graphs = (found,) if isinstance(found, UOp) else found
    if not (isinstance(graph, UOp) and graph.op is Ops.SINK):  # which may begin with lengths
        graphs = [g.src[1] if is_length(g) else g for g in graphs]
    made = Evaluation(graphs, inputs, variables)
    with np.errstate(all="ignore"):
        made.run.run(made.roots)
    outputs, finals = made.finished()
    return (outputs[0] if isinstance(found, UOp) and outputs else outputs), finals


class Evaluation:
    """The run of tensor graphs with their arguments."""

    def __init__(
        self, graphs: Sequence[UOp], inputs: Mapping[str, Array], variables: Mapping[str, int]
    ) -> None:
        # As in a compile, a PRIMITIVE is its value; a loop's body has PARAMs that nobody gives.
        whole = without_primitives(intern(Ops.TUPLE, dtypes.void, tuple(graphs)))
        whole = with_variables(whole)
        self.lengths = len(lengths_of(whole))
        if not {Ops.MSTACK, Ops.MSELECT}.isdisjoint(walk.ops(whole)):
            from uopc.ir.builder.unrolled import unrolled
            from uopc.ir.interpret import exchanges

            whole = unrolled(whole, exchanges.as_values)
        self.roots = whole.src
        self.inputs = inputs
        bound = Variables(variables)
        for u in graph_order(self.roots):
            if u.op is Ops.PARAM:
                bound.solve(u, _argument(u, inputs))
        self.run = TensorRun(lambda u: _argument(u, inputs), bound)

    def finished(self) -> tuple[list[Array], dict[UOp, Array]]:
        """The values after the run, and the contents of storage that it wrote, also in place."""
        run = self.run
        # Copies, as arguments may be stored to.
        asked = self.roots[self.lengths :]
        outputs = [np.array(run.given(u)) for u in asked if u in run.values]
        finals = run.final_contents(self.roots)
        for storage, contents in finals.items():
            if storage.op is Ops.PARAM:
                array = self.inputs[storage.arg.name]
                if not array.flags.writeable:
                    raise UserError(f"{name_of(storage)} is stored to, but its array is read-only")
                array[...] = contents
        return outputs, finals


def _argument(param: UOp, inputs: Mapping[str, Array]) -> Array:
    if param.arg.name not in inputs:
        raise UserError(f"parameter {param.arg.name} got no array")
    array = inputs[param.arg.name]
    array = np.asarray(array) if isinstance(array, np.generic) else array
    check_array(param, array)
    return array


def run_indexed(
    sink: UOp, storage: Mapping[UOp, Array], variables: Mapping[str, int] = _NO_VARIABLES
) -> dict[UOp, Array]:
    """Run a SINK of level indexed in place on the arrays of its PARAMs and BUFFERs.

    A BUFFER without an array receives a new one. Returns the arrays of all storage.
    """
    machine = machine_for(sink, storage, variables)
    machine.run(sink)
    return machine.state.storages


def run_program(
    program: UOp, storage: Mapping[UOp, Array], variables: Mapping[str, int] = _NO_VARIABLES
) -> dict[UOp, Array]:
    """Run a LINEAR of CALLs in order, in place; otherwise as `run_indexed`."""
    machine = machine_for(program, storage, variables)
    with np.errstate(all="ignore"):
        for u in program.src:
            if u.op is not Ops.CALL:
                raise InvalidIR(f"a program is a list of CALLs, got {u.op!r}")
        machine.program(program)
    return machine.state.storages


def machine_for(
    root: UOp, storage: Mapping[UOp, Array], variables: Mapping[str, int]
) -> StepMachine:
    """The machine that runs a graph on the arrays of its storage."""
    bound = Variables(variables)
    for u in graph_order(root.src):
        if u.op.is_storage and u in storage:
            bound.solve(u, storage[u])

    def missing(u: UOp) -> Array:
        raise UserError(f"{name_of(u)} got no array")

    return StepMachine(missing, bound, dict(storage))
