"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

It checks the arguments, makes the outputs, runs the launches and returns the results. It passes
every call that it does not handle, unchanged, to the Python function `slow`. `native.py` fills in
the offsets in braces and explains the abbreviations.
"""

from __future__ import annotations

from uopc.backends.cpu.keyword_ir import NAMED

ENTRY = (
    """
define ptr @entry(ptr %self, ptr %args, i64 %nargs_and_flag, ptr %names) {
start:
  %nargs = and i64 %nargs_and_flag, 9223372036854775807
  %instance = field i64 @globals {g.instance}
  %native_fields = getelementptr i8, ptr %self, i64 %instance
  %kept = field ptr %native_fields 8
  %state = field ptr %native_fields 16
  %stale = field i64 @globals {g.stale}
  %alive = icmp ne ptr %kept, null
  %current = icmp eq i64 %stale, 0
  %usable = and i1 %alive, %current
  br i1 %usable, label %count, label %slow
count:
  %n = field i64 %state {s.arguments}
  %fresh_count = field i64 %state {s.fresh}
  %counted = icmp eq i64 %nargs, %n
  if eq ptr %names, null then %unnamed else %named
unnamed:
  br i1 %counted, label %prepare, label %slow

"""
    + NAMED
    + """
prepare:
  %arrays = phi ptr [%args, %unnamed], [%slots, %copied], [%slots, %single_out],
                    [%slots, %out_item]
  %extra = phi i64 [0, %unnamed], [0, %copied], [1, %single_out], [%fresh_count, %out_item]
  %given = add i64 %n, %extra
  %fresh_made = icmp eq i64 %extra, 0
  %bases_count = field i64 %state {s.bases}
  %bases = alloca i64, i64 %bases_count, align 16
  %records = field ptr %state {s.records}
  %ndarray = field ptr @globals {g.ndarray}
  br label %argument
argument:
  loop %i = 0 to %given from %prepare, %accepted do %check else %overlaps

check:
  %array = item ptr %arrays %i
  %record = getelementptr [{record_words} x i64], ptr %records, i64 %i
  %class = field ptr %array {type}
  if eq ptr %class, %ndarray then %check_dtype else %slow
check_dtype:
  %dtype = field ptr %array {dtype}
  %want_dtype = field ptr %record {r.dtype}
  if eq ptr %dtype, %want_dtype then %check_flags else %other_dtype
other_dtype:
  ; An unpickled array has a dtype object of its own that means the same.
  %number = field i32 %dtype {type_number}
  %number_wide = sext i32 %number to i64
  %want_number = field i64 %record {r.type_number}
  %same_number = icmp eq i64 %number_wide, %want_number
  %order = field i8 %dtype {byte_order}
  %native = icmp eq i8 %order, 61
  %equal_dtype = and i1 %same_number, %native
  br i1 %equal_dtype, label %check_flags, label %slow
check_flags:
  %flags = field i32 %array {flags}
  %flags_wide = zext i32 %flags to i64
  %want_flags = field i64 %record {r.flags}
  %flags_kept = and i64 %flags_wide, %want_flags
  %flags_good = icmp eq i64 %flags_kept, %want_flags
  %ndim = field i32 %array {ndim}
  %ndim_wide = sext i32 %ndim to i64
  %want_ndim = field i64 %record {r.ndim}
  %same_ndim = icmp eq i64 %ndim_wide, %want_ndim
  %shape_next = and i1 %flags_good, %same_ndim
  %dims = field ptr %array {dims}
  %want_dims = field ptr %record {r.dims}
  br i1 %shape_next, label %dim, label %slow
dim:
  loop %d = 0 to %want_ndim from %check_flags, %check_dim do %check_dim else %accepted
check_dim:
  %size = item i64 %dims %d
  %want_size = item i64 %want_dims %d
  if eq i64 %size, %want_size then %dim else %slow
accepted:
  %data = field i64 %array {data}
  put i64 %data %bases %i
  br label %argument

overlaps:
  %written_args = field i64 %state {s.written_count}
  %written_count = add i64 %written_args, %extra
  %written = field ptr %state {s.written}
  br label %writer
writer:
  loop %w = 0 to %written_count from %overlaps, %against do %writer_range else %arena
writer_range:
  %wi = item i64 %written %w
  %w_begin = item i64 %bases %wi
  %w_record = getelementptr [{record_words} x i64], ptr %records, i64 %wi
  %w_size = field i64 %w_record {r.nbytes}
  %w_end = add i64 %w_begin, %w_size
  br label %against
against:
  loop %j = 0 to %given from %writer_range, %compare do %compare else %writer
compare:
  %j_begin = item i64 %bases %j
  %j_record = getelementptr [{record_words} x i64], ptr %records, i64 %j
  %j_size = field i64 %j_record {r.nbytes}
  %j_end = add i64 %j_begin, %j_size
  %itself = icmp eq i64 %j, %wi
  %before = icmp ule i64 %j_end, %w_begin
  %after = icmp ule i64 %w_end, %j_begin
  %outside = or i1 %before, %after
  %harmless = or i1 %outside, %itself
  br i1 %harmless, label %against, label %slow

arena:
  %flag = field ptr %state {s.arena_flag}
  %no_arena = icmp eq ptr %flag, null
  br i1 %no_arena, label %outputs, label %take_arena
take_arena:
  %taking = cmpxchg ptr %flag, i64 0, i64 1 acquire monotonic
  %taken = extractvalue {i64, i1} %taking, 1
  br i1 %taken, label %outputs, label %slow

outputs:
  %new_count = add i64 %fresh_count, 1
  %new = alloca ptr, i64 %new_count, align 16
  %incref = field ptr @globals {g.incref}
  br i1 %fresh_made, label %output, label %given_output
given_output:
  loop %h = 0 to %fresh_count from %outputs, %hold do %hold else %fixed_bases
hold:
  %held_number = add i64 %n, %h
  %held = item ptr %arrays %held_number
  call void %incref(ptr %held)
  put ptr %held %new %h
  br label %given_output
output:
  loop %f = 0 to %fresh_count from %outputs, %output_made do %make_output else %fixed_bases
make_output:
  %f_index = add i64 %n, %f
  %f_record = getelementptr [{record_words} x i64], ptr %records, i64 %f_index
  %f_dtype = field ptr %f_record {r.dtype}
  %f_ndim = field i64 %f_record {r.ndim}
  %f_ndim_narrow = trunc i64 %f_ndim to i32
  %f_dims = field ptr %f_record {r.dims}
  call void %incref(ptr %f_dtype)
  %made = api ptr new_array(ptr %ndarray, ptr %f_dtype, i32 %f_ndim_narrow, ptr %f_dims,
                              ptr null, ptr null, i32 0, ptr null)
  if eq ptr %made, null then %failed else %output_made
output_made:
  put ptr %made %new %f
  %made_data = field i64 %made {data}
  put i64 %made_data %bases %f_index
  br label %output

fixed_bases:
  %template = field ptr %state {s.base_template}
  %first_fixed = add i64 %n, %fresh_count
  br label %fixed
fixed:
  loop %b = %first_fixed to %bases_count from %fixed_bases, %copy_base do %copy_base else %go
copy_base:
  %address = item i64 %template %b
  put i64 %address %bases %b
  br label %fixed
go:
  %table = field ptr %state {s.table}
  %nogil = field i64 %state {s.nogil}
  if eq i64 %nogil, 0 then %run_holding else %run_released
run_holding:
  call void @run(ptr %table, ptr %bases)
  br label %ran
run_released:
  %thread = api ptr save_thread()
  call void @run(ptr %table, ptr %bases)
  api void restore_thread(ptr %thread)
  br label %ran
ran:
  br i1 %no_arena, label %hand_back, label %free_arena
free_arena:
  store atomic i64 0, ptr %flag release, align 8
  br label %hand_back

hand_back:
  %sources = field ptr %state {s.sources}
  %structure = field i64 %state {s.structure}
  if eq i64 %structure, 0 then %hand_one else %hand_many
hand_one:
  %source = load i64, ptr %sources
  if sge i64 %source, 0 then %hand_argument else %hand_new
hand_new:
  %result = load ptr, ptr %new
  ret ptr %result
hand_argument:
  %argument_result = item ptr %arrays %source
  call void %incref(ptr %argument_result)
  ret ptr %argument_result
hand_many:
  %results = field i64 %state {s.results}
  %is_list = icmp eq i64 %structure, {list}
  %is_dict = icmp eq i64 %structure, {dict}
  %set_tuple = field ptr @globals {g.set_tuple}
  %set_list = field ptr @globals {g.set_list}
  %set = select i1 %is_list, ptr %set_list, ptr %set_tuple
  br i1 %is_dict, label %make_dict, label %make_sequence
make_dict:
  %dict = api ptr new_dict()
  br label %container_made
make_sequence:
  %new_tuple = field ptr @globals {g.new_tuple}
  %new_list = field ptr @globals {g.new_list}
  %new_sequence = select i1 %is_list, ptr %new_list, ptr %new_tuple
  %sequence = call ptr %new_sequence(i64 %results)
  br label %container_made
container_made:
  %container = phi ptr [%dict, %make_dict], [%sequence, %make_sequence]
  if eq ptr %container, null then %drop else %item
item:
  ; New arrays are handed out in order.
  %handed = phi i64 [0, %container_made], [%handed_next, %set_item], [%handed_next, %set_entry]
  loop %k = 0 to %results from %container_made, %set_item, %set_entry do %pick else %done
pick:
  %item_source = item i64 %sources %k
  if sge i64 %item_source, 0 then %pick_argument else %pick_new
pick_argument:
  %picked_argument = item ptr %arrays %item_source
  call void %incref(ptr %picked_argument)
  br label %picked
pick_new:
  %picked_new = item ptr %new %handed
  %handed_more = add i64 %handed, 1
  br label %picked
picked:
  %next_value = phi ptr [%picked_argument, %pick_argument], [%picked_new, %pick_new]
  %handed_next = phi i64 [%handed, %pick_argument], [%handed_more, %pick_new]
  br i1 %is_dict, label %set_entry, label %set_item
set_item:
  %ignored = call i32 %set(ptr %container, i64 %k, ptr %next_value)
  br label %item
set_entry:
  %keys = field ptr %state {s.keys}
  %key = item ptr %keys %k
  %failure = api i32 set_dict(ptr %container, ptr %key, ptr %next_value)
  api void decref(ptr %next_value)
  if ne i32 %failure, 0 then %drop_dict else %item
drop_dict:
  api void decref(ptr %container)
  br label %drop
done:
  ret ptr %container

failed:
  br i1 %no_arena, label %drop, label %failed_arena
failed_arena:
  store atomic i64 0, ptr %flag release, align 8
  br label %drop
drop:
  %drop_first = phi i64 [0, %failed], [0, %failed_arena], [0, %container_made],
                        [%handed_next, %drop_dict]
  %drop_count = phi i64 [%f, %failed], [%f, %failed_arena], [%fresh_count, %container_made],
                        [%fresh_count, %drop_dict]
  br label %dropping
dropping:
  loop %x = %drop_first to %drop_count from %drop, %drop_one do %drop_one else %dropped
drop_one:
  %unwanted = item ptr %new %x
  api void decref(ptr %unwanted)
  br label %dropping
dropped:
  ret ptr null

slow:
  %answer = call ptr @call_slow(ptr %self, ptr %args, i64 %nargs, ptr %names)
  ret ptr %answer
}

; The same call to the Python function `slow`, with the program put before the arguments.
define internal ptr @call_slow(ptr %self, ptr %args, i64 %nargs, ptr %names) {
start:
  if eq ptr %names, null then %copy else %named
named:
  %names_count = field i64 %names {head}
  br label %copy
copy:
  %named_count = phi i64 [0, %start], [%names_count, %named]
  %count = add i64 %nargs, %named_count
  %with_self = add i64 %count, 1
  %bytes = shl i64 %with_self, 3
  %stack = api ptr malloc(i64 %bytes)
  if eq ptr %stack, null then %no_memory else %first
first:
  store ptr %self, ptr %stack
  br label %next
next:
  loop %i = 0 to %count from %first, %one do %one else %call
one:
  %object = item ptr %args %i
  put ptr %object %stack %i_next
  br label %next
call:
  %slow = field ptr @globals {g.slow}
  %positional_count = add i64 %nargs, 1
  %answer = api ptr vectorcall(ptr %slow, ptr %stack, i64 %positional_count, ptr %names)
  api void free(ptr %stack)
  ret ptr %answer
no_memory:
  %null = api ptr no_memory()
  ret ptr %null
}
"""
)
