"""What is worth doing on a GPU, in numbers: every threshold of its heuristic, and why it is so.

Facts about a part itself (multiprocessors, shared memory, registers) are in `backends/target.py`.
None of these was measured on a device: they follow from counts of instructions and sectors, as
`benchmarks/predict_gpu.py` makes them, and from occupancy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uopc.target import Gpu

# Threads of a block of independent threads: eight warps hide latency, and a few blocks fill an SM.
BLOCK = 256
# Neighbours that read or write together: the threads of a warp, and a line of 128 bytes of float32.
WARP = 32
# A reduce shorter than this is faster in one thread than with threads that meet; one whose value
# the threads of a row need is done by a warp where it is as long as that.
LEAST_SHARED, LEAST_BESIDE = 128, 32
# Values that each thread of a shared reduce should have before they meet; of one that every block
# does again for itself, before it begins.
EACH, EACH_AGAIN = 4, 1
# Values of a row that a thread keeps in registers: 32 leave room for what is computed of them.
KEPT = 32
# Bytes that a thread asks for before it waits: 512 threads of an SM then have 32 KiB on their way,
# what 4.3 TB/s of 132 SMs need at a latency of 0.8 us.
IN_FLIGHT = 64
# What blocks do again for themselves may be that part of their work: a loop beside a reduce is cut
# into blocks where it is so many times longer.
MOST_AGAIN, LITTLE = 0.25, 4
# Accumulators of a contraction in one thread: 64 leave registers for the operands, and occupancy.
TILE = 8
# Nodes, functions spelled out, of all lanes of an output. In the time in which a copy's rate brings
# 8 bytes about 60 instructions are issued: with 128 of them an element arithmetic is the limit,
# which vectors do not help, and copies of it fill the registers.
LANE_NODES = 512
# Reduces of so few iterations together are unrolled: their gates fold, neighbours are read once.
# Beside a register tile it is fewer: 3 x 3 unrolled under 32 accumulators spill 1,292 bytes, a row
# of 3 spills nothing (160 registers) and leaves 348 M instructions of the loop's 450 M.
WHOLE_UNROLL, TILE_UNROLL = 16, 4
# A block of a transposed read: 8 threads write lines of 128 bytes, of 4 floats each, and 4 in the
# other direction read lines of 64: whole sectors both ways, by way of registers.
CROSSED = (8, 32)
# Rows that threads which share a sum over rows should have each.
EACH_ROWS = 8
MOST_APART = 32

# Multiplications of 16-bit numbers that mma.sync does in a clock of a multiprocessor: 0.63 of the
# 2,048 that an H100 has for wgmma. Bytes that each multiprocessor gets of L2 in a clock where all
# read: 5.5 TB/s. Both assumed, not measured here.
TENSOR_RATE, L2_RATE = 1290.0, 23.7
# A product whose loops do not fill the tiles of a block may grow to so many times its size.
MOST_PADDING = 4.0
# Rows go together in a block where so many blocks an SM are left.
LEAST_BLOCKS = 4

# Registers of a thread beside what it multiplies and adds up: addresses, counters, what is on its
# way. What ptxas takes in all is within a quarter of the sum (`tests/test_tensor_products.py`).
OTHER_REGISTERS = 48

# Registers of a warp are handed out in these; what a block takes of shared memory beside its own.
REGISTER_UNIT, BLOCK_SHARED = 256, 1024


def capacity(gpu: Gpu) -> int:
    """The threads that a part runs at a time."""
    return gpu.multiprocessors * gpu.threads_per_multiprocessor


def shared_room(gpu: Gpu, threads: int) -> int:
    """The shared memory of a block such that registers limit how many an SM runs, not that."""
    own = threads * (gpu.registers_per_thread + 1)
    blocks = max(1, gpu.registers_per_multiprocessor // own)
    return min(gpu.shared_per_block, gpu.shared_per_multiprocessor // blocks - BLOCK_SHARED)


def occupancy(gpu: Gpu, threads: int, registers: int, shared: int) -> float:
    """The part of an SM's threads that registers, shared memory and the block's size leave."""
    warps = -(-threads // gpu.warp)
    own = -(-registers * gpu.warp // REGISTER_UNIT) * REGISTER_UNIT * warps
    blocks = gpu.threads_per_multiprocessor // (warps * gpu.warp)
    blocks = min(blocks, gpu.blocks_per_multiprocessor)
    blocks = min(blocks, gpu.registers_per_multiprocessor // max(1, own))
    if shared:
        blocks = min(blocks, gpu.shared_per_multiprocessor // (shared + BLOCK_SHARED))
    return blocks * warps * gpu.warp / gpu.threads_per_multiprocessor
