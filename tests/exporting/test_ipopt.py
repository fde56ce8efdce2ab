"""IPOPT solves with the five functions of an exported problem: in C, and by CasADi's nlpsol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.exporting.test_export import CC, needs_c, run
from tests.exporting.test_languages import EXAMPLES

pytestmark = pytest.mark.slow
STAGES, STEP, ANGLE = 30, 0.1, 2.0
QUIET = {"ipopt.print_level": 0, "ipopt.sb": "yes", "print_time": 0, "ipopt.tol": 1e-10}
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-I.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what the example exports."""
    made = tmp_path_factory.mktemp("ipopt")
    assert run(sys.executable, EXAMPLES / "solve.py", ".", folder=made) == "exported pendulum\n"
    return made


def own(ca: Any) -> tuple[Any, float]:
    """The solution with CasADi's own graph and derivatives: the oracle."""
    x, p = ca.MX.sym("x", 3 * STAGES), ca.MX.sym("p")
    angle, speed, torque = (x[i * STAGES : (i + 1) * STAGES] for i in range(3))
    g = ca.vertcat(
        angle[1:] - angle[:-1] - STEP * speed[:-1],
        speed[1:] - speed[:-1] - STEP * (torque[:-1] - ca.sin(angle[:-1])),
        angle[0] - p, speed[0], angle[-1], speed[-1],
    )  # fmt: skip
    problem = {"x": x, "p": p, "f": ca.sumsqr(torque), "g": g}
    found = ca.nlpsol("own", "ipopt", problem, QUIET)(x0=0, p=ANGLE, lbg=0, ubg=0)
    return found, float(found["f"])


@needs_c
def test_nlpsol_takes_the_derivatives_from_the_library(folder: Path) -> None:
    """Also the multipliers, and as many steps as with its own: no quasi-Newton."""
    ca = pytest.importorskip("casadi")
    objects = sorted(f.name for f in folder.glob("nlp*.o"))
    run(CC, "-shared", *objects, "-o", "nlp.so", folder=folder)
    solver = ca.nlpsol("ours", "ipopt", str(folder / "nlp.so"), QUIET)
    got = solver(x0=0, p=ANGLE, lbg=0, ubg=0)
    assert solver.stats()["success"] and solver.stats()["iter_count"] < 10
    want, _ = own(ca)
    for name in ("x", "f", "lam_g", "lam_p"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-7, atol=1e-7, err_msg=name)


@needs_c
def test_its_own_interface_in_c(folder: Path) -> None:
    """The library and the headers that come with CasADi."""
    ca = pytest.importorskip("casadi")
    home = Path(ca.__file__).parent
    library, headers = home / "libipopt.so.3", home / "include" / "coin-or"
    if not (library.exists() and (headers / "IpStdCInterface.h").exists()):
        pytest.skip("CasADi comes without the headers of IPOPT")
    sources = [EXAMPLES / "ipopt.c", *sorted(folder.glob("pendulum_*.c"))]
    command = [CC, *STRICT, f"-I{headers}", *sources, library, f"-Wl,-rpath,{home}", "-lm",
               "-o", "solve"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "IpTypes.h" in done.stderr:
        pytest.skip("these headers of IPOPT are not whole")
    assert done.returncode == 0, done.stderr
    said = run("./solve", folder=folder)
    _, best = own(ca)
    status, value, gap = (part.split()[-1] for part in said.split(", "))
    assert status == "0" and float(gap) < 1e-9
    assert float(value) == pytest.approx(best, rel=1e-7)
