"""A test of the tests: plants defects one at a time, and asks that the suite catches each.

`python -m tests.defects` copies the tree for each defect, changes one line, and runs the tests of
that area, then the others, until one fails. It prints the test that caught it; the exit code is 1
when one was not caught. `--list` prints the defects, `--only WORD` takes some.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import ROOT

# Quick and broad: what is asked when the tests of an area did not notice.
BROAD: Final = (
    "kinds/test_pipeline.py",
    "kinds/test_regressions.py",
    "kinds/test_golden.py",
    "passes/optimize/opts/test_opts.py",
    "tensor/test_methods.py",
    "kinds/test_fuzz.py",
)  # fmt: skip


@dataclass(frozen=True)
class Defect:
    """One line changed: the file, what stands there once, what stands there instead."""

    name: str
    file: str
    right: str
    wrong: str
    area: tuple[str, ...] = ()  # test files that should notice


DEFECTS: Final = (
    Defect(
        "a launch that moves before what it waits for", "uopc/passes/split_kernels/statements.py",
        "if at >= max(ready, 0) else None", "if at >= 0 else None",
        ("passes/split_kernels/test_element_launches.py",),
    ),
    Defect(
        "an element that another launch reads is not stored",
        "uopc/passes/split_kernels/statements.py",
        "        kept |= {use.root for use in spans}\n", "        pass\n",
        ("passes/split_kernels/test_element_launches.py",),
    ),
    Defect(
        "a pad without its lower guard", "uopc/ir/builder/index_maps.py",
        "guard = both(guard, compare.less(affine.const(-1), moved))", "pass",
    ),
    Defect(
        "blocks of a constant without those around them", "uopc/passes/optimize/opts/prepack.py",
        "affine.add(affine.scaled(place, outer), around)", "affine.add(place, around)",
        ("passes/optimize/opts/test_prepack.py",),
    ),
    Defect(
        "an array that its program does not put in order", "uopc/program/artifact.py",
        "    if not c.order:\n", "    if True:\n", ("passes/optimize/opts/test_prepack.py",),
    ),
    Defect(
        "a pad without its upper guard", "uopc/ir/builder/index_maps.py",
        "guard = both(guard, compare.less(moved, dim_uop(d)))", "pass",
    ),
    Defect(
        "a flip that is one element off", "uopc/ir/builder/index_maps.py",
        "last = [affine.sub(affine.plus(dim_uop(d), -1), x)",
        "last = [affine.sub(affine.plus(dim_uop(d), 0), x)",
    ),
    Defect(
        "a permute by the inverse", "uopc/ir/builder/index_maps.py",
        "x[u.arg.index(i)] for i", "x[u.arg[i]] for i",
    ),
    Defect(
        "a shrink that forgets where it begins", "uopc/ir/builder/index_maps.py",
        "moved = tuple([affine.add(x, dim_uop(b)) for x, b in zip(index, begins)])",
        "moved = index",
    ),
    Defect(
        "an index of size 1 that is not repeated", "uopc/ir/builder/index_maps.py",
        "made = tuple([first if d == 1 else x for d, x in zip(dims, kept)])",
        "made = kept",
    ),
    Defect(
        "bounds of a negative coefficient swapped", "uopc/ir/index/affine.py",
        "if f > 0 else (low + f * b, high + f * a)", "if f > 0 else (low + f * a, high + f * b)",
        ("ir/index/test_affine.py",),
    ),
    Defect(
        "less that takes <= for <", "uopc/ir/index/compare.py",
        "    if high < 0:\n        return boolean(True)\n    if low >= 0:",
        "    if high <= 0:\n        return boolean(True)\n    if low >= 0:",
        ("ir/index/test_affine.py",),
    ),
    Defect(
        "a comparison whose constant has the wrong sign", "uopc/ir/index/compare.py",
        "_coarse(terms, -constant)\n    whole", "_coarse(terms, constant)\n    whole",
        ("ir/index/test_affine.py",),
    ),
    Defect(
        "operands that are not packed in tiles", "uopc/passes/optimize/opts/packing.py",
        "last = of_tile.index(d.unit) if d.unit in of_tile else -1", "last = -1",
        ("backends/llvm/test_matrix_units.py",),
    ),
    Defect(
        "signs of bytes in the other order", "uopc/backends/llvm/tiles.py",
        "for t in tile.operands]", "for t in tile.operands[::-1]]",
        ("backends/llvm/test_matrix_units.py",),
    ),
    Defect(
        "tiles though the kernel refuses them", "uopc/backends/detect.py",
        "return own if not own.has_tiles or tile_permission.is_granted() else own.without_tiles()",
        "return own", ("backends/llvm/test_matrix_units.py",),
    ),
    Defect(
        "readers do not wait for what they read", "uopc/passes/effects/versions.py",
        "{u for v in launch.after for u in v.last if u is not e}", "set()",
    ),
    Defect(
        "a write does not wait for earlier readers", "uopc/passes/effects/versions.py",
        "for w in later:\n                self.before[w].add(e)", "pass",
    ),
    Defect(
        "a reduce over the wrong axes", "uopc/ir/builder/index_maps.py",
        "if i not in u.arg.axes:",
        "if len(shapes.shape(u.src[0])) - 1 - i not in u.arg.axes:",
    ),
    Defect(
        "a part of a cat that reads at the whole's index", "uopc/ir/builder/elements.py",
        "inner = () if u.op is Ops.STACK else (moved,)",
        "inner = () if u.op is Ops.STACK else (at,)",
    ),
    Defect(
        "a gather without the check of its index", "uopc/ir/builder/elements.py",
        "chosen, valid = index_maps.plain_index(tuple((yield keys)), index_maps.true())",
        "valid = index_maps.true(); chosen = index_maps.plain_index((yield keys), valid)[0]",
    ),
    Defect(
        "a reversed load that begins at its end", "uopc/passes/devectorize/devectorize.py",
        "self.lane(flat, lanes - 1), gate), lanes)", "self.lane(flat, 0), gate), lanes)",
        ("passes/optimize/opts/test_opts.py",),
    ),
    Defect(
        "a store that drops its gate", "uopc/passes/devectorize/devectorize.py",
        "return _store(storage, flat, value, gate, u.arg)",
        "return _store(storage, flat, value, None, u.arg)",
        ("kinds/test_regressions.py",),
    ),
    Defect(
        "merged ranges in the wrong order", "uopc/passes/simplify_ranges/simplify_ranges.py",
        "        if u is outer:\n            return quotient\n        if u is inner:\n"
        "            return remainder",
        "        if u is outer:\n            return remainder\n        if u is inner:\n"
        "            return quotient",
    ),
    Defect(
        "a carried register that starts anew in the outer loop",
        "uopc/passes/linearize/linearize.py",
        "initial = self.carried[(u, outer)] if inside else self._first(u)",
        "initial = self._first(u)",
    ),
    Defect(
        "blocks that live together share memory", "uopc/backends/memory_plan.py",
        "right = self._blocks[number].last + self._leaves + 1",
        "right = self._blocks[number].last + self._leaves",
        ("backends/test_memory_plan.py",),
    ),
    Defect(
        "in place: a tile does elements of its neighbour again", "uopc/backends/in_place.py",
        "        and _is_read_before(uses, result, value) and _is_written_once(uses, result)\n",
        "        and _is_read_before(uses, result, value)\n", ("backends/test_in_place.py",),
    ),
    Defect(
        "in place: a value is read after its memory was taken", "uopc/program/planner.py",
        "if begin < end == i == spans[result][0] and inside", "if begin < i and inside",
        ("backends/test_in_place.py",),
    ),
    Defect(
        "in place: a loop reads again what it took the memory of", "uopc/program/planner.py",
        "inside = all([r.first <= begin for r in repeated if r.first <= i < r.end])",
        "inside = True", ("backends/test_in_place.py",),
    ),
    Defect(
        "division by zero gives one", "uopc/ir/core/semantics.py",
        "floor_div = _rounding(np.floor_divide)",
        "floor_div = _rounding(lambda a, b: np.where(b == 0, 1, np.floor_divide(a, b)))",
        ("kinds/test_elementwise.py",),
    ),
    Defect(
        "a cast that saturates at the wrong end", "uopc/ir/core/semantics.py",
        "np.where(wide > 0, highest, lowest)", "np.where(wide > 0, lowest, highest)",
        ("kinds/test_elementwise.py",),
    ),
    Defect(
        "a maximum that loses NaN", "uopc/backends/llvm/instructions.py",
        'nan = e.value(f"fcmp uno {ty} {a}, {a}")', 'nan = e.value(f"fcmp one {ty} {a}, {a}")',
        ("kinds/test_elementwise.py",),
    ),
    Defect(
        "0.0 and -0.0 are one constant", "uopc/ir/core/constants.py",
        "if type(arg) is float and (arg == 0.0 or arg != arg):",
        "if type(arg) is float and arg != arg:", ("test_public_api.py",),
    ),
    Defect(
        "an output that is the caller's array", "uopc/passes/effects/views.py",
        "        return reshaped_base(v).op is Ops.AFTER\n", "        pass\n",
        ("kinds/test_regressions.py",),
    ),
    Defect(
        "a narrow float that rounds half up", "uopc/passes/decompose/floats/soft_floats.py",
        "odd = (size_bits >> shift) & 1", "odd = (size_bits >> shift) | 1",
    ),
    Defect(
        "GPU: a store of one thread that all of them do",
        "uopc/passes/place_threads/place_threads.py",
        "return None if storage_root(u.src[0]) in self.own else _only_first(u, self.launch)",
        "return None", ("ir/interpret/test_threads.py", "backends/cuda/test_cuda_programs.py"),
    ),
    Defect(
        "GPU: threads read what a store of another one changes",
        "uopc/passes/place_threads/place_threads.py",
        "if u in self.read_by_first:", "if False:", ("ir/interpret/test_threads.py",),
    ),
    Defect(
        "GPU: warps that do not wait for each other's parts",
        "uopc/passes/place_threads/block_reduce.py",
        "ready = _after(buffer, stored)",
        "ready = intern(Ops.AFTER, buffer.dtype, (buffer, stored))",
        ("ir/interpret/test_threads.py", "passes/place_threads/test_barriers.py"),
    ),
    Defect(
        "GPU: a shared reduce in a loop that writes before all have read",
        "uopc/passes/place_threads/block_reduce.py",
        "free = _after(buffer, value)", "free = buffer",
        (
            "ir/interpret/test_threads.py",
            "passes/place_threads/test_barriers.py",
            "backends/cuda/test_cuda_programs.py",
        ),
    ),
    Defect(
        "GPU: an exchange too few in a warp", "uopc/passes/place_threads/block_reduce.py",
        "while step > 1:", "while step > 2:", ("ir/interpret/test_threads.py",),
    ),
    Defect(
        "GPU: a shared tile that is filled again while it is read",
        "uopc/passes/place_threads/barriers.py",
        "return rebuild.rebuild(end, addresses)", "return end",
        (
            "backends/nvptx/test_tensor_cores.py",
            "passes/optimize/schedule/test_gpu_tensor_cores.py",
        ),
    ),
    Defect(
        "GPU: a slice that is read before its copy is there",
        "uopc/passes/place_threads/pipelined_tiles.py",
        "(*done, loop), count - 2)", "(*done, loop), count - 1)",
        ("backends/nvptx/test_tensor_cores.py",),
    ),
    Defect(
        "GPU: a tile whose pieces wait for banks", "uopc/passes/place_threads/swizzle.py",
        "affine.add(affine.scaled(moved, piece), inside)",
        "affine.add(affine.scaled(column, piece), inside)",
        ("passes/place_threads/test_swizzle.py",),
    ),
    Defect(
        "GPU: rows of a matrix that ldmatrix reads twice", "uopc/passes/expand/fragments.py",
        "matrix, row = affine.divmod_(lane, affine.const(8))",
        "matrix, row = lane // 8, lane % 4",
        ("backends/nvptx/test_tensor_cores.py",),
    ),
    Defect(
        "GPU: copies ahead that do not see their gate", "uopc/backends/nvptx/kernel.py",
        'if len(load.src) > 1:\n        name += ".s"', 'if False:\n        name += ".s"',
        ("passes/optimize/schedule/test_gpu_tensor_cores.py",),
    ),
    Defect(
        "words: a signed byte as an unsigned one", "uopc/passes/expand/words.py",
        "(b, a) if signed else (a, b)", "(a, b)", ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "words: the bytes that are turned are not", "uopc/passes/expand/words.py",
        "_TOP = -0x7F7F7F80", "_TOP = -0x7F7F7F00", ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "lookups: codes with a sign in the order of their values",
        "uopc/passes/decompose/lookups.py", "low + (i - low) % count", "low + i",
        ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "lookups: the first byte of each word for any", "uopc/passes/decompose/lookups.py",
        "behind + bits * part.arg[0] + first", "behind + first",
        ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "lookups: codes of two bits with two of the next byte", "uopc/passes/decompose/lookups.py",
        "if first + 4 > bits:", "if first >= bits:",
        ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "lookups: arrays that end before their table", "uopc/passes/decompose/lookups.py",
        "high < u.dtype.lanes <= size", "high < u.dtype.lanes",
        ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "lines fetched at their distance", "uopc/backends/llvm/statements.py",
        "there = e.element(e.address(load.src[0]).removeprefix(\"ptr \"), t, ahead)",
        "there = e.address(load.src[0]).removeprefix(\"ptr \")",
        ("passes/optimize/schedule/test_quantised.py",),
    ),
    Defect(
        "GPU: vectors at addresses that are not aligned", "uopc/backends/nvptx/kernel.py",
        "step = math.gcd(step * u.dtype.itemsize, known) or known", "step = known",
        ("backends/cuda/test_cuda_programs.py",),
    ),
    Defect(
        "GPU: places beyond 2^31 in 32 bits", "uopc/backends/llvm/index_width.py",
        "return bounds.holds(dtypes.int32, u)", "return bounds.holds(dtypes.int64, u)",
        ("kinds/test_large_arrays.py", "backends/nvptx/test_kernel.py"),
    ),
    Defect(
        "GPU: an instruction that an older part has not", "uopc/target.py",
        "(dtypes.fp8e4m3, 89)", "(dtypes.fp8e4m3, 80)",
        ("backends/nvptx/test_kernel.py", "backends/nvptx/test_float_conversions.py"),
    ),
    Defect(
        "GPU: the read-only cache for what the kernel writes", "uopc/backends/nvptx/calls.py",
        "constant[kernel].discard(slot)", "pass",
        ("backends/nvptx/test_kernel.py", "backends/cuda/test_cuda_programs.py"),
    ),
    Defect(
        "results that begin at a cache line", "uopc/backends/cpu/memory_ir.py",
        "(block + (BLOCK.size + line - 1)) & -line", "block + BLOCK.size",
        ("backends/cpu/test_array_memory.py",),
    ),
    Defect(
        "waiting threads that give way", "uopc/backends/cpu/launch_ir.py",
        "        pool.give_way()", "        pass",
        ("backends/cpu/test_pool.py",),
    ),
    Defect(
        "GPU: memory that is not handed out again", "uopc/backends/cuda/pool.py",
        "self._free.setdefault(size, []).append(address)", "pass",
        ("backends/cuda/test_cuda_runtime.py",),
    ),
    Defect(
        "mesh: padding of uneven parts is added up", "uopc/passes/partition/rules.py",
        "if self.sizes.has_padding(v.dims[d], axes):", "if False:",
        ("passes/partition/test_partition.py",),
    ),
    Defect(
        "mesh: a window along a symbolic size reaches one neighbour alone",
        "uopc/passes/partition/halo.py",
        "return min(self.parts - 1, -(-rows // least))", "return 1",
        ("passes/partition/test_partition.py",),
    ),
    Defect(
        "mesh: rows of a shorter part follow where the next one begins",
        "uopc/passes/partition/halo.py",
        "affine.scaled(self.first, hop if side < 0 else 1 - hop)",
        "affine.scaled(self.first, hop if side < 0 else 0)",
        ("passes/partition/test_partition.py",),
    ),
    Defect(
        "mesh: the last parts of a symbolic size are as long as the first",
        "uopc/ir/devices/part_sizes.py",
        "own = intern(Ops.MIN, dtypes.index, (most, left))", "own = most",
        ("passes/partition/test_partition.py", "passes/partition/test_symbolic.py"),
    ),
    Defect(
        "mesh: what a bucket's memory of its own holds is not copied back",
        "uopc/backends/exchange/device_run.py",
        "back = [partial(move, there, here, n) for there, here, n in moved]",
        "back = []", ("passes/test_place_exchanges.py",),
    ),
    Defect(
        "ranks: rows go to the other neighbour", "uopc/backends/plan.py",
        "return traffic.target(self, place), traffic.source(self, place)",
        "return traffic.source(self, place), traffic.target(self, place)",
        ("backends/exchange/test_nccl.py",),
    ),
    Defect(
        "ranks: a loop with exchanges runs once", "uopc/backends/exchange/rank_call.py",
        "for _ in range(times):", "for _ in range(1):", ("backends/exchange/test_mpi.py",),
    ),
    Defect(
        "mesh: a loop with exchanges runs once", "uopc/backends/exchange/device_call.py",
        "for _ in range(part.times):", "for _ in range(1):", ("passes/partition/test_loops.py",),
    ),
    Defect(
        "ranks: a call exchanges the memory of the last one", "uopc/backends/exchange/rank_call.py",
        "if ready is None or not changed.isdisjoint(_bases_of([part])):", "if ready is None:",
        ("backends/exchange/test_mpi.py",),
    ),
    Defect(
        "mesh: memory is used again while an exchange runs", "uopc/program/planner.py",
        "[own[0], max([busy.get(i, i) for i in own])]", "[own[0], own[-1]]",
        ("backends/exchange/test_overlap.py",),
    ),
    Defect(
        "mesh: an exchange is awaited after the launch that needs it", "uopc/passes/sharding.py",
        "found[number] = end - number - 1", "found[number] = end - number",
        ("backends/exchange/test_overlap.py",),
    ),
    Defect(
        "mesh: a call runs with the memory of the last one", "uopc/backends/exchange/device_run.py",
        "if last == key and found is not None:", "if found is not None:",
        ("passes/test_place_exchanges.py", "backends/exchange/test_mesh_programs.py"),
    ),
    Defect(
        "quotients: numerators that come close to ties are not tried",
        "uopc/passes/place_stages/rounded_quotients.py",
        "if all([_is_quotient(x, c, r, s, bits) for x in _close_calls(c, off, bits)]):",
        "if all([_is_quotient(x, c, r, s, bits) for x in []]):",
        ("passes/place_stages/test_rounded_quotients.py",),
    ),
    Defect(
        "quotients: an infinity becomes NaN", "uopc/passes/place_stages/rounded_quotients.py",
        "r = _to_bits(exact, bits, down=True)", "r = _to_bits(exact, bits)",
        ("passes/place_stages/test_rounded_quotients.py",),
    ),
    Defect(
        "clips: one that is read elsewhere goes too", "uopc/passes/canonicalize/needless_clips.py",
        "if any([len(readers[v]) > 1 for v in (*above, clip)]):", "if not above and not readers:",
        ("passes/place_stages/test_rounded_quotients.py",),
    ),
    Defect(
        "loops: a guard of the store alone keeps rows apart", "uopc/passes/analysis/iterations.py",
        "map(_guarded, (target, access), parts)", "map(_guarded, (target, target), parts)",
        ("passes/analysis/test_iterations.py",),
    ),
    Defect(
        "Dask: intermediates do not reach the next phase", "uopc/backends/exchange/dask_tasks.py",
        "data_address(memory.intermediates), memory.intermediates.nbytes)",
        "data_address(memory.intermediates), 0)", ("backends/exchange/test_dask_tasks.py",),
    ),
    Defect(
        "Dask: rows go to the other neighbour", "uopc/backends/exchange/dask_tasks.py",
        "[traffic.source(exchange, i)", "[traffic.target(exchange, i)",
        ("backends/exchange/test_dask_tasks.py",),
    ),
)


def occurrences(defect: Defect) -> int:
    """The number of times that the right text stands in the file: 1, or the list is out of date."""
    return (ROOT / defect.file).read_text("utf-8").count(defect.right)


def planted(defect: Defect, folder: Path) -> None:
    """A copy of the tree with the defect in it."""
    kept = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=kept, dirs_exist_ok=True)
    path = folder / defect.file
    path.write_text(path.read_text("utf-8").replace(defect.right, defect.wrong), "utf-8")


def catcher(defect: Defect, folder: Path) -> str | None:
    """The first test that fails, or None when all pass."""
    rest = [name for name in BROAD if name not in defect.area]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in (*defect.area, *rest):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--all", "-p", "no:cacheprovider"]
        try:
            run = subprocess.run(
                [*command, f"tests/{name}"], cwd=folder, env=environment, text=True,
                capture_output=True, timeout=600,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{name} (hangs)"
        if run.returncode:
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.M)
            return failed[1] if failed else f"{name} (exit code {run.returncode})"
    return None


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.defects", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [d for d in DEFECTS if options.only in d.name]
    missed = 0
    for defect in chosen:
        if options.list:
            print(f"{defect.name}: {defect.file}")
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            planted(defect, Path(folder))
            caught = catcher(defect, Path(folder))
        missed += caught is None
        seconds = time.monotonic() - start
        print(f"{seconds:6.1f} s  {defect.name}: {caught or 'NOT CAUGHT'}", flush=True)
    print(f"{len(chosen)} defects, {len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
