"""What `import uopc` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import uopc

CONTRACT = [
    "param", "variable", "constant", "arange", "full", "zeros", "ones", "eye", "where", "cat",
    "stack", "print_graph", "parse", "compile", "options", "Error", "UserError", "InvalidIR",
    "Unsupported", "dtypes", "UOp", "Ops", "UPat", "PatternMatcher", "graph_rewrite", "Program",
]  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_names_of_the_contract(name):
    assert getattr(uopc, name) is not None
    assert name in uopc.__all__


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="'uopc' has no attribute 'compil'"):
        uopc.compil  # noqa: B018


IMPORT = """
import time, numpy
begin = time.process_time()
import uopc
spent = time.process_time() - begin
import sys
heavy = [m for m in ("llvmlite", "rich", "ml_dtypes", "pycuda", "scipy") if m in sys.modules]
print(spent, *heavy)
"""


def test_import_is_cheap():
    best = 1.0
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True)
        spent, *heavy = run.stdout.decode().split()
        assert heavy == []
        best = min(best, float(spent))
    assert best < 0.15  # 0.06 s here, beside NumPy's 0.1 s


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
