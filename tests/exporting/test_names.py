"""Names of programs, arguments and results in exported C: none that a compiler, a header that the
caller includes, or a linker takes for something else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import uopc
from tests.exporting.corpus import WARNINGS
from uopc.backends.c import header_names
from uopc.backends.c.names import WORDS, identifier, reserved
from uopc.errors import UserError

COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]
ACROSS = [cc for cc in ("g++", "clang++") if shutil.which(cc)]
STANDARD = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal
    stdarg stdbool stddef stdint stdio stdlib string tgmath time wchar wctype"""
POSIX = """dirent dlfcn fcntl fnmatch ftw glob iconv langinfo libgen net/if netdb netinet/in poll
    pthread pwd regex sched search semaphore spawn strings sys/mman sys/resource sys/select
    sys/socket sys/stat sys/time sys/types sys/wait syslog termios unistd utime wordexp"""
AWKWARD = (
    "index", "printf", "EOF", "malloc", "stdin", "random", "strlen", "exp", "memcpy", "errno", "I",
    "signgam", "environ", "time", "y0", "gamma", "NULL", "M_PI", "SIGINT", "EINVAL", "st_atime",
    "INT64_MAX", "PRId64", "size_t", "FILE", "int64_t", "class", "new", "restrict", "typeof",
    "nullptr", "true", "bool", "main", "linux", "f", "f_id", "F_ABI", "f_E_3", "f_c0", "uopc_wide",
    "f32x4", "float32x4_t", "run", "context", "work", "chunk", "i", "v1", "select", "pthread_t",
)  # fmt: skip


def includes(*names: str) -> str:
    found = " ".join(names).split()
    return "".join(f"#if __has_include(<{h}.h>)\n#include <{h}.h>\n#endif\n" for h in found)


@pytest.mark.parametrize("name", [n for n in AWKWARD if reserved(n)])
def test_functions_that_would_be_something_else_are_refused(name: str, tmp_path: Path) -> None:
    """And the name that the message proposes is taken."""
    x = uopc.param("x", (3,))
    with pytest.raises(UserError, match="by name= or by the name of the file") as got:
        uopc.export(x * 2, tmp_path / name, kind="c")
    proposed = re.findall(r"such as '(\w+)'", str(got.value))[0]
    assert not reserved(proposed)


def test_plain_names_are_taken() -> None:
    for name in ("f", "lengths", "total", "way", "model", "step", "is_done", "state", "B", "res_2"):
        assert not reserved(name) and identifier(name, set()) == name
    assert identifier("time", set()) == "time"  # a parameter may hide a function


@pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
def test_what_standard_headers_declare_is_known() -> None:
    """The compiler says what there is: each function and macro, each type that ends with _t."""
    flags = [COMPILERS[0], "-std=c11", "-D_XOPEN_SOURCE=700", "-E"]
    text = includes(STANDARD, POSIX)
    made = [
        subprocess.run([*flags, one, "-x", "c", "-"], input=text, capture_output=True, text=True,
                       check=True).stdout
        for one in ("-dM", "-P")
    ]  # fmt: skip
    macros = re.findall(r"^#define ([A-Za-z]\w*)(?!\w)", made[0], re.MULTILINE)
    declared = r"^extern [\w *]*?\b([A-Za-z]\w*) ?\([^()]*\)[^;{}]*;"
    functions = re.findall(declared, made[1], re.MULTILINE)
    types = re.findall(r"typedef [\w ]+\b([a-z]\w*_t);", made[1])
    assert len(macros) > 1000 and len(functions) > 300 and len(types) > 30
    unknown = {n for n in (*macros, *functions, *types) if not reserved(n)}
    assert len(unknown) < 5, unknown  # of glibc 2.36 none is; others have some more
    plain = re.findall(r"^#define ([A-Za-z]\w*) ", made[0], re.MULTILINE)
    kept = {n for n in (*types, *plain) if identifier(n, set()) == n}
    assert len({n for n in kept if not header_names.is_function(n)}) < 5


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.few(1)
def test_headers_of_the_library_before_and_after_that_of_an_export(
    threads: int, tmp_path: Path
) -> None:
    """Arguments and results with all the awkward names: both files compile, without warnings."""
    if not COMPILERS:
        pytest.skip("there is no C compiler")
    names = [*AWKWARD, *sorted(WORDS)]
    xs = [uopc.param(name, (3,)) for name in dict.fromkeys(names)]
    graph = {name: xs[i] * 2 + uopc.constant(np.array([1, i, 3], "f4"))
             for i, name in enumerate(("stdout", "B0", "log", "int", "RAND_MAX"))}  # fmt: skip
    graph["rest"] = sum(xs)
    uopc.export(graph, tmp_path / "f", kind="c", threads=threads)
    around = includes(STANDARD, POSIX)
    (tmp_path / "user.c").write_text(f'{around}#include "f.h"\n{around}', "utf-8")
    (tmp_path / "whole.c").write_text(f'{around}#include "f.c"\n', "utf-8")
    strict = [f for f in WARNINGS if not f.startswith("-std")]
    across = ["-x", "c++", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    commands = [[cc, "-std=gnu17", *strict, source]
                for cc in COMPILERS for source in ("f.c", "user.c", "whole.c")]  # fmt: skip
    for command in [*commands, *[[cc, *across, "user.c"] for cc in ACROSS]]:
        done = subprocess.run([*command, "-fsyntax-only"], cwd=tmp_path, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr[:2000]
