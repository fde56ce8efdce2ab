"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

It checks the arguments, makes the outputs, runs the launches and returns the results. It passes
every call that it does not handle, unchanged, to the Python function `slow`, the first of the
objects that the program owns. `native.py` fills in the offsets in braces and explains the
abbreviations.

A program with variables begins in `entry_sized`. Its state is of one set of sizes, which Python has
bound and checked, and a call of other sizes is one for `slow`, which may give the program another
state; so each call keeps the one that it began with alive.
"""

ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %nargs_and_flag, ptr %names) {
start:
  %nargs = and i64 %nargs_and_flag, 9223372036854775807
  %instance = field i64 @globals {g.instance}
  %native_fields = getelementptr i8, ptr %self, i64 %instance
  %owned = field ptr %native_fields 8
  %state = field ptr %native_fields 16
  if eq ptr %owned, null then %dead else %alive
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
  %arrays_count = add i64 %n, %fresh_count
  %arrays = alloca ptr, i64 %arrays_count, align 16
  if eq ptr %names, null then %unnamed else %named
unnamed:
  if eq i64 %nargs, %n then %prepare else %slow

; `%arrays` receives the arguments in the program's order, then the arrays of the results.
named:
  %names_count = field i64 %names {head}
  %argument_names = field ptr %state {s.argument_names}
  %integers_count = field i64 %state {s.integers}
  if ugt i64 %nargs, %n then %slow else %positional
positional:
  loop %c = 0 to %nargs from %named, %copy do %copy else %keyword
copy:
  %copied = item ptr %args %c
  put ptr %copied %arrays %c
  br label %positional
keyword:
  %out = phi ptr [null, %positional], [%value, %match], [%out, %put],
               [%out, %integer]
  loop %kw = 0 to %names_count from %positional, %match, %put, %integer do %match else %matched
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
  loop %read_at = %nargs to %n from %search, %same_text do %same_text else %integers
same_text:
  %text = item ptr %argument_names %read_at
  %difference = api i32 compare_text(ptr %text, ptr %name)
  if eq i32 %difference, 0 then %put else %read
put:
  %found_at = phi i64 [%at, %same_object], [%read_at, %same_text]
  put ptr %value %arrays %found_at
  br label %keyword
integers:
  %known_names = field ptr %state {s.integer_names}
  %known_values = field ptr %state {s.integer_values}
  br label %other_integer
other_integer:
  loop %int_at = 0 to %integers_count from %integers, %same_name do %same_name else %slow
same_name:
  %known_name = item ptr %known_names %int_at
  %name_difference = api i32 compare_text(ptr %known_name, ptr %name)
  if eq i32 %name_difference, 0 then %plain_integer else %other_integer
plain_integer:
  ; The comparison of other objects may run any code.
  %value_type = field ptr %value {type}
  %int_type = field ptr @globals {g.int}
  if eq ptr %value_type, %int_type then %integer else %slow
integer:
  %known_value = item ptr %known_values %int_at
  %equal = api i32 compare(ptr %value, ptr %known_value, i32 2)
  if eq i32 %equal, 1 then %keyword else %slow
matched:
  ; Names differ, so each filled a slot of its own, or is one of the state's integers.
  %no_out = icmp eq ptr %out, null
  %outs = select i1 %no_out, i64 0, i64 1
  %by_name = sub i64 %names_count, %outs
  %all = add i64 %nargs, %by_name
  %expected = add i64 %n, %integers_count
  if eq i64 %all, %expected then %complete else %slow
complete:
  %outputs = getelementptr ptr, ptr %arrays, i64 %n
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
  store ptr %out, ptr %outputs
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
  put ptr %out_array %outputs %o
  br label %out_item

prepare:
  %given_arrays = phi ptr [%args, %unnamed], [%arrays, %complete], [%arrays, %single_out],
                          [%arrays, %out_item]
  %extra = phi i64 [0, %unnamed], [0, %complete], [1, %single_out], [%fresh_count, %out_item]
  %given = add i64 %n, %extra
  %bases_count = field i64 %state {s.bases}
  %bases = alloca i64, i64 %bases_count, align 16
  %records = field ptr %state {s.records}
  %ndarray = field ptr @globals {g.ndarray}
  br label %argument
argument:
  loop %i = 0 to %given from %prepare, %accepted do %check else %overlaps

check:
  %array = item ptr %given_arrays %i
  put ptr %array %arrays %i
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
  br i1 %no_arena, label %results, label %acquire_arena
acquire_arena:
  acquire %flag then %results else %slow

results:
  %incref = field ptr @globals {g.incref}
  if eq i64 %extra, 0 then %result else %given_result
given_result:
  loop %h = %n to %given from %results, %hold do %hold else %fixed_bases
hold:
  %held = item ptr %arrays %h
  call void %incref(ptr %held)
  br label %given_result
result:
  loop %f = %n to %arrays_count from %results, %made do %make else %fixed_bases
make:
  %f_record = getelementptr [{record_words} x i64], ptr %records, i64 %f
  %f_dtype = field ptr %f_record {r.dtype}
  %f_ndim = field i32 %f_record {r.ndim}
  %f_dims = field ptr %f_record {r.dims}
  call void %incref(ptr %f_dtype)
  %new = api ptr new_array(ptr %ndarray, ptr %f_dtype, i32 %f_ndim, ptr %f_dims,
                             ptr null, ptr null, i32 0, ptr null)
  if eq ptr %new, null then %failed else %made
made:
  put ptr %new %arrays %f
  %new_data = field i64 %new {data}
  put i64 %new_data %bases %f
  br label %result

fixed_bases:
  %template = field ptr %state {s.base_template}
  br label %fixed
fixed:
  loop %b = %arrays_count to %bases_count from %fixed_bases, %copy_base do %copy_base else %go
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
  %one = item ptr %arrays %source
  if ult i64 %source, %n then %hand_argument else %hand_new
hand_argument:
  call void %incref(ptr %one)
  br label %hand_new
hand_new:
  ret ptr %one
hand_many:
  %results_count = field i64 %state {s.results}
  if eq i64 %structure, {dict} then %make_dict else %make_sequence
make_dict:
  %keys = field ptr %state {s.keys}
  %dict = api ptr new_dict()
  if eq ptr %dict, null then %drop else %entry
entry:
  loop %e = 0 to %results_count from %make_dict, %set_entry do %set_entry else %drop
set_entry:
  %entry_source = item i64 %sources %e
  %entry_value = item ptr %arrays %entry_source
  %key = item ptr %keys %e
  %failure = api i32 set_dict(ptr %dict, ptr %key, ptr %entry_value)
  if eq i32 %failure, 0 then %entry else %drop_dict
drop_dict:
  api void decref(ptr %dict)
  br label %drop
make_sequence:
  %is_list = icmp eq i64 %structure, {list}
  %new_tuple = field ptr @globals {g.new_tuple}
  %new_list = field ptr @globals {g.new_list}
  %new_sequence = select i1 %is_list, ptr %new_list, ptr %new_tuple
  %sequence = call ptr %new_sequence(i64 %results_count)
  if eq ptr %sequence, null then %drop else %filling
filling:
  %items = call ptr @items(ptr %sequence, i1 %is_list)
  br label %item
item:
  loop %k = 0 to %results_count from %filling, %fill, %own do %fill else %done
fill:
  %item_source = item i64 %sources %k
  %item_value = item ptr %arrays %item_source
  put ptr %item_value %items %k
  if ult i64 %item_source, %n then %own else %item
own:
  call void %incref(ptr %item_value)
  br label %item
done:
  ret ptr %sequence

failed:
  br i1 %no_arena, label %drop, label %failed_arena
failed_arena:
  set i64 0 %flag 0 release
  br label %drop
drop:
  ; A dict has references of its own to the arrays.
  %answer = phi ptr [null, %failed], [null, %failed_arena], [null, %make_sequence],
                    [null, %make_dict], [null, %drop_dict], [%dict, %entry]
  %end = phi i64 [%f, %failed], [%f, %failed_arena], [%arrays_count, %make_sequence],
                 [%arrays_count, %make_dict], [%arrays_count, %drop_dict], [%arrays_count, %entry]
  br label %dropping
dropping:
  loop %x = %n to %end from %drop, %drop_one do %drop_one else %dropped
drop_one:
  %unwanted = item ptr %arrays %x
  api void decref(ptr %unwanted)
  br label %dropping
dropped:
  ret ptr %answer

slow:
  %slow_answer = call ptr @slow(ptr %owned, ptr %args, i64 %nargs, ptr %names)
  ret ptr %slow_answer
}

define ptr @entry_sized(ptr %self, ptr %args, i64 %nargs_and_flag, ptr %names) {
start:
  %instance = field i64 @globals {g.instance}
  %native_fields = getelementptr i8, ptr %self, i64 %instance
  %owned = field ptr %native_fields 8
  %state = field ptr %native_fields 16
  if eq ptr %owned, null then %dead else %alive
dead:
  api void bad_call()
  ret ptr null
alive:
  api void incref(ptr %owned)
  %integers = field i64 %state {s.integers}
  if eq ptr %names, null then %unnamed else %named
unnamed:
  if eq i64 %integers, 0 then %bound else %slow
named:
  if eq i64 %integers, -1 then %slow else %bound
bound:
  %bound_answer = call ptr @entry(ptr %self, ptr %args, i64 %nargs_and_flag, ptr %names)
  br label %answered
slow:
  %nargs = and i64 %nargs_and_flag, 9223372036854775807
  %slow_answer = call ptr @slow(ptr %owned, ptr %args, i64 %nargs, ptr %names)
  br label %answered
answered:
  %answer = phi ptr [%bound_answer, %bound], [%slow_answer, %slow]
  api void decref(ptr %owned)
  ret ptr %answer
}

; A call through Python.
define internal ptr @slow(ptr %owned, ptr %args, i64 %nargs, ptr %names) {
  %function = field ptr %owned {tuple_items}
  %answer = api ptr vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %names)
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
