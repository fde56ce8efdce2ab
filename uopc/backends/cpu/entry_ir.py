"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

It checks the arguments, makes the outputs, runs the launches and returns the results. It passes
every call that it does not handle, unchanged, to the Python function `slow`. `native.py` fills in
the offsets in braces and explains `field`.
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
  %positional = icmp eq ptr %names, null
  br i1 %positional, label %unnamed, label %named
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
  %i = phi i64 [0, %prepare], [%i_next, %accepted]
  %more = icmp ult i64 %i, %given
  br i1 %more, label %check, label %overlaps

check:
  %arg_at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %arg_at
  %record = getelementptr [{record_words} x i64], ptr %records, i64 %i
  %class = field ptr %array {type}
  %is_array = icmp eq ptr %class, %ndarray
  br i1 %is_array, label %check_dtype, label %slow
check_dtype:
  %dtype = field ptr %array {dtype}
  %want_dtype = field ptr %record {r.dtype}
  %same_dtype = icmp eq ptr %dtype, %want_dtype
  br i1 %same_dtype, label %check_flags, label %other_dtype
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
  %d = phi i64 [0, %check_flags], [%d_next, %check_dim]
  %more_dims = icmp ult i64 %d, %want_ndim
  br i1 %more_dims, label %check_dim, label %accepted
check_dim:
  %dim_at = getelementptr i64, ptr %dims, i64 %d
  %want_dim_at = getelementptr i64, ptr %want_dims, i64 %d
  %size = load i64, ptr %dim_at
  %want_size = load i64, ptr %want_dim_at
  %same_size = icmp eq i64 %size, %want_size
  %d_next = add i64 %d, 1
  br i1 %same_size, label %dim, label %slow
accepted:
  %data = field i64 %array {data}
  %base_at = getelementptr i64, ptr %bases, i64 %i
  store i64 %data, ptr %base_at
  %i_next = add i64 %i, 1
  br label %argument

overlaps:
  %written_args = field i64 %state {s.written_count}
  %written_count = add i64 %written_args, %extra
  %written = field ptr %state {s.written}
  br label %writer
writer:
  %w = phi i64 [0, %overlaps], [%w_next, %against]
  %more_writers = icmp ult i64 %w, %written_count
  br i1 %more_writers, label %writer_range, label %arena
writer_range:
  %w_next = add i64 %w, 1
  %written_at = getelementptr i64, ptr %written, i64 %w
  %wi = load i64, ptr %written_at
  %w_base_at = getelementptr i64, ptr %bases, i64 %wi
  %w_begin = load i64, ptr %w_base_at
  %w_record = getelementptr [{record_words} x i64], ptr %records, i64 %wi
  %w_size = field i64 %w_record {r.nbytes}
  %w_end = add i64 %w_begin, %w_size
  br label %against
against:
  %j = phi i64 [0, %writer_range], [%j_next, %compare]
  %more_others = icmp ult i64 %j, %given
  br i1 %more_others, label %compare, label %writer
compare:
  %j_base_at = getelementptr i64, ptr %bases, i64 %j
  %j_begin = load i64, ptr %j_base_at
  %j_record = getelementptr [{record_words} x i64], ptr %records, i64 %j
  %j_size = field i64 %j_record {r.nbytes}
  %j_end = add i64 %j_begin, %j_size
  %itself = icmp eq i64 %j, %wi
  %before = icmp ule i64 %j_end, %w_begin
  %after = icmp ule i64 %w_end, %j_begin
  %outside = or i1 %before, %after
  %harmless = or i1 %outside, %itself
  %j_next = add i64 %j, 1
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
  %h = phi i64 [0, %outputs], [%h_next, %hold]
  %more_given = icmp ult i64 %h, %fresh_count
  br i1 %more_given, label %hold, label %fixed_bases
hold:
  %held_number = add i64 %n, %h
  %held_at = getelementptr ptr, ptr %arrays, i64 %held_number
  %held = load ptr, ptr %held_at
  call void %incref(ptr %held)
  %hold_at = getelementptr ptr, ptr %new, i64 %h
  store ptr %held, ptr %hold_at
  %h_next = add i64 %h, 1
  br label %given_output
output:
  %f = phi i64 [0, %outputs], [%f_next, %output_made]
  %more_fresh = icmp ult i64 %f, %fresh_count
  br i1 %more_fresh, label %make_output, label %fixed_bases
make_output:
  %f_index = add i64 %n, %f
  %f_record = getelementptr [{record_words} x i64], ptr %records, i64 %f_index
  %f_dtype = field ptr %f_record {r.dtype}
  %f_ndim = field i64 %f_record {r.ndim}
  %f_ndim_narrow = trunc i64 %f_ndim to i32
  %f_dims = field ptr %f_record {r.dims}
  call void %incref(ptr %f_dtype)
  %new_array = field ptr @globals {g.new_array}
  %made = call ptr %new_array(ptr %ndarray, ptr %f_dtype, i32 %f_ndim_narrow, ptr %f_dims,
                              ptr null, ptr null, i32 0, ptr null)
  %not_made = icmp eq ptr %made, null
  br i1 %not_made, label %failed, label %output_made
output_made:
  %new_at = getelementptr ptr, ptr %new, i64 %f
  store ptr %made, ptr %new_at
  %made_data = field i64 %made {data}
  %f_base_at = getelementptr i64, ptr %bases, i64 %f_index
  store i64 %made_data, ptr %f_base_at
  %f_next = add i64 %f, 1
  br label %output

fixed_bases:
  %template = field ptr %state {s.base_template}
  %first_fixed = add i64 %n, %fresh_count
  br label %fixed
fixed:
  %b = phi i64 [%first_fixed, %fixed_bases], [%b_next, %copy_base]
  %more_bases = icmp ult i64 %b, %bases_count
  br i1 %more_bases, label %copy_base, label %go
copy_base:
  %from = getelementptr i64, ptr %template, i64 %b
  %to = getelementptr i64, ptr %bases, i64 %b
  %address = load i64, ptr %from
  store i64 %address, ptr %to
  %b_next = add i64 %b, 1
  br label %fixed
go:
  %table = field ptr %state {s.table}
  %nogil = field i64 %state {s.nogil}
  %holds = icmp eq i64 %nogil, 0
  br i1 %holds, label %run_holding, label %run_released
run_holding:
  call void @run(ptr %table, ptr %bases)
  br label %ran
run_released:
  %save = field ptr @globals {g.save_thread}
  %restore = field ptr @globals {g.restore_thread}
  %thread = call ptr %save()
  call void @run(ptr %table, ptr %bases)
  call void %restore(ptr %thread)
  br label %ran
ran:
  br i1 %no_arena, label %hand_back, label %free_arena
free_arena:
  store atomic i64 0, ptr %flag release, align 8
  br label %hand_back

hand_back:
  %sources = field ptr %state {s.sources}
  %structure = field i64 %state {s.structure}
  %single = icmp eq i64 %structure, 0
  br i1 %single, label %hand_one, label %hand_many
hand_one:
  %source = load i64, ptr %sources
  %is_argument = icmp sge i64 %source, 0
  br i1 %is_argument, label %hand_argument, label %hand_new
hand_new:
  %result = load ptr, ptr %new
  ret ptr %result
hand_argument:
  %result_at = getelementptr ptr, ptr %arrays, i64 %source
  %argument_result = load ptr, ptr %result_at
  call void %incref(ptr %argument_result)
  ret ptr %argument_result
hand_many:
  %results = field i64 %state {s.results}
  %is_list = icmp eq i64 %structure, {list}
  %is_dict = icmp eq i64 %structure, {dict}
  br i1 %is_dict, label %hand_dict, label %hand_sequence
hand_dict:
  %new_dict = field ptr @globals {g.new_dict}
  %set_dict = field ptr @globals {g.set_dict}
  %keys = field ptr %state {s.keys}
  %dict = call ptr %new_dict()
  %no_dict = icmp eq ptr %dict, null
  br i1 %no_dict, label %drop, label %entry
entry:
  %e = phi i64 [0, %hand_dict], [%e_next, %entry_set]
  %e_fresh = phi i64 [0, %hand_dict], [%e_fresh_next, %entry_set]
  %more_entries = icmp ult i64 %e, %results
  br i1 %more_entries, label %entry_pick, label %handed_dict
entry_pick:
  %entry_source_at = getelementptr i64, ptr %sources, i64 %e
  %entry_source = load i64, ptr %entry_source_at
  %entry_is_argument = icmp sge i64 %entry_source, 0
  br i1 %entry_is_argument, label %entry_argument, label %entry_new
entry_argument:
  %entry_at = getelementptr ptr, ptr %arrays, i64 %entry_source
  %entry_array = load ptr, ptr %entry_at
  call void %incref(ptr %entry_array)
  br label %entry_set
entry_new:
  ; New arrays are handed out in order.
  %entry_new_at = getelementptr ptr, ptr %new, i64 %e_fresh
  %entry_made = load ptr, ptr %entry_new_at
  %e_fresh_more = add i64 %e_fresh, 1
  br label %entry_set
entry_set:
  %entry_value = phi ptr [%entry_array, %entry_argument], [%entry_made, %entry_new]
  %e_fresh_next = phi i64 [%e_fresh, %entry_argument], [%e_fresh_more, %entry_new]
  %key_at = getelementptr ptr, ptr %keys, i64 %e
  %key = load ptr, ptr %key_at
  %entry_result = call i32 %set_dict(ptr %dict, ptr %key, ptr %entry_value)
  %drop_value = field ptr @globals {g.decref}
  call void %drop_value(ptr %entry_value)
  %e_next = add i64 %e, 1
  %entry_failed = icmp ne i32 %entry_result, 0
  br i1 %entry_failed, label %drop_dict, label %entry
drop_dict:
  call void %drop_value(ptr %dict)
  br label %drop
handed_dict:
  ret ptr %dict
hand_sequence:
  %new_tuple = field ptr @globals {g.new_tuple}
  %new_list = field ptr @globals {g.new_list}
  %set_tuple = field ptr @globals {g.set_tuple}
  %set_list = field ptr @globals {g.set_list}
  %new_sequence = select i1 %is_list, ptr %new_list, ptr %new_tuple
  %set_item = select i1 %is_list, ptr %set_list, ptr %set_tuple
  %sequence = call ptr %new_sequence(i64 %results)
  %no_sequence = icmp eq ptr %sequence, null
  br i1 %no_sequence, label %drop, label %item
item:
  %k = phi i64 [0, %hand_sequence], [%k_next, %set]
  %more_items = icmp ult i64 %k, %results
  br i1 %more_items, label %pick, label %handed
pick:
  %source_at = getelementptr i64, ptr %sources, i64 %k
  %item_source = load i64, ptr %source_at
  %item_is_argument = icmp sge i64 %item_source, 0
  br i1 %item_is_argument, label %pick_argument, label %pick_new
pick_argument:
  %pick_at = getelementptr ptr, ptr %arrays, i64 %item_source
  %picked_argument = load ptr, ptr %pick_at
  call void %incref(ptr %picked_argument)
  br label %set
pick_new:
  %fresh_index = sub i64 -1, %item_source
  %picked_at = getelementptr ptr, ptr %new, i64 %fresh_index
  %picked_new = load ptr, ptr %picked_at
  br label %set
set:
  %picked = phi ptr [%picked_argument, %pick_argument], [%picked_new, %pick_new]
  %set_result = call i32 %set_item(ptr %sequence, i64 %k, ptr %picked)
  %k_next = add i64 %k, 1
  br label %item
handed:
  ret ptr %sequence

failed:
  br i1 %no_arena, label %drop, label %failed_arena
failed_arena:
  store atomic i64 0, ptr %flag release, align 8
  br label %drop
drop:
  %drop_first = phi i64 [0, %failed], [0, %failed_arena], [0, %hand_sequence], [0, %hand_dict],
                        [%e_fresh_next, %drop_dict]
  %drop_count = phi i64 [%f, %failed], [%f, %failed_arena], [%fresh_count, %hand_sequence],
                        [%fresh_count, %hand_dict], [%fresh_count, %drop_dict]
  %decref = field ptr @globals {g.decref}
  br label %dropping
dropping:
  %x = phi i64 [%drop_first, %drop], [%x_next, %drop_one]
  %more_drops = icmp ult i64 %x, %drop_count
  br i1 %more_drops, label %drop_one, label %dropped
drop_one:
  %drop_at = getelementptr ptr, ptr %new, i64 %x
  %unwanted = load ptr, ptr %drop_at
  call void %decref(ptr %unwanted)
  %x_next = add i64 %x, 1
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
  %positional = icmp eq ptr %names, null
  br i1 %positional, label %copy, label %named
named:
  %names_count = field i64 %names {head}
  br label %copy
copy:
  %named_count = phi i64 [0, %start], [%names_count, %named]
  %count = add i64 %nargs, %named_count
  %with_self = add i64 %count, 1
  %bytes = shl i64 %with_self, 3
  %malloc = field ptr @globals {g.malloc}
  %stack = call ptr %malloc(i64 %bytes)
  %no_stack = icmp eq ptr %stack, null
  br i1 %no_stack, label %no_memory, label %first
first:
  store ptr %self, ptr %stack
  br label %next
next:
  %i = phi i64 [0, %first], [%i_next, %one]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %call
one:
  %from = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %from
  %i_next = add i64 %i, 1
  %to = getelementptr ptr, ptr %stack, i64 %i_next
  store ptr %object, ptr %to
  br label %next
call:
  %vectorcall = field ptr @globals {g.vectorcall}
  %slow = field ptr @globals {g.slow}
  %positional_count = add i64 %nargs, 1
  %answer = call ptr %vectorcall(ptr %slow, ptr %stack, i64 %positional_count, ptr %names)
  %free = field ptr @globals {g.free}
  call void %free(ptr %stack)
  ret ptr %answer
no_memory:
  %set_error = field ptr @globals {g.no_memory}
  %null = call ptr %set_error()
  ret ptr %null
}
"""
)
