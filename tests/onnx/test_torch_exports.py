"""Models as torch's two exporters write them, with free sizes: they load with nothing said about
sizes, and give what torch gives."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc.onnx

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional

# The function, the shape of its argument with names of free sizes, and calls.
MODELS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], list[dict[str, int]]]] = {
    "flatten": (lambda x: x.flatten(1) * 2, ("n", 3, 4), [{"n": 1}, {"n": 5}]),
    "view": (lambda x: x.view(x.shape[0], -1, 2).sum(2), ("n", 6), [{"n": 2}, {"n": 7}]),
    "expand": (lambda x: torch.ones(1, 4).expand(x.shape[0], -1) + x, ("n", 4),
               [{"n": 3}, {"n": 5}]),
    "scale": (lambda x: x / x.shape[1] ** 0.5, (2, "t"), [{"t": 2}, {"t": 9}]),
    "positions": (lambda x: x + torch.arange(x.shape[1]), (2, "t"), [{"t": 2}, {"t": 7}]),
    "causal": (lambda x: x.masked_fill(torch.ones(x.shape[1], x.shape[1]).tril() == 0, -9.0),
               (2, "t", "t"), [{"t": 2}, {"t": 5}]),
    "halves": (lambda x: torch.cat([x[:, x.shape[1] // 2:], x[:, :x.shape[1] // 2]], 1), (2, "t"),
               [{"t": 4}, {"t": 7}]),
    "twice": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (1, 2, "h", "w"),
              [{"h": 3, "w": 5}, {"h": 4, "w": 2}]),
    "reflect": (lambda x: F.pad(x, (2, 1), mode="reflect"), ("n", 2, 8), [{"n": 2}, {"n": 5}]),
    "chunk": (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), ("n", 6), [{"n": 2}, {"n": 5}]),
    "differences": (lambda x: x[:, 1:] - x[:, :-1], (2, "t"), [{"t": 2}, {"t": 7}]),
    "pool": (lambda x: F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 1), (1, 2, "h", "w"),
             [{"h": 4, "w": 6}, {"h": 5, "w": 9}]),
}  # fmt: skip


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def exported(name: str, dynamo: bool) -> bytes:
    function, shape, _ = MODELS[name]
    at = dict(zip(("n", "t", "h", "w"), (3, 6, 8, 10)))
    x = torch.ones([at.get(d, d) for d in shape])
    free = {i: d for i, d in enumerate(shape) if isinstance(d, str)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            pytest.importorskip("onnxscript")
            made = {d: torch.export.Dim(d, min=2, max=64) for d in free.values()}
            dims = {i: made[d] for i, d in free.items()}
            program = torch.onnx.export(
                Model(function), (x,), dynamo=True, verbose=False, dynamic_shapes=({**dims},)
            )
            return bytes(program.model_proto.SerializeToString())
        to = io.BytesIO()
        torch.onnx.export(
            Model(function), (x,), to, dynamo=False, input_names=["x"], dynamic_axes={"x": free}
        )
        return to.getvalue()


@pytest.mark.parametrize("dynamo", [False, True], ids=["trace", "dynamo"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.few(4)
def test_a_model_of_torch_has_free_sizes(name: str, dynamo: bool) -> None:
    f = uopc.onnx.load(exported(name, dynamo))
    function, shape, calls = MODELS[name]
    for sizes in calls:
        dims = [sizes.get(d, d) for d in shape]
        x = np.random.default_rng(0).standard_normal(dims).astype("f4")
        want = function(torch.from_numpy(x)).numpy()
        got = f(x)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
