"""Records of drawn cases: a line of JSON each, in a file with which a later run goes on."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

R = TypeVar("R")  # a dataclass of numbers and texts
Case = TypeVar("Case")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The options of a benchmark whose cases have numbers."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--out", type=Path, help="records, a line of JSON each")
    parser.add_argument(
        "--minutes", type=float, default=math.inf,
        help="stop after this many minutes; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, nargs="*", help="report the records of these files")
    parser.add_argument("--page", type=Path, help="the page of the benchmark")
    return parser


def numbers_of(texts: Iterable[str]) -> list[int]:
    """Numbers and ranges, as written: `17`, `40:80`."""
    found: list[int] = []
    for text in texts:
        first, _, end = text.partition(":")
        found += range(int(first), int(end or int(first) + 1))
    return found


def read(paths: Iterable[Path], kind: type[R]) -> list[R]:
    """The records of some files."""
    rows = [row for path in paths for row in path.read_text("utf-8").splitlines()]
    return [kind(**json.loads(row)) for row in rows]


def recorded(
    args: argparse.Namespace, kind: type[R], cases: Iterable[Case],
    case_of: Callable[[R], Case], measured: Callable[[Case], R], shown: Callable[[R], str],
) -> list[R]:  # fmt: skip
    """The records of the file `args.out` and those of the cases that it lacks, which are measured,
    printed and added to the file until the minutes are over."""
    records = read([args.out], kind) if args.out and args.out.exists() else []
    done = {case_of(r) for r in records}
    end = time.monotonic() + 60 * args.minutes
    for case in cases:
        if case in done or time.monotonic() > end:
            continue
        record = measured(case)
        records.append(record)
        print(shown(record), flush=True)
        if args.out:
            fields: Any = record
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(fields)) + "\n")
    return records


def report_all(
    args: argparse.Namespace, records: list[R],
    report: Callable[[list[R]], Iterator[str]], page: Callable[[list[R]], Iterator[str]],
) -> None:  # fmt: skip
    """Print the report of the records, and write the page `args.page`."""
    print()
    print(*report(records), sep="\n")
    if args.page:
        args.page.write_text("\n".join(page(records)) + "\n", "utf-8")
