"""The libraries that `benchmarks/kernels.py` compares: operators in each one's idiom, and a peer.

A peer prepares a workload as a callable that returns when the result is there.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from workloads import Workload

GELU = math.sqrt(2 / math.pi)


def _numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _numpy_layer_norm(x: Any, w: Any, b: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b


def _numpy_conv2d(
    x: Any, w: Any, stride: int, pad: int, dilation: int = 1, groups: int = 1, bias: Any = None
) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    window = tuple(dilation * (size - 1) + 1 for size in w.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, window, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    n, c, rows, columns, kh, kw = windows.shape
    each = c // groups * kh * kw
    flat = windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, each, rows * columns)
    made = (w.reshape(groups, -1, each) @ flat).reshape(n, len(w), rows, columns)
    return made if bias is None else made + bias.reshape(-1, 1, 1)


def _numpy_max_pool(x: Any, window: int, stride: int, pad: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (window, window), (2, 3))
    return windows[:, :, ::stride, ::stride].max((4, 5))


def _numpy_top_k(x: Any, k: int) -> Any:
    return np.sort(np.partition(x, len(x) - k)[-k:])[::-1]


def _numpy_scatter_add(table: Any, index: Any, value: Any) -> Any:
    out = table.copy()
    np.add.at(out, index, value)
    return out


def _numpy_bytes(x: Any, scale: Any, zero: Any) -> Any:
    """The nearest bytes of x / scale, without the zero point that is added to them."""
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero


def _numpy_dynamic_product(x: Any, w: Any) -> Any:
    """Times bytes, of bytes with the scale and the zero point of the range of x."""
    low, high = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = (high - low) / 255
    given = _numpy_bytes(x, scale, np.rint(-low / scale))
    return given @ w.values.astype(x.dtype) * (scale * w.scale)


NUMPY = SimpleNamespace(
    exp=np.exp, log=np.log, sin=np.sin, tanh=np.tanh, floor=np.floor, where=np.where,
    matmul=np.matmul, clip=np.clip, reshape=np.reshape, sum=np.sum, max=np.max,
    sigmoid=lambda x: 1 / (1 + np.exp(-x)),
    relu=lambda x: np.maximum(x, 0),
    gelu=lambda x: 0.5 * x * (1 + np.tanh(GELU * (x + 0.044715 * (x * x * x)))),
    transpose=lambda x, *order: np.transpose(x, order),
    cast=lambda x, dtype: x.astype(dtype),
    gather_sum=lambda table, index: table[index].sum(1),
    softmax=_numpy_softmax, layer_norm=_numpy_layer_norm, conv2d=_numpy_conv2d,
    max_pool=_numpy_max_pool, max_pool2=lambda x: _numpy_max_pool(x, 2, 2, 0),
    upsample2=lambda x: x.repeat(2, 2).repeat(2, 3), cat=np.concatenate,
    sort=np.sort, argsort=np.argsort, top_k=_numpy_top_k, cumsum=lambda x: np.cumsum(x, -1),
    histogram=lambda x, bins, ends: np.histogram(x, bins, ends)[0],
    bincount=lambda x, n: np.bincount(x, minlength=n), scatter_add=_numpy_scatter_add,
    cholesky=np.linalg.cholesky, solve=np.linalg.solve,
    quantised=lambda x, scale, zero: _numpy_bytes(x, scale, zero) * scale,
    dynamic_product=_numpy_dynamic_product,
    numbers=lambda x, w: (w.values * w.spread).astype(x.dtype),
)  # fmt: skip


class Peer:
    """One library in one process. `compiles`: the first call takes the time of compilation."""

    package = "numpy"
    compiles = True
    searches = False  # for minutes
    patience = 60.0  # seconds that a compile may take
    program = ""  # what it needs besides its package
    environment: dict[str, str] = {}  # set before the process starts; {threads} is filled in

    def __init__(self, threads: int) -> None:
        pass

    def prepare(self, w: Workload) -> Callable[[], Any]:
        raise NotImplementedError

    def array(self, result: Any) -> np.ndarray:
        return np.asarray(result)


class Numpy(Peer):
    compiles = False
    environment = {"OPENBLAS_NUM_THREADS": "{threads}", "OMP_NUM_THREADS": "{threads}"}

    def prepare(self, w: Workload) -> Callable[[], Any]:
        return functools.partial(w.body, NUMPY, *w.inputs)


def _uopc_upsample2(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h, 1, w, 1).expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)


def _uopc_bytes(x: Any, scale: Any, zero: Any) -> Any:
    from uopc import dtypes

    return ((x / scale).round() + zero).clip(0.0, 255.0).cast(dtypes.uint8)


def _uopc_quantised(x: Any, scale: Any, zero: Any) -> Any:
    given = _uopc_bytes(x, float(scale), float(zero))
    return (given.cast(x.dtype) - float(zero)) * float(scale)


def _uopc_numbers(x: Any, w: Any) -> Any:
    import uopc

    return uopc.constant(w.values).cast(x.dtype) * uopc.constant(w.spread)


def _uopc_dynamic_product(x: Any, w: Any) -> Any:
    import uopc
    from uopc import dtypes

    low, high = x.min().minimum(0.0), x.max().maximum(0.0)
    scale = (high - low) / 255.0
    zero = (-low / scale).round().clip(0.0, 255.0).cast(dtypes.uint8)
    given = _uopc_bytes(x, scale, zero.cast(x.dtype)).cast(dtypes.int32) - zero.cast(dtypes.int32)
    product = given @ uopc.constant(w.values).cast(dtypes.int32)
    return product.cast(x.dtype) * (scale * uopc.constant(w.scale))


class Uopc(Peer):
    package = "uopc"
    beam = 0
    environment = {"UOPC_THREADS": "{threads}", "UOPC_CACHE_DIR": ""}  # every compile is one

    def __init__(self, threads: int) -> None:
        import uopc
        from uopc import UOp

        self.uopc = uopc
        self.operators = SimpleNamespace(
            exp=UOp.exp, log=UOp.log, sin=UOp.sin, tanh=UOp.tanh, floor=UOp.floor,
            where=uopc.where, matmul=UOp.matmul, clip=UOp.clip, reshape=UOp.reshape,
            sum=UOp.sum, max=UOp.max, sigmoid=UOp.sigmoid, relu=UOp.relu,
            gelu=lambda x: x.gelu(approximate="tanh"),
            transpose=lambda x, *order: x.permute(order),
            cast=lambda x, dtype: x.cast(getattr(uopc.dtypes, dtype)),
            gather_sum=lambda table, index: table.take(index, axis=0).sum(axis=1),
            softmax=lambda x: x.softmax(axis=-1),
            layer_norm=lambda x, w, b: x.layer_norm(w, b, eps=1e-5),
            conv2d=lambda x, w, stride, pad, dilation=1, groups=1, bias=None: x.conv2d(
                w, bias, stride, pad, dilation, groups),
            quantised=_uopc_quantised, numbers=_uopc_numbers,
            dynamic_product=_uopc_dynamic_product,
            max_pool2=lambda x: x.max_pool2d(2), max_pool=UOp.max_pool2d,
            upsample2=_uopc_upsample2,
            cat=lambda parts, axis: uopc.cat(*parts, axis=axis),
            sort=UOp.sort, argsort=UOp.argsort, top_k=lambda x, k: x.top_k(k)[0],
            cumsum=lambda x: x.cumsum(-1),
            histogram=lambda x, bins, ends: x.histogram(bins, ends)[0],
            bincount=lambda x, n: x.bincount(length=n),
            scatter_add=lambda table, index, value: table.at[index].add(value),
            cholesky=UOp.cholesky, solve=UOp.solve,
        )  # fmt: skip
        uopc.compile(uopc.param("x", (8,)) + 1)  # LLVM is loaded once a process

    def prepare(self, w: Workload) -> Callable[[], Any]:
        inputs = [
            self.uopc.param(f"x{i}", a.shape, getattr(self.uopc.dtypes, str(a.dtype)))
            for i, a in enumerate(w.inputs)
        ]
        graph = w.body(self.operators, *inputs)
        made: list[Any] = []

        def call() -> Any:
            if not made:
                with self.uopc.options(cache_dir="", programs=0, beam=self.beam):
                    made.append(self.uopc.compile(graph, inputs=inputs))
            return made[0](*w.inputs)

        return call


class UopcSearched(Uopc):
    """The best schedules that a search finds, up to 10 s a kernel."""

    beam = 2
    searches = True
    patience = 300.0


class Torch(Peer):
    package = "torch"
    compiles = False
    environment = {"OMP_NUM_THREADS": "{threads}", "MKL_NUM_THREADS": "{threads}"}

    def __init__(self, threads: int) -> None:
        import torch
        import torch.nn.functional as functions

        def conv2d(
            x: Any, w: Any, stride: int, pad: int, dilation: int = 1, groups: int = 1,
            bias: Any = None,
        ) -> Any:  # fmt: skip
            return functions.conv2d(x, w, bias, stride, pad, dilation, groups)

        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.operators = SimpleNamespace(
            exp=torch.exp, log=torch.log, sin=torch.sin, tanh=torch.tanh, floor=torch.floor,
            where=torch.where, matmul=torch.matmul, clip=torch.clamp, reshape=torch.reshape,
            sum=torch.sum, max=torch.amax, sigmoid=torch.sigmoid, relu=torch.relu,
            gelu=lambda x: functions.gelu(x, approximate="tanh"),
            transpose=lambda x, *order: x.permute(order),
            cast=lambda x, dtype: x.to(getattr(torch, dtype)),
            gather_sum=lambda table, index: functions.embedding_bag(index, table, mode="sum"),
            softmax=lambda x: functions.softmax(x, -1),
            layer_norm=lambda x, w, b: functions.layer_norm(x, (x.shape[-1],), w, b),
            conv2d=conv2d, max_pool=functions.max_pool2d,
            max_pool2=lambda x: functions.max_pool2d(x, 2),
            upsample2=lambda x: functions.interpolate(x, scale_factor=2.0), cat=torch.cat,
            sort=lambda x: x.sort().values, argsort=torch.argsort,
            top_k=lambda x, k: x.topk(k).values, cumsum=lambda x: x.cumsum(-1),
            histogram=lambda x, bins, ends: torch.histc(x, bins, *ends),
            bincount=lambda x, n: torch.bincount(x, minlength=n),
            scatter_add=lambda table, index, value: table.index_add(0, index, value),
            cholesky=torch.linalg.cholesky, solve=torch.linalg.solve,
        )  # fmt: skip

    def prepare(self, w: Workload) -> Callable[[], Any]:
        inputs = [self.torch.from_numpy(a) for a in w.inputs]
        return functools.partial(self._module(w).forward, *inputs)

    def _module(self, w: Workload) -> Any:
        import torch_graph

        return torch_graph.module(w, self.operators)

    def array(self, result: Any) -> np.ndarray:
        return np.asarray(result.numpy())


class TorchCompiled(Torch):
    """Inductor; weights are constants, which it stores in oneDNN's order."""

    compiles = True
    patience = 600.0

    def prepare(self, w: Workload) -> Callable[[], Any]:
        self.torch._dynamo.reset()
        self.operators.gather_sum = lambda table, index: table[index].sum(1)
        how = {"freezing": True}
        compiled = self.torch.compile(self._module(w), dynamic=False, options=how)
        inputs = [self.torch.from_numpy(a) for a in w.inputs]
        return lambda: compiled(*inputs)


class Jax(Peer):
    package = "jax"
    environment = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "NPROC": "{threads}"}

    def __init__(self, threads: int) -> None:
        import jax
        import jax.numpy as jnp

        def layer_norm(x: Any, w: Any, b: Any) -> Any:
            d = x - x.mean(-1, keepdims=True)
            return d * jax.lax.rsqrt((d**2).mean(-1, keepdims=True) + 1e-5) * w + b

        def conv2d(
            x: Any, w: Any, stride: int, pad: int, dilation: int = 1, groups: int = 1
        ) -> Any:
            return jax.lax.conv_general_dilated(
                x, w, (stride, stride), [(pad, pad)] * 2, rhs_dilation=(dilation, dilation),
                feature_group_count=groups,
            )  # fmt: skip

        def max_pool2(x: Any) -> Any:
            window = (1, 1, 2, 2)
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

        self.jax = jax
        self.operators = SimpleNamespace(
            exp=jnp.exp, log=jnp.log, sin=jnp.sin, tanh=jnp.tanh, floor=jnp.floor,
            where=jnp.where, matmul=jnp.matmul, clip=jnp.clip, reshape=jnp.reshape,
            sum=jnp.sum, max=jnp.max, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu,
            gelu=lambda x: jax.nn.gelu(x, approximate=True),
            transpose=lambda x, *order: jnp.transpose(x, order),
            cast=lambda x, dtype: x.astype(dtype),
            gather_sum=lambda table, index: table[index].sum(1),
            softmax=lambda x: jax.nn.softmax(x, -1),
            layer_norm=layer_norm, conv2d=conv2d, max_pool2=max_pool2,
            sort=jnp.sort, argsort=jnp.argsort, top_k=lambda x, k: jax.lax.top_k(x, k)[0],
            cumsum=lambda x: jnp.cumsum(x, -1),
            histogram=lambda x, bins, ends: jnp.histogram(x, bins, ends)[0],
            bincount=lambda x, n: jnp.bincount(x, length=n),
            scatter_add=lambda table, index, value: table.at[index].add(value),
            cholesky=jnp.linalg.cholesky, solve=jnp.linalg.solve,
        )  # fmt: skip

    def prepare(self, w: Workload) -> Callable[[], Any]:
        compiled = self.jax.jit(lambda *a: w.body(self.operators, *a))
        inputs = [self.jax.device_put(a) for a in w.inputs]
        return lambda: compiled(*inputs).block_until_ready()


class Tinygrad(Peer):
    package, program = "tinygrad", "clang"
    environment = {"DEV": "CPU", "NUM_CPU_THREADS": "{threads}", "CACHELEVEL": "0"}

    def __init__(self, threads: int) -> None:
        from tinygrad import Device, Tensor, TinyJit, dtypes

        self.tensor, self.jit, self.device = Tensor, TinyJit, Device["CPU"]

        def conv2d(
            x: Any, w: Any, stride: int, pad: int, dilation: int = 1, groups: int = 1
        ) -> Any:
            return x.conv2d(w, None, groups, stride, dilation, pad)

        self.operators = SimpleNamespace(
            exp=Tensor.exp, log=Tensor.log, sin=Tensor.sin, tanh=Tensor.tanh,
            floor=Tensor.floor, matmul=Tensor.matmul, reshape=Tensor.reshape, sum=Tensor.sum,
            max=Tensor.max, sigmoid=Tensor.sigmoid, relu=Tensor.relu, gelu=Tensor.gelu,
            where=lambda c, a, b: c.where(a, b), clip=lambda x, low, high: x.clip(low, high),
            transpose=lambda x, *order: x.permute(order),
            cast=lambda x, dtype: x.cast(getattr(dtypes, dtype)),
            gather_sum=lambda table, index: table[index].sum(1),
            softmax=lambda x: x.softmax(-1),
            layer_norm=lambda x, w, b: x.layernorm(eps=1e-5) * w + b,
            conv2d=conv2d, max_pool2=lambda x: x.max_pool2d((2, 2)),
        )  # fmt: skip

    def prepare(self, w: Workload) -> Callable[[], Any]:
        inputs = [self.tensor(a, device="CPU").contiguous().realize() for a in w.inputs]
        self.device.synchronize()
        compiled = self.jit(lambda *a: w.body(self.operators, *a).realize())

        def call() -> Any:
            result = compiled(*inputs)
            self.device.synchronize()
            return result

        return call

    def array(self, result: Any) -> np.ndarray:
        return np.asarray(result.numpy())


class TinygradBeam(Tinygrad):
    """Minutes of search a workload: only where asked for."""

    environment = {**Tinygrad.environment, "BEAM": "2"}
    searches = True


class OnnxRuntime(Peer):
    package = "onnxruntime"

    def __init__(self, threads: int) -> None:
        import onnx_graph
        import onnxruntime

        self.runtime, self.model, self.threads = onnxruntime, onnx_graph.model, threads

    def prepare(self, w: Workload) -> Callable[[], Any]:
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = self.runtime.InferenceSession(
            self.model(w), options, providers=["CPUExecutionProvider"]
        )
        inputs = {f"x{i}": a for i, a in enumerate(w.inputs)}
        return lambda: session.run(None, inputs)[0]


PEERS: dict[str, type[Peer]] = {
    "uopc": Uopc, "uopc searched": UopcSearched, "numpy": Numpy, "torch": Torch,
    "torch compiled": TorchCompiled, "jax": Jax,
    "tinygrad": Tinygrad, "tinygrad BEAM": TinygradBeam, "onnxruntime": OnnxRuntime,
}  # fmt: skip


def installed() -> list[str]:
    """The peers that can run here, those left out that search for minutes."""
    return [
        name for name, p in PEERS.items()
        if not p.searches and importlib.util.find_spec(p.package) is not None
        and (not p.program or shutil.which(p.program))
    ]  # fmt: skip
