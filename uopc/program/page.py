"""UOPC_VIZ: the page of a compile, as `uopc dump --html` writes it for a file."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

from uopc import config
from uopc.dump import html
from uopc.dump.stages import ASM, LLVM, Dump, kernel_facts, table, text_row
from uopc.errors import UserError
from uopc.program.program import Program


def write(program: Program) -> Path:
    """Write the page of a program's stages, rewrites and code into the folder of `options.viz`.

    The file has the program's name, and a number behind it if there is one already. UserError when
    it cannot be written.
    """
    request, lowered = program._request, program._stages.lowered
    name = request.name or "program"
    dump = Dump(lowered)
    code = {
        LLVM: {k.name: k.source for k in program.kernels},
        ASM: {k.name: k.asm for k in program.kernels},
    }
    rows = table(dump)
    for stage, texts in code.items():
        rows.append(text_row(stage, rows[-1].number, texts, program.stats[LLVM]))
    facts = kernel_facts(lowered, lowered.kernels)
    kernels = [k | {stage: code[stage][k["name"]] for stage in code} for k in facts]
    file = _free(request.options, re.sub(r"\W+", "_", name))
    html.write(file, name, dump, rows, kernels)
    return file


def _free(options: config.Options, stem: str) -> Path:
    """A file of this name in the folder, which is made, that does not exist yet."""
    folder = config.page_folder(options)
    assert folder is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"option viz: {folder}: {error.strerror or error}") from None
    names = (f"{stem}{f'_{n}' if n else ''}.html" for n in count())
    return next(folder / name for name in names if not (folder / name).exists())
