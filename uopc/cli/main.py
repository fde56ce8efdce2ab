"""The command line: `uopc COMMAND …`. Each command is a module here with `arguments` and `run`.

Exit code 0; 1 when the input is bad (the message is on stderr); 2 for wrong usage. Output is
coloured on a terminal unless NO_COLOR is set, and plain otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from uopc import __version__

# Each command is the module of the same name. Its docstring is the command's help.
COMMANDS = {
    "dump": "show every stage of a graph on its way to machine code",
    "run": "run a graph on random arrays and time each kernel",
    "cost": "predict the time of each kernel, and say where it goes",
    "export": "write a graph as object code or a library that needs no Python",
    "replay": "compare the kernels of a corpus before and after a change",
    "passes": "list the passes in order, and the reasons for the order",
    "ops": "list the ops, or describe one in full",
    "rules": "list the simplification rules in the order they are tried",
    "check": "test every simplification rule on numbers",
    "tune": "search for the fastest schedule of graphs, and keep it for later compiles",
    "bench": "time a model, or run a benchmark of a source checkout",
    "cache": "list compiled programs on disk, explain a hit or miss, remove them",
    "doctor": "say what works on this machine, and why the rest does not",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code. Only the module of the command is imported."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        "uopc", description="A tensor compiler whose every stage can be read."
    )
    parser.add_argument("--version", action="version", version=f"uopc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((a for a in arguments if a in COMMANDS), "")
    module: Any = None
    refuse = parser.error
    for name, text in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == asked:
            module = import_module(f"uopc.cli.{name}")
            command.description, refuse = module.__doc__, command.error
            module.arguments(command)
    word = next((a for a in arguments if not a.startswith("-")), "")
    if word and not asked:
        import difflib  # only needed for an unknown command

        like = difflib.get_close_matches(word, COMMANDS, 1)
        parser.error(f"no command {word!r}{f': did you mean {like[0]}?' if like else ''}")
    args = parser.parse_args(arguments)
    from uopc.cli.output import Output
    from uopc.errors import Error

    try:
        code: int = module.run(args, Output(), refuse)
        sys.stdout.flush()
    except Error as error:
        print(f"uopc: {error}", *getattr(error, "__notes__", ()), sep="\n  ", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
