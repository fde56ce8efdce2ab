"""The tensor methods of UOp, gathered under the names that users write."""

from uopc.tensor.elementwise import (
    absolute,
    bind,
    bitwise,
    ceil,
    clip,
    contiguous,
    cos,
    detach,
    divide,
    divide_reversed,
    erf,
    exp,
    exp2,
    floor,
    floor_divide,
    floor_divide_reversed,
    gelu,
    invert,
    log,
    log2,
    mulacc,
    negative,
    power,
    power_reversed,
    reciprocal,
    relu,
    remainder,
    remainder_reversed,
    rsqrt,
    sigmoid,
    sign,
    silu,
    sin,
    sqrt,
    tan,
    tanh,
    trunc,
    unbind,
    where,
)  # fmt: skip
from uopc.tensor.elementwise import round_ as round
from uopc.tensor.indexing import (
    assign,
    flatten,
    gather,
    getitem,
    one_hot,
    squeeze,
    take,
    transpose,
    tril,
    triu,
    unsqueeze,
)  # fmt: skip
from uopc.tensor.nn import (
    avg_pool2d,
    conv2d,
    layer_norm,
    log_softmax,
    matmul,
    matmul_reversed,
    max_pool2d,
    rms_norm,
    softmax,
)  # fmt: skip
from uopc.tensor.reductions import all_ as all
from uopc.tensor.reductions import any_ as any
from uopc.tensor.reductions import argmax, argmin, cumsum, mean, prod, std, var
from uopc.tensor.reductions import max_ as max
from uopc.tensor.reductions import min_ as min
from uopc.tensor.reductions import sum_ as sum

__all__ = [
    "absolute", "all", "any", "argmax", "argmin", "assign", "avg_pool2d", "bind", "bitwise",
    "ceil", "clip", "contiguous", "conv2d", "cos", "cumsum", "detach", "divide",
    "divide_reversed", "erf", "exp", "exp2", "flatten", "floor", "floor_divide",
    "floor_divide_reversed", "gather", "gelu", "getitem", "invert", "layer_norm", "log", "log2",
    "log_softmax", "matmul", "matmul_reversed", "max", "max_pool2d", "mean", "min", "mulacc",
    "negative", "one_hot", "power", "power_reversed", "prod", "reciprocal", "relu", "remainder",
    "remainder_reversed", "rms_norm", "round", "rsqrt", "sigmoid", "sign", "silu", "sin",
    "softmax", "sqrt", "squeeze", "std", "sum", "take", "tan", "tanh", "transpose", "tril",
    "triu", "trunc", "unbind", "unsqueeze", "var", "where",
]  # fmt: skip
