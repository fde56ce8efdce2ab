"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

It checks the arguments, makes the outputs, runs the launches and returns the results. It passes
every call that it does not handle, unchanged, to the Python function `slow`. `native.py` fills in
the offsets in braces and explains the abbreviations.
"""

ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %nargs_and_flag, ptr %names) {
start:
  %nargs = and i64 %nargs_and_flag, 9223372036854775807
  %instance = field i64 @globals {g.instance}
  %native_fields = getelementptr i8, ptr %self, i64 %instance
  %kept = field ptr %native_fields 8
  %state = field ptr %native_fields 16
  if eq ptr %kept, null then %dead else %alive
dead:
  ; The garbage collector has cleared the program.
  api void bad_call()
  ret ptr null
alive:
  %stale = field i64 @globals {g.stale}
  if eq i64 %stale, 0 then %count else %slow
count:
  %n = field i64 %state {s.arguments}
  %fresh_count = field i64 %state {s.fresh}
  if eq ptr %names, null then %unnamed else %named
unnamed:
  if eq i64 %nargs, %n then %prepare else %slow

; With names, the arguments go to `%slots` in the program's order, and then the arrays of `out=`.
named:
  %names_count = field i64 %names {head}
  if ugt i64 %nargs, %n then %slow else %sorting
sorting:
  %slots_count = add i64 %n, %fresh_count
  %slots = alloca ptr, i64 %slots_count, align 16
  %argument_names = field ptr %state {s.argument_names}
  br label %keyword
keyword:
  %out = phi ptr [null, %sorting], [%value, %match], [%out, %put]
  loop %kw = 0 to %names_count from %sorting, %match, %put do %match else %matched
match:
  %names_items = getelementptr i8, ptr %names, i64 {tuple_items}
  %name = item ptr %names_items %kw
  %value_number = add i64 %nargs, %kw
  %value = item ptr %args %value_number
  %out_name = field ptr @globals {g.out}
  if eq ptr %name, %out_name then %keyword else %search
search:
  ; Names in the text of a program are interned: one object for each.
  loop %at = %nargs to %n from %match, %same_object do %same_object else %read
same_object:
  %known = item ptr %argument_names %at
  if eq ptr %known, %name then %put else %search
read:
  ; Others, the keys of a dict that was read from somewhere, say, are compared as text.
  loop %read_at = %nargs to %n from %search, %same_text do %same_text else %slow
same_text:
  %text = item ptr %argument_names %read_at
  %difference = api i32 compare_text(ptr %text, ptr %name)
  if eq i32 %difference, 0 then %put else %read
put:
  %found_at = phi i64 [%at, %same_object], [%read_at, %same_text]
  put ptr %value %slots %found_at
  br label %keyword
matched:
  ; Names differ, so each filled a slot of its own.
  %no_out = icmp eq ptr %out, null
  %outs = select i1 %no_out, i64 0, i64 1
  %by_name = sub i64 %names_count, %outs
  %all = add i64 %nargs, %by_name
  if eq i64 %all, %n then %copy_array else %slow
copy_array:
  loop %c = 0 to %nargs from %matched, %copy_one do %copy_one else %copied
copy_one:
  %copied_array = item ptr %args %c
  put ptr %copied_array %slots %c
  br label %copy_array
copied:
  %out_slots = getelementptr ptr, ptr %slots, i64 %n
  br i1 %no_out, label %prepare, label %take_out

take_out:
  %takes_out = field i64 %state {s.takes_out}
  if ne i64 %takes_out, 0 then %out_structure else %slow
out_structure:
  %out_kind = field i64 %state {s.structure}
  %out_type = field ptr %out {type}
  %list_type = field ptr @globals {g.list}
  %tuple_type = field ptr @globals {g.tuple}
  %out_is_list = icmp eq ptr %out_type, %list_type
  if eq i64 %out_kind, 0 then %single_out else %out_class
single_out:
  store ptr %out, ptr %out_slots
  br label %prepare
out_class:
  br i1 %out_is_list, label %out_sequence, label %out_other
out_other:
  if eq ptr %out_type, %tuple_type then %out_sequence else %slow
out_sequence:
  %outs_given = field i64 %out {head}
  %out_items = call ptr @items(ptr %out, i1 %out_is_list)
  if eq i64 %outs_given, %fresh_count then %out_item else %slow
out_item:
  loop %o = 0 to %fresh_count from %out_sequence, %out_one do %out_one else %prepare
out_one:
  %out_array = item ptr %out_items %o
  put ptr %out_array %out_slots %o
  br label %out_item

prepare:
  %arrays = phi ptr [%args, %unnamed], [%slots, %copied], [%slots, %single_out],
                    [%slots, %out_item]
  %extra = phi i64 [0, %unnamed], [0, %copied], [1, %single_out], [%fresh_count, %out_item]
  %given = add i64 %n, %extra
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
  %want_number = field i32 %record {r.type_number}
  %order = field i8 %dtype {byte_order}
  if eq i32 %number, %want_number and eq i8 %order, 61 then %check_flags else %slow
check_flags:
  %flags = field i32 %array {flags}
  %want_flags = field i32 %record {r.flags}
  %common_flags = and i32 %flags, %want_flags
  %ndim = field i32 %array {ndim}
  %want_ndim = field i32 %record {r.ndim}
  %rank = field i64 %record {r.ndim}
  %dims = field ptr %array {dims}
  %want_dims = field ptr %record {r.dims}
  if eq i32 %common_flags, %want_flags and eq i32 %ndim, %want_ndim then %dim else %slow
dim:
  loop %d = 0 to %rank from %check_flags, %check_dim do %check_dim else %accepted
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
  loop %j = 0 to %given from %writer_range, %other, %compare do %other else %writer
other:
  if eq i64 %j, %wi then %against else %compare
compare:
  %j_begin = item i64 %bases %j
  %j_record = getelementptr [{record_words} x i64], ptr %records, i64 %j
  %j_size = field i64 %j_record {r.nbytes}
  %j_end = add i64 %j_begin, %j_size
  if ult i64 %j_begin, %w_end and ult i64 %w_begin, %j_end then %slow else %against

arena:
  %flag = field ptr %state {s.arena_flag}
  %no_arena = icmp eq ptr %flag, null
  br i1 %no_arena, label %outputs, label %acquire_arena
acquire_arena:
  acquire %flag then %outputs else %slow

outputs:
  %new_count = add i64 %fresh_count, 1
  %new = alloca ptr, i64 %new_count, align 16
  %incref = field ptr @globals {g.incref}
  if eq i64 %extra, 0 then %output else %given_output
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
  %f_ndim = field i32 %f_record {r.ndim}
  %f_dims = field ptr %f_record {r.dims}
  call void %incref(ptr %f_dtype)
  %made = api ptr new_array(ptr %ndarray, ptr %f_dtype, i32 %f_ndim, ptr %f_dims,
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
  br i1 %no_arena, label %hand_back, label %release_arena
release_arena:
  set i64 0 %flag 0 release
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
  if eq ptr %container, null then %drop else %filling
filling:
  %items = call ptr @items(ptr %container, i1 %is_list)
  br label %item
item:
  ; New arrays are handed out in order.
  %handed = phi i64 [0, %filling], [%handed_next, %set_item], [%handed_next, %set_entry]
  loop %k = 0 to %results from %filling, %set_item, %set_entry do %pick else %done
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
  put ptr %next_value %items %k
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
  set i64 0 %flag 0 release
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
  %method = field ptr %state {s.slow}
  %answer = api ptr vectorcall(ptr %method, ptr %args, i64 %nargs, ptr %names)
  ret ptr %answer
}

; The items of a list or a tuple.
define internal ptr @items(ptr %sequence, i1 %is_list) {
  %of_list = field ptr %sequence {list_items}
  %of_tuple = getelementptr i8, ptr %sequence, i64 {tuple_items}
  %items = select i1 %is_list, ptr %of_list, ptr %of_tuple
  ret ptr %items
}
"""
