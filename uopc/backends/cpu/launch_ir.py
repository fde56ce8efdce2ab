"""Run launches and spread one over threads, as LLVM IR.

The caller publishes a job: it stores the function, the context and the number of chunks, then a new
`word` with the epoch in the upper half and the next chunk in the lower. The thread that advances
the word by one owns that chunk. The caller claims chunks like a worker, so it waits only for chunks
that workers have claimed. It closes the word before it changes the fields again: then a late
worker, which may have read old and new fields, cannot claim a chunk.

Who waits gives way every few microseconds. Where other threads keep cores busy, the caller and a
worker may have one core between them: a worker that only spun would keep the caller from its chunk,
and a caller the worker.
"""

from __future__ import annotations

import platform

from uopc.backends.cpu.structs import (
    CLOSED,
    JUMP,
    JUMP_WORDS,
    KERNEL,
    LAUNCH,
    POOL,
    RUN,
    TABLE,
    TOGETHER,
    WORDS,
)
from uopc.backends.llvm.builder import (
    I64,
    VOID,
    BasicBlock,
    Builder,
    Operand,
    PointerTo,
    Words,
    function,
)

# The instruction that tells the processor this is a waiting loop.
_X86_PAUSE, _ARM_PAUSE = "call void @llvm.x86.sse2.pause()", "call void @llvm.aarch64.hint(i32 1)"
_PAUSES = {
    "x86_64": _X86_PAUSE, "AMD64": _X86_PAUSE, "aarch64": _ARM_PAUSE, "arm64": _ARM_PAUSE,
}  # fmt: skip
PAUSE = _PAUSES.get(platform.machine(), "")
BURST = 256  # pauses: a few microseconds, beside which a call of the system is short
_POOL, _TABLE, _LAUNCH = PointerTo(POOL), PointerTo(TABLE), PointerTo(LAUNCH)
_MEETING = PointerTo(Words(pool=_POOL, tables=I64))  # the words of a launch of `meet`
# Of tables that run together.
_CONTEXT = PointerTo(Words(record=PointerTo(JUMP), bases=WORDS, run=RUN))


def acquire(b: Builder, flag: Operand, taken: BasicBlock) -> None:
    """Set a flag, or go to a block if another thread has set it."""
    b.check(flag.exchange(0, 1, "acquire monotonic"), taken)


def _pause(b: Builder) -> None:
    if PAUSE:
        b.effect(PAUSE)


@function(VOID, _TABLE, WORDS)
def run(b: Builder, table: Operand, bases: Operand) -> None:
    """Run the launches of a table.

    A launch: kernel, chunks, parallel, words, then per word a base number and an offset. A plain
    number is an offset from the last base, which is zero.
    A record that jumps: 0, times, counter, bytes. The counter says how often it was passed; after
    so many times it jumps so many bytes from its end, and counts anew. One at the begin of a
    repeated row leaves the row; one at its end, with 0 times, goes back to the one at the begin.
    A record of tables that run together has the counter TOGETHER: 0, tables, TOGETHER, 0, pool,
    then where the table is that does all in order, and each of the others, in bytes from the record
    on. It is the only one of its table.
    """
    nbytes, widest, most = table.bytes, table.widest, table.counters
    pool, helpers = table.pool, table.helpers
    words, counters = b.alloca(I64, widest, align=64), b.alloca(I64, most)
    first = table.address("records")
    last = first + nbytes
    with b.count_to(most) as c:
        counters[c] = 0
    step, end, jump = b.block(_LAUNCH), b.block(), b.block()
    (record,) = b.begin(step, first)
    b.check(record < last, end)
    kernel, chunks = record.kernel, record.chunks
    b.leave(kernel.eq(None), jump)

    parallel, count, pairs = record.parallel, record.count, record.address("pairs")
    with b.count_to(count) as w:
        pair = pairs.at(w)
        number, offset = pair.base, pair.offset
        words[w] = bases[number] + offset
    following = pairs.at(count).to(_LAUNCH)
    with b.when(parallel.ne(0)):
        spread(pool, kernel, words, chunks, helpers)
        b.go(step, following)
    with b.count_to(chunks) as i:
        kernel(words, i)
    b.go(step, following)

    b.begin(jump)
    record = record.to(PointerTo(JUMP))
    number, leave = record.counter, b.block()
    with b.when(number.eq(TOGETHER)):
        together(record, bases, run)
        b.ret()
    distance, behind = record.distance, record.to(_LAUNCH) + 8 * JUMP_WORDS
    done = counters[number]
    b.check(done.compare("slt", chunks), leave)
    counters[number] = done + 1
    b.go(step, behind)
    b.begin(leave)
    counters[number] = 0
    b.go(step, behind + distance)
    b.begin(end)


@function(VOID, PointerTo(JUMP), WORDS, RUN)
def together(b: Builder, record: Operand, bases: Operand, run: Operand) -> None:
    """Run each table on a thread of its own. If a thread would have to run two tables, run the
    table that does all in order: a thread cannot wait for itself."""
    context = b.alloca(WORDS, 3)
    tables, pool, offsets = record.times, record.pool, record.address("offsets")
    helpers, serial = tables - 1, b.block()
    b.check(pool.address("most").atomic("monotonic").compare("sge", helpers), serial)
    acquire(b, pool.address("busy"), serial)
    pool.address("met").set(0, "monotonic")
    for place, value in enumerate((record, bases, run)):
        context[place] = value
    publish(pool, one_table, context, tables, helpers)
    b.ret()
    b.begin(serial)
    run(record + offsets[0], bases)


@function(VOID, _CONTEXT, I64)
def one_table(b: Builder, context: Operand, i: Operand) -> None:
    """Run one of the tables."""
    record, bases, run = context.record, context.bases, context.run
    run(record + record.address("offsets")[i + 1], bases)


@function(VOID, _MEETING, I64)
def meet(b: Builder, words: Operand, chunk: Operand) -> None:
    """Wait until as many tables have come as there are. Each has the same number of these
    launches."""
    pool, tables = words.pool, words.tables
    met = pool.address("met")
    before = met.update("add", 1, "acq_rel") // tables
    wait_until(pool, met, (before + 1) * tables)


@function(VOID, _POOL, WORDS, I64)
def wait_until(b: Builder, pool: Operand, counter: Operand, least: Operand) -> None:
    """Wait until `counter`, which other threads count up, is at least `least`."""
    wait, end = b.block(I64), b.block()
    (spun,) = b.begin(wait, 0)
    b.leave(counter.atomic("acquire") >= least, end)
    b.go(wait, _spin(b, pool, spun))
    b.begin(end)


def _spin(b: Builder, pool: Operand, spun: Operand) -> Operand:
    """Spin once more, and give way after each BURST. Return how often the thread has spun."""
    _pause(b)
    more = spun + 1
    with b.when((more & (BURST - 1)).eq(0)):
        pool.give_way()
    return more


@function(VOID, KERNEL, WORDS, I64)
def in_order(b: Builder, function: Operand, context: Operand, chunks: Operand) -> None:
    """Run all chunks."""
    with b.count_to(chunks) as i:
        function(context, i)


@function(I64, WORDS)
def try_acquire(b: Builder, flag: Operand) -> None:
    """Set a flag: 1, or 0 if another thread has set it."""
    taken = b.block()
    acquire(b, flag, taken)
    b.ret(1)
    b.begin(taken)
    b.ret(0)


@function(VOID, I64)
def relax(b: Builder, times: Operand) -> None:
    """Spin `times` times."""
    again = b.block(I64)
    (i,) = b.begin(again, 0)
    _pause(b)
    more = i + 1
    b.leave(more < times, again, more)


@function(VOID, _POOL, I64)
def claim(b: Builder, pool: Operand, epoch: Operand) -> None:
    """Claim and run chunks of the current job until there are none or the epoch is over. The caller
    of `spread` and the workers do the same."""
    word_at, done_at = pool.address("word"), pool.address("done")
    look, end = b.block(), b.block()
    b.begin(look)
    word = word_at.atomic("acquire")
    b.check((word >> 32).eq(epoch), end)
    chunk = word & 0xFFFFFFFF
    chunks, function, context = _published(pool, "chunks", "function", "context")
    b.check(chunk < chunks, end)
    b.check(word_at.exchange(word, word + 1, "acq_rel monotonic"), look)
    function(context, chunk)
    done_at.update("add", 1, "release")
    b.go(look)
    b.begin(end)


def _published(pool: Operand, *fields: str) -> list[Operand]:
    return [pool.address(name).atomic("monotonic") for name in fields]


@function(VOID, _POOL, KERNEL, WORDS, I64, I64)
def spread(
    b: Builder, pool: Operand, function: Operand, context: Operand, chunks: Operand,
    helpers: Operand,
) -> None:  # fmt: skip
    """Run the chunks of a launch on this thread and at most `helpers` others, or all on this
    thread."""
    serial = b.block()
    wanted = b.intrinsic("smin.i64", I64, helpers, chunks - 1)
    most = pool.address("most").atomic("monotonic")
    useful = b.intrinsic("smin.i64", I64, wanted, most)
    b.check(useful.compare("sgt", 0) & chunks.compare("slt", CLOSED), serial)
    acquire(b, pool.address("busy"), serial)
    publish(pool, function, context, chunks, useful)
    b.ret()
    b.begin(serial)
    in_order(function, context, chunks)


@function(VOID, _POOL, KERNEL, WORDS, I64, I64)
def publish(
    b: Builder, pool: Operand, function: Operand, context: Operand, chunks: Operand, useful: Operand
) -> None:
    """Run one job of a pool whose flag the caller has set; the flag is clear at the end."""
    job = {"function": function, "context": context, "chunks": chunks, "helpers": useful}
    for name, value in job.items():
        pool.address(name).set(value, "monotonic")
    pool.address("done").set(0, "monotonic")
    word = pool.address("word")
    epoch = ((word.atomic("monotonic") >> 32) + 1) & 0xFFFFFFFF
    open_word = epoch << 32
    word.set(open_word, "seq_cst")
    workers = pool.address("workers")
    with b.count_to(useful) as i:
        worker = workers.at(i)
        asleep = worker.address("asleep")
        b.check(asleep.atomic("seq_cst").ne(0), i.again)
        b.check(asleep.update("xchg", 0, "seq_cst").ne(0), i.again)
        pool.release(worker.lock)
    claim(pool, epoch)
    wait_until(pool, pool.address("done"), chunks)
    word.set(open_word | CLOSED, "release")
    pool.address("busy").set(0, "release")


@function(VOID, _POOL, I64, I64)
def worker(b: Builder, pool: Operand, index: Operand, epoch_at_start: Operand) -> None:
    """Take part in jobs for ever: spin for a while after each, then sleep on the worker's lock."""
    own = pool.address("workers").at(index)
    asleep, lock, acquire = own.address("asleep"), own.lock, pool.acquire
    wait, spin, news = b.block(I64), b.block(I64), b.block()
    (seen,) = b.begin(wait, epoch_at_start)
    limit = pool.spin
    (spun,) = b.begin(spin, 0)
    epoch = pool.address("word").atomic("acquire") >> 32
    b.leave(epoch.ne(seen), news)
    more = _spin(b, pool, spun)
    b.leave(more < limit, spin, more)
    asleep.update("xchg", 1, "seq_cst")
    sleep = b.block()
    with b.when((pool.address("word").atomic("seq_cst") >> 32).ne(seen)):
        # If someone took the mark meanwhile, the lock is released too and has to be consumed.
        b.leave(asleep.update("xchg", 0, "seq_cst").ne(0), spin, 0)
        b.go(sleep)
    b.begin(sleep)
    acquire(lock, 1)
    b.go(spin, 0)
    b.begin(news)
    b.check(index.compare("slt", pool.address("helpers").atomic("monotonic")), wait, epoch)
    claim(pool, epoch)
    b.go(wait, epoch)
