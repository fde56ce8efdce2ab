"""The names that `import uopc` gives, and its cost."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import uopc

CONTRACT = [
    "param", "variable", "constant", "arange", "full", "zeros", "ones", "eye", "where", "cat",
    "stack", "print_graph", "parse", "compile", "options", "Error", "UserError", "InvalidIR",
    "Unsupported", "dtypes", "UOp", "Ops", "UPat", "PatternMatcher", "graph_rewrite", "Program",
    "cache", "errors", "__version__", "function", "kernel_param", "KernelInfo",
    "load_schedule", "save_schedule", "AxisType", "BottomUpGate", "GroupOp", "Opt", "jit",
    "random", "register_pytree", "cond", "grad", "value_and_grad", "jvp", "vjp", "linearize",
    "jacfwd", "jacrev", "jacobian", "hessian", "hvp", "vmap", "stop_gradient", "custom_jvp",
    "custom_vjp", "checkpoint", "scan", "fold", "fori_loop", "map", "switch", "while_loop",
    "nlp", "sparsity", "iota", "in_range", "buffer", "Sparse", "Sparsity", "export",
    "load_exported", "file", "stream", "load_safetensors", "save_safetensors",
    "Mesh", "P", "PartitionSpec", "make_mesh", "distributed", "shard_map", "psum", "pmax", "pmin",
    "pmean", "all_gather", "psum_scatter", "all_to_all", "ppermute", "axis_index", "axis_size",
    "NamedSharding", "ShardedArray", "Sharding", "make_array_from_callback",
]  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_names_of_the_contract(name):
    assert getattr(uopc, name) is not None
    assert name in uopc.__all__


def test_dir_shows_the_public_names_and_no_others():
    assert dir(uopc) == sorted(CONTRACT)
    assert sorted(uopc.__all__) == sorted(CONTRACT)


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
    from uopc.cli import main as cli

    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"uopc {uopc.__version__}\n"


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="'uopc' has no attribute 'compil'"):
        uopc.compil  # noqa: B018


HEAVY = """
import sys, uopc
print(*[m for m in ("llvmlite", "rich", "ml_dtypes", "pycuda", "scipy") if m in sys.modules])
"""


def test_importing_brings_nothing_heavy():
    """`test_style.py` asks for the time."""
    run = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, check=True, text=True)
    assert run.stdout.split() == []


METHODS = [
    "sum", "prod", "max", "min", "mean", "var", "std", "argmax", "argmin", "any", "all",
    "cumsum", "exp", "exp2", "log", "log2", "sin", "cos", "tan", "sqrt", "rsqrt", "reciprocal",
    "tanh", "sigmoid", "erf", "relu", "gelu", "silu", "abs", "sign", "floor", "ceil", "round",
    "trunc", "clip", "maximum", "minimum", "where", "pow", "softmax", "log_softmax",
    "layer_norm", "rms_norm", "matmul", "conv2d", "avg_pool2d", "max_pool2d", "gather", "take",
    "one_hot", "tril", "triu", "cast", "bitcast", "contiguous", "detach", "assign", "bind",
    "transpose", "flatten", "squeeze", "unsqueeze", "cat", "stack", "reshape", "permute",
    "expand", "pad", "shrink", "flip", "reduce", "alu", "eq", "ne",
]  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_contract_are_documented(name):
    method = getattr(uopc.UOp, name)
    assert callable(method)
    assert method.__doc__ or name in ("maximum", "minimum", "eq", "ne")


def test_constants_that_python_calls_equal_are_different_nodes():
    """0.0 and -0.0, 1 and 1.0 and True; two NaNs are one."""
    x = uopc.param("x", (2,))
    values = [1, 1.0, True, 0.0, -0.0, float("nan")]
    nodes = [uopc.constant(v) for v in values]
    assert len(set(nodes)) == len(values)
    assert uopc.constant(float("nan")) is nodes[-1]
    assert (x * 0.0) is not (x * -0.0)
    minus = np.array([-0.0, 1.0], "f4")
    plus_zero, plus_minus = uopc.compile((x + 0.0, x + -0.0))(minus)
    assert list(np.signbit(plus_zero)) == [False, False]
    assert list(np.signbit(plus_minus)) == [True, False]


def test_the_reference_has_every_public_name():
    from tests.pages import ROOT

    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    missing = [n for n in uopc.__all__ if f"uopc.{n}" not in page and n != "__version__"]
    assert missing == []


def test_the_page_of_the_namespace_has_every_function():
    from tests.pages import ROOT
    from uopc.numpy import linalg, namespace

    page = (ROOT / "docs" / "namespace.md").read_text("utf-8")
    known = set(re.findall(r"(?m)^::: uopc\.numpy\.(?:namespace\.)?(\S+)$", page))
    known |= set(re.findall(r"`(\w+)`\s+is\s+`\w+`", page))
    functions = {n for n in namespace.__all__ if inspect.isfunction(getattr(namespace, n))}
    products = {n for n in linalg.__all__ if n in functions}
    assert functions - known == set()
    assert {f"linalg.{n}" for n in linalg.__all__ if n not in products} - known == set()


def test_functions_of_the_namespaces_pickle():
    """By their names, as a process pool passes them."""
    from uopc.numpy import linalg, namespace, random

    modules = (namespace, linalg, random)
    functions = [getattr(m, n) for m in modules for n in m.__all__]
    functions = [f for f in functions if inspect.isfunction(f)]
    assert len(functions) > 200
    assert [f.__name__ for f in functions if pickle.loads(pickle.dumps(f)) is not f] == []
