"""A workload's body as a PyTorch module: each operator is a call, and arrays are its weights."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from workloads import Workload


class Recorder(torch.fx.Tracer):
    """Notes calls in `graph`; an array among their arguments becomes a parameter of `root`."""

    def __init__(self) -> None:
        super().__init__()
        self.root, self.graph = torch.nn.Module(), torch.fx.Graph(tracer_cls=Recorder)
        self._held: dict[int, tuple[np.ndarray, str]] = {}  # arrays that are kept have one address

    def create_arg(self, a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return super().create_arg(a)
        if id(a) not in self._held:
            self._held[id(a)] = a, f"w{len(self._held)}"
            weight = torch.nn.Parameter(torch.from_numpy(a), requires_grad=False)
            self.root.register_parameter(self._held[id(a)][1], weight)
        return self.create_node("get_attr", self._held[id(a)][1], (), {})

    def noted(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.create_proxy("call_function", operator, args, kwargs)


def module(w: Workload, operators: SimpleNamespace) -> torch.fx.GraphModule:
    """The module of a workload's inputs, by a peer's operators for PyTorch."""
    recorder = Recorder()
    inputs = [recorder.create_proxy("placeholder", f"x{i}", (), {}) for i in range(len(w.inputs))]
    noted = {name: recorder.noted(o) for name, o in vars(operators).items()}
    out = w.body(SimpleNamespace(**noted), *inputs)
    recorder.create_node("output", "output", (recorder.create_arg(out),), {})
    return torch.fx.GraphModule(recorder.root, recorder.graph)
