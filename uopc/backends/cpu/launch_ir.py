"""Run launches and spread one over threads, as LLVM IR.

The caller publishes a job: it stores the function, the context and the number of chunks, then a new
`word` with the epoch in the upper half and the next chunk in the lower. The thread that advances
the word by one owns that chunk. The caller claims chunks like a worker, so it waits only for chunks
that workers have claimed. It closes the word before it changes the fields again: then a late
worker, which may have read old and new fields, cannot claim a chunk.
"""

RUN = """
; table: bytes of all records, widest, counters, pool, helpers; per launch: kernel, chunks,
; parallel, words, then per word a base number and an offset. A plain number is an offset from the
; last base, which is zero.
; A record that jumps: 0, times, counter, bytes. The counter says how often it was passed; after
; so many times it jumps so many bytes from its end, and counts anew. One at the begin of a repeated
; row leaves the row; one at its end, with 0 times, goes back to the one at the begin.
; A record of tables that run together has the counter {together}: 0, tables, {together}, 0, pool,
; then where the table is that does all in order, and each of the others, in bytes from the record
; on. It is the only one of its table.
define void @run(ptr %table, ptr %bases) {
start:
  %bytes = field i64 %table 0
  %widest = field i64 %table 8
  %most = field i64 %table 16
  %pool = field ptr %table 24
  %helpers = field i64 %table 32
  %words = alloca i64, i64 %widest, align 64
  %counters = alloca i64, i64 %most, align 8
  %first = getelementptr i8, ptr %table, i64 40
  %last = getelementptr i8, ptr %first, i64 %bytes
  br label %clear
clear:
  loop %c = 0 to %most from %start, %counter do %counter else %next
counter:
  put i64 0 %counters %c
  br label %clear
next:
  %record = phi ptr [%first, %clear], [%record_next, %spread], [%record_next, %chunk],
    [%after_jump, %pass], [%target, %leave]
  if ult ptr %record, %last then %look else %end
look:
  %kernel = field ptr %record 0
  %chunks = field i64 %record 8
  if eq ptr %kernel, null then %jump else %launch
jump:
  %number = field i64 %record 16
  if eq i64 %number, {together} then %tables else %jumping
tables:
  call void @together(ptr %record, ptr %bases, ptr @run)
  ret void
jumping:
  %distance = field i64 %record 24
  %after_jump = getelementptr i8, ptr %record, i64 {jump_bytes}
  %done = item i64 %counters %number
  if slt i64 %done, %chunks then %pass else %leave
pass:
  %done_next = add i64 %done, 1
  put i64 %done_next %counters %number
  br label %next
leave:
  put i64 0 %counters %number
  %target = getelementptr i8, ptr %after_jump, i64 %distance
  br label %next
launch:
  %parallel = field i64 %record 16
  %count = field i64 %record 24
  %pairs = getelementptr i8, ptr %record, i64 32
  br label %fill
fill:
  loop %w = 0 to %count from %launch, %word do %word else %call
word:
  %pair = getelementptr [2 x i64], ptr %pairs, i64 %w
  %base_number = field i64 %pair 0
  %offset = field i64 %pair 8
  %base = item i64 %bases %base_number
  %value = add i64 %base, %offset
  put i64 %value %words %w
  br label %fill
call:
  %record_next = getelementptr [2 x i64], ptr %pairs, i64 %count
  if eq i64 %parallel, 0 then %serial else %spread
spread:
  call void @spread(ptr %pool, ptr %kernel, ptr %words, i64 %chunks, i64 %helpers)
  br label %next
serial:
  br label %chunk
chunk:
  loop %i = 0 to %chunks from %serial, %one do %one else %next
one:
  call void %kernel(ptr %words, i64 %i)
  br label %chunk
end:
  ret void
}
"""

SPREAD = """
; Run each table on a thread of its own, or the one that does all in order: one thread that ran
; two of them would wait for itself.
define void @together(ptr %record, ptr %bases, ptr %run) {
start:
  %context = alloca [3 x ptr], align 8
  %tables = field i64 %record 8
  %pool = field ptr %record {jump_bytes}
  %offsets = getelementptr i8, ptr %record, i64 {together_offsets}
  %helpers = sub i64 %tables, 1
  %most = atomic i64 %pool {p.most} monotonic
  if sge i64 %most, %helpers then %enter else %serial
enter:
  %busy_at = getelementptr i8, ptr %pool, i64 {p.busy}
  acquire %busy_at then %all else %serial
all:
  set i64 0 %pool {p.met} monotonic
  put ptr %record %context 0
  put ptr %bases %context 1
  put ptr %run %context 2
  call void @publish(ptr %pool, ptr @one_table, ptr %context, i64 %tables, i64 %helpers)
  ret void
serial:
  %offset = field i64 %offsets 0
  %table = getelementptr i8, ptr %record, i64 %offset
  call void %run(ptr %table, ptr %bases)
  ret void
}

define internal void @one_table(ptr %context, i64 %i) {
start:
  %record = field ptr %context 0
  %bases = field ptr %context 8
  %run = field ptr %context 16
  %offsets = getelementptr i8, ptr %record, i64 {together_offsets}
  %own = add i64 %i, 1
  %offset = item i64 %offsets %own
  %table = getelementptr i8, ptr %record, i64 %offset
  call void %run(ptr %table, ptr %bases)
  ret void
}

; words: the pool, the number of tables. Each table has the same number of these launches.
define void @meet(ptr %words, i64 %chunk) {
start:
  %pool = field ptr %words 0
  %tables = field i64 %words 8
  %met_at = getelementptr i8, ptr %pool, i64 {p.met}
  %ticket = atomicrmw add ptr %met_at, i64 1 acq_rel
  %before = udiv i64 %ticket, %tables
  %after = add i64 %before, 1
  %wanted = mul i64 %after, %tables
  call void @wait_until(ptr %pool, ptr %met_at, i64 %wanted)
  ret void
}

; Other threads count up to at least so many: spin for a while, then let others have the processor.
define internal void @wait_until(ptr %pool, ptr %counter, i64 %least) {
start:
  %limit = field i64 %pool {p.spin}
  br label %wait
wait:
  %spun = phi i64 [0, %start], [%spun_next, %rest], [0, %yield]
  %count = atomic i64 %counter 0 acquire
  if uge i64 %count, %least then %end else %rest
rest:
  {pause}
  %spun_next = add i64 %spun, 1
  if ult i64 %spun_next, %limit then %wait else %yield
yield:
  %give_way = field ptr %pool {p.yield}
  %ignored = call i32 %give_way()
  br label %wait
end:
  ret void
}

define internal void @in_order(ptr %function, ptr %context, i64 %chunks) {
start:
  br label %next
next:
  loop %i = 0 to %chunks from %start, %one do %one else %end
one:
  call void %function(ptr %context, i64 %i)
  br label %next
end:
  ret void
}

define i64 @try_acquire(ptr %flag) {
start:
  acquire %flag then %acquired else %taken
acquired:
  ret i64 1
taken:
  ret i64 0
}

define void @relax(i64 %times) {
start:
  br label %next
next:
  %i = phi i64 [0, %start], [%i_next, %next]
  {pause}
  %i_next = add i64 %i, 1
  if ult i64 %i_next, %times then %next else %end
end:
  ret void
}

; Claim and run chunks of the current job until there are none or the epoch is over. The caller of
; `spread` and the workers do the same.
define internal void @claim(ptr %pool, i64 %epoch) {
start:
  %word_at = getelementptr i8, ptr %pool, i64 {p.word}
  %done_at = getelementptr i8, ptr %pool, i64 {p.done}
  br label %look
look:
  %word = atomic i64 %pool {p.word} acquire
  %now = lshr i64 %word, 32
  if eq i64 %now, %epoch then %open else %end
open:
  %chunk = and i64 %word, 4294967295
  %chunks = atomic i64 %pool {p.chunks} monotonic
  %function = atomic ptr %pool {p.function} monotonic
  %context = atomic ptr %pool {p.context} monotonic
  if ult i64 %chunk, %chunks then %try else %end
try:
  %advanced = add i64 %word, 1
  %claiming = cmpxchg ptr %word_at, i64 %word, i64 %advanced acq_rel monotonic
  %claimed = extractvalue {i64, i1} %claiming, 1
  br i1 %claimed, label %work, label %look
work:
  call void %function(ptr %context, i64 %chunk)
  %done = atomicrmw add ptr %done_at, i64 1 release
  br label %look
end:
  ret void
}

define void @spread(ptr %pool, ptr %function, ptr %context, i64 %chunks, i64 %helpers) {
start:
  %beyond_first = sub i64 %chunks, 1
  %wanted = call i64 @llvm.smin.i64(i64 %helpers, i64 %beyond_first)
  %most = atomic i64 %pool {p.most} monotonic
  %useful = call i64 @llvm.smin.i64(i64 %wanted, i64 %most)
  if sgt i64 %useful, 0 and slt i64 %chunks, {closed} then %enter else %serial
enter:
  %busy_at = getelementptr i8, ptr %pool, i64 {p.busy}
  acquire %busy_at then %share else %serial
share:
  call void @publish(ptr %pool, ptr %function, ptr %context, i64 %chunks, i64 %useful)
  ret void
serial:
  call void @in_order(ptr %function, ptr %context, i64 %chunks)
  ret void
}

; One job of a pool whose flag the caller has set; the flag is clear at the end.
define internal void @publish(
  ptr %pool, ptr %function, ptr %context, i64 %chunks, i64 %useful
) {
publish:
  set ptr %function %pool {p.function} monotonic
  set ptr %context %pool {p.context} monotonic
  set i64 %chunks %pool {p.chunks} monotonic
  set i64 %useful %pool {p.helpers} monotonic
  set i64 0 %pool {p.done} monotonic
  %closed_word = atomic i64 %pool {p.word} monotonic
  %last_epoch = lshr i64 %closed_word, 32
  %epoch_wide = add i64 %last_epoch, 1
  %epoch = and i64 %epoch_wide, 4294967295
  %open_word = shl i64 %epoch, 32
  set i64 %open_word %pool {p.word} seq_cst
  br label %waking
waking:
  loop %i = 0 to %useful from %publish, %look, %claim_waking, %wake do %look else %help
look:
  %line = mul i64 %i, {line}
  %worker_offset = add i64 %line, {p.workers}
  %asleep_at = getelementptr i8, ptr %pool, i64 %worker_offset
  %asleep = atomic i64 %asleep_at 0 seq_cst
  if ne i64 %asleep, 0 then %claim_waking else %waking
claim_waking:
  %was = atomicrmw xchg ptr %asleep_at, i64 0 seq_cst
  if ne i64 %was, 0 then %wake else %waking
wake:
  %lock = field ptr %asleep_at 8
  %release = field ptr %pool {p.release}
  call void %release(ptr %lock)
  br label %waking
help:
  call void @claim(ptr %pool, i64 %epoch)
  %done_at = getelementptr i8, ptr %pool, i64 {p.done}
  call void @wait_until(ptr %pool, ptr %done_at, i64 %chunks)
  %closed = or i64 %open_word, {closed}
  set i64 %closed %pool {p.word} release
  set i64 0 %pool {p.busy} release
  ret void
}

define void @worker(ptr %pool, i64 %index, i64 %epoch_at_start) {
start:
  %line = mul i64 %index, {line}
  %own_offset = add i64 %line, {p.workers}
  %asleep_at = getelementptr i8, ptr %pool, i64 %own_offset
  %lock = field ptr %asleep_at 8
  %acquire = field ptr %pool {p.acquire}
  br label %wait
wait:
  %seen = phi i64 [%epoch_at_start, %start], [%epoch, %news], [%epoch, %help]
  %limit = field i64 %pool {p.spin}
  br label %spin
spin:
  %spun = phi i64 [0, %wait], [%spun_next, %rest], [0, %cancel], [0, %sleep]
  %word = atomic i64 %pool {p.word} acquire
  %epoch = lshr i64 %word, 32
  if ne i64 %epoch, %seen then %news else %rest
rest:
  {pause}
  %spun_next = add i64 %spun, 1
  if ult i64 %spun_next, %limit then %spin else %park
park:
  %mark = atomicrmw xchg ptr %asleep_at, i64 1 seq_cst
  %word_again = atomic i64 %pool {p.word} seq_cst
  %epoch_again = lshr i64 %word_again, 32
  if ne i64 %epoch_again, %seen then %cancel else %sleep
cancel:
  ; If someone took the mark meanwhile, the lock is released too and has to be consumed.
  %was = atomicrmw xchg ptr %asleep_at, i64 0 seq_cst
  if ne i64 %was, 0 then %spin else %sleep
sleep:
  %slept = call i32 %acquire(ptr %lock, i32 1)
  br label %spin
news:
  %helpers = atomic i64 %pool {p.helpers} monotonic
  if slt i64 %index, %helpers then %help else %wait
help:
  call void @claim(ptr %pool, i64 %epoch)
  br label %wait
}
"""
