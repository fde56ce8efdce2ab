"""The option `--set NAME=VALUE`: sizes that a user gives."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError


def argument(parser: ArgumentParser, text: str) -> None:
    """Add the option. `dict(args.set)` has the values by name."""
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", type=_pair, default=[], help=text
    )


def _pair(text: str) -> tuple[str, int]:
    name, _, value = text.rpartition("=")
    if not name or not value.removeprefix("-").isdecimal():
        raise ArgumentTypeError(f"expected NAME=VALUE with an integer, got {text!r}")
    return name, int(value)
