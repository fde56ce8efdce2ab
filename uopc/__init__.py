"""A tensor compiler: build a graph of UOps, `compile` it, call the Program with NumPy arrays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import uopc.tensor.methods
from uopc import errors
from uopc.backends import thread_limit
from uopc.config import at_import, options
from uopc.errors import Error, InvalidIR, Unsupported, UserError
from uopc.ir import Ops, UOp
from uopc.ir.builder.leaves import iota
from uopc.ir.builder.movement import cat, stack
from uopc.ir.builder.operands import constant, variable
from uopc.ir.core import dtypes
from uopc.ir.core.args import AxisType, Opt
from uopc.ir.core.args import KernelArg as KernelInfo
from uopc.ir.core.ops import GroupOp
from uopc.tensor.creation import arange, buffer, eye, full, kernel_param, ones, param, zeros
from uopc.tensor.elementwise import where
from uopc.tensor.functions import function
from uopc.tensor.indexing import in_range

if TYPE_CHECKING:
    from uopc import cache, distributed
    from uopc.backends.exchange.sharded_array import NamedSharding, ShardedArray
    from uopc.distributed import make_array_from_callback
    from uopc.driver import compile, load_schedule, save_schedule
    from uopc.exporting.export import export
    from uopc.exporting.load import load_exported
    from uopc.ir import PatternMatcher, UPat, graph_rewrite
    from uopc.ir.builder.pytrees import register_pytree
    from uopc.ir.devices.mesh import Mesh, PartitionSpec, make_mesh
    from uopc.ir.devices.mesh import PartitionSpec as P
    from uopc.ir.rewrite.engine import BottomUpGate
    from uopc.ir.text.printer import parse, print_graph
    from uopc.numpy import random
    from uopc.program.graph.sharding import Sharding
    from uopc.program.program import Program
    from uopc.sparse.sparsity import Sparse, Sparsity
    from uopc.tracing.branches import cond, switch
    from uopc.tracing.collectives import (
        all_gather,
        all_to_all,
        axis_index,
        axis_size,
        pmax,
        pmean,
        pmin,
        ppermute,
        psum,
        psum_scatter,
    )
    from uopc.tracing.custom_rules import checkpoint, custom_jvp, custom_vjp
    from uopc.tracing.files.mapped import file
    from uopc.tracing.files.safetensors import load_safetensors, save_safetensors
    from uopc.tracing.files.stream import stream
    from uopc.tracing.jit import jit
    from uopc.tracing.loops import fold, fori_loop, map, scan, while_loop
    from uopc.tracing.nlp import nlp
    from uopc.tracing.shard_map import shard_map
    from uopc.tracing.transforms import (
        grad,
        hessian,
        hvp,
        jacfwd,
        jacobian,
        jacrev,
        jvp,
        linearize,
        sparsity,
        stop_gradient,
        value_and_grad,
        vjp,
        vmap,
    )

__version__ = "0.1.0"
__all__ = [
    "AxisType", "BottomUpGate", "Error", "GroupOp", "InvalidIR", "KernelInfo", "Mesh",
    "NamedSharding", "Ops", "Opt", "P", "PartitionSpec", "PatternMatcher", "Program",
    "ShardedArray", "Sharding", "Sparse", "Sparsity", "UOp", "UPat", "Unsupported", "UserError",
    "__version__",
    "all_gather", "all_to_all", "arange", "axis_index", "axis_size", "buffer", "cache", "cat",
    "checkpoint", "compile", "cond", "constant", "custom_jvp", "custom_vjp", "distributed",
    "dtypes", "errors", "export", "eye", "file", "fold", "fori_loop", "full",
    "function", "grad", "graph_rewrite", "hessian", "hvp", "in_range", "iota", "jacfwd", "jacobian",
    "jacrev", "jit", "jvp", "kernel_param", "linearize", "load_exported", "load_safetensors",
    "load_schedule", "make_array_from_callback", "make_mesh", "map", "nlp", "ones", "options",
    "param", "parse", "pmax", "pmean", "pmin", "ppermute", "print_graph", "psum", "psum_scatter",
    "random", "register_pytree", "save_safetensors", "save_schedule", "scan", "shard_map",
    "sparsity", "stack", "stop_gradient", "stream", "switch", "value_and_grad", "variable", "vjp",
    "vmap", "where", "while_loop", "zeros",
]  # fmt: skip

# Modules that are slow to import are imported when one of their names is first used.
_LAZY = dict.fromkeys(("PatternMatcher", "UPat", "graph_rewrite"), "uopc.ir")
_LAZY |= dict.fromkeys(("Mesh", "P", "PartitionSpec", "make_mesh"), "uopc.ir.devices.mesh")
_LAZY |= {"BottomUpGate": "uopc.ir.rewrite.engine"}
_LAZY |= dict.fromkeys(("parse", "print_graph"), "uopc.ir.text.printer")
_LAZY |= dict.fromkeys(("compile", "load_schedule", "save_schedule"), "uopc.driver")
_LAZY |= {"export": "uopc.exporting.export", "load_exported": "uopc.exporting.load"}
_LAZY |= {"file": "uopc.tracing.files.mapped", "stream": "uopc.tracing.files.stream"}
_LAZY |= dict.fromkeys(("load_safetensors", "save_safetensors"), "uopc.tracing.files.safetensors")
_LAZY |= dict.fromkeys(("Sparse", "Sparsity"), "uopc.sparse.sparsity")
_LAZY |= dict.fromkeys(
    ("all_gather", "all_to_all", "axis_index", "axis_size", "pmax", "pmean", "pmin", "ppermute",
     "psum", "psum_scatter"), "uopc.tracing.collectives",
)  # fmt: skip
_LAZY |= dict.fromkeys(("NamedSharding", "ShardedArray"), "uopc.backends.exchange.sharded_array")
_LAZY |= {"make_array_from_callback": "uopc.distributed"}
_LAZY |= {"shard_map": "uopc.tracing.shard_map", "nlp": "uopc.tracing.nlp"}
_LAZY |= {"Program": "uopc.program.program", "Sharding": "uopc.program.graph.sharding"}
_LAZY |= {"jit": "uopc.tracing.jit"}
_LAZY |= dict.fromkeys(("cond", "switch"), "uopc.tracing.branches")
_LAZY |= {"register_pytree": "uopc.ir.builder.pytrees"}
_LAZY |= dict.fromkeys(
    ("grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp", "linearize", "sparsity",
     "stop_gradient", "value_and_grad", "vjp", "vmap"), "uopc.tracing.transforms",
)  # fmt: skip
_LAZY |= dict.fromkeys(("checkpoint", "custom_jvp", "custom_vjp"), "uopc.tracing.custom_rules")
_LAZY |= dict.fromkeys(("fold", "fori_loop", "map", "scan", "while_loop"), "uopc.tracing.loops")
_NAMES = {"P": "PartitionSpec"}  # the name in its module, if different
_LAZY_MODULES = {name: f"uopc.{name}" for name in ("cache", "distributed")}
_LAZY_MODULES |= {"random": "uopc.numpy.random"}
_REMOVED = {"fast_zeros": "with uopc.options(fast_zeros=True): ... around the compile"}


def _in_c(u: UOp) -> str:
    from uopc.backends.c import infix

    return infix.render(u)


uopc.tensor.methods.STYLES["c"] = _in_c
thread_limit.register(__version__)
at_import()  # UOPC_SPEC=2 verifies every node from the first one on


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # type checkers would then allow every name

    def __getattr__(name):
        if name in _LAZY_MODULES:
            return importlib.import_module(_LAZY_MODULES[name])
        if name not in _LAZY:
            instead = f" any more: write {_REMOVED[name]}" if name in _REMOVED else ""
            raise AttributeError(f"module 'uopc' has no attribute {name!r}{instead}")
        module = importlib.import_module(_LAZY[name])
        found = globals()[name] = getattr(module, _NAMES.get(name, name))
        return found
