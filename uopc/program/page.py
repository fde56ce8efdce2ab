"""UOPC_VIZ: the page of a compile, as `uopc dump --html` writes it for a file."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

from uopc import config
from uopc.dump import html
from uopc.errors import UserError
from uopc.program.program import Program


def write(program: Program) -> Path:
    """Write the page of a program's stages, rewrites and code into the folder of `options.viz`.

    The file has the program's name, followed by a number if that file exists. UserError when it
    cannot be written.
    """
    request, stages = program._request, program._stages
    folder, name = config.page_folder(request.options), request.name or "program"
    assert folder is not None
    stem = re.sub(r"\W+", "_", name)
    stages_and_code = program._backend.dump(stages.lowered, request.options.target_cpu)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = (folder / f"{stem}{f'_{n}' if n else ''}.html" for n in count())
        file = next(f for f in files if not f.exists())
        html.write(file, name, stages_and_code)
    except OSError as error:
        raise UserError(f"option viz: {folder}: {error.strerror or error}") from None
    return file
