"""Libraries that take arrays of any kind: einops and array_api_compat, with NumPy as the oracle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

A = np.random.default_rng(0).standard_normal((4, 6, 5))
N = uopc.variable("n", 1, 50)
PATTERNS: dict[str, Callable[[Any, Any], Any]] = {
    "rearrange": lambda e, x: e.rearrange(x, "a (b c) d -> (d b) a c", b=2),
    "rearrange a list": lambda e, x: e.rearrange([x, x], "n a b c -> a (n b) c"),
    "mean": lambda e, x: e.reduce(x, "a (b c) d -> b a", "mean", c=3),
    "max": lambda e, x: e.reduce(x, "a b c -> 1 b", "max"),
    "sum": lambda e, x: e.reduce(x, "... c -> ...", "sum"),
    "repeat": lambda e, x: e.repeat(x, "a b c -> (a r) b c s", r=2, s=3),
    "pack": lambda e, x: e.pack([x, x[:, 0]], "a * c")[0],
    "unpack": lambda e, x: e.unpack(x, [[2], [1, 4]], "a * c")[1],
}


@pytest.fixture
def einops() -> Any:
    return pytest.importorskip("einops")


@pytest.mark.parametrize("name", PATTERNS)
def test_einops_in_jit(name: str, einops: Any) -> None:
    f = PATTERNS[name]
    np.testing.assert_allclose(uopc.jit(lambda x: f(einops, x))(A), f(einops, A), rtol=1e-12)


@pytest.mark.parametrize("name", PATTERNS)
def test_einops_by_the_array_api(name: str, einops: Any) -> None:
    """Without a backend: of UOps, and of Arrays outside of `jit`."""
    from einops import array_api

    f, want = PATTERNS[name], PATTERNS[name](einops, A)
    np.testing.assert_allclose(np.asarray(f(array_api, unp.asarray(A))), want, rtol=1e-12)
    x = uopc.param("x", A.shape, dtype="f8")
    np.testing.assert_allclose(uopc.compile(f(array_api, x))(A), want, rtol=1e-12)


def test_einsum_and_errors_of_einops(einops: Any) -> None:
    f = uopc.jit(lambda x: einops.einsum(x, x, "a b c, a d c -> b d"))
    np.testing.assert_allclose(f(A), np.einsum("abc,adc->bd", A, A), rtol=1e-12)
    with pytest.raises(einops.EinopsError, match="can't divide axis of length 6 in chunks of 4"):
        uopc.jit(lambda x: einops.rearrange(x, "a (b c) d -> a b c d", b=4))(A)
    with pytest.raises(NotImplementedError, match="reduce_mean is not available"):  # as of others
        uopc.jit(lambda x: einops.reduce(x, "a b -> a", "mean"))(np.ones((2, 2), np.int32))


@pytest.mark.parametrize("name", ["rearrange", "mean", "max", "sum", "repeat"])
def test_einops_with_symbolic_sizes(name: str, einops: Any) -> None:
    pytest.importorskip("uopc.tracing.einops_backend")
    f = PATTERNS[name]
    program = uopc.compile(f(einops, uopc.param("x", (N, 6, 5), "f8")))
    for rows in (1, 4):
        np.testing.assert_allclose(program(A[:rows]), f(einops, A[:rows]), rtol=1e-12)


@pytest.mark.slow
def test_einops_is_found_in_either_order(einops: Any) -> None:
    """And it is not imported by uopc itself."""
    code = "x = uopc.jit(lambda x: einops.rearrange(x, 'a b -> (b a)'))(np.ones((2, 3)))\n"
    code += "assert x.shape == (6,)"
    for first in ("import einops, uopc", "import uopc, einops"):
        subprocess.run([sys.executable, "-c", f"import numpy as np\n{first}\n{code}"], check=True)
    alone = "import sys, uopc; uopc.jit(lambda x: x + 1)(1); print('einops' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", alone], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["False"]


@pytest.fixture
def compat() -> Any:
    return pytest.importorskip("array_api_compat")


def test_the_namespace_that_array_api_compat_finds(compat: Any) -> None:
    x = unp.asarray(A)
    assert compat.array_namespace(x) is compat.array_namespace(uopc.constant(A)) is unp
    assert compat.array_namespace(x, 1.0, None, x) is unp
    assert compat.is_array_api_obj(x) and compat.is_array_api_obj(uopc.constant(A))
    assert not compat.is_numpy_array(x) and not compat.is_numpy_namespace(unp)
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, A)


def test_facts_that_array_api_compat_gives(compat: Any) -> None:
    x = unp.asarray(A)
    assert compat.size(x) == 120 and compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu") is x
    with pytest.raises(uopc.UserError, match="expected device 'cpu'"):
        compat.to_device(x, "cuda:0")
    assert not compat.is_lazy_array(x)
    with pytest.raises(uopc.UserError, match=r"\(n\*30\) is not a constant"):
        compat.size(uopc.param("x", (N, 6, 5)))


def test_array_api_compat_in_jit(compat: Any) -> None:
    def standardized(x: Any) -> Any:
        xp = compat.array_namespace(x)
        return (x - xp.mean(x)) / xp.std(x) * compat.size(x)

    np.testing.assert_allclose(uopc.jit(standardized)(A), standardized(A), rtol=1e-12)
    lazy = []
    uopc.jit(lambda x: lazy.append(compat.is_lazy_array(x)) or x)(A)
    assert lazy == [True]
