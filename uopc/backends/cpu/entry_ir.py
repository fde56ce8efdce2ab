"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

`entry` acquires the program's memory, lets `attempt` do the call, and frees the copies that it
made. `attempt` checks the arguments, finds the sizes, makes the outputs, runs the launches and
returns the results; or it returns 1, and `entry` passes the call, unchanged, to the Python function
`slow`, the first of the objects that the program owns. `native.py` fills in the offsets in braces
and explains the abbreviations.

A program with variables has `inputs`: the value of each, the least integer where none is known.
`evaluate` computes the sizes of a call from them (see `size_code.py`), unless they are those of the
call before. It writes them into the launch table and the records of the arrays; so a call owns
these from `acquire` to `release`, and a call that meets another goes to `slow`.
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
  %copied = alloca i64
  store i64 0, ptr %copied
  ; Words of a call: the bases, then of each array its object, its copy, its extent, its number.
  %room_words = field i64 %state {s.room}
  %room = alloca i64, i64 %room_words, align 16
  %arrays_count = field i64 %state {s.arrays}
  %bases_count = field i64 %state {s.bases}
  %arrays = getelementptr i64, ptr %room, i64 %bases_count
  %copies = getelementptr i64, ptr %arrays, i64 %arrays_count
  if eq i64 %stale, 0 then %begin else %slow
begin:
  %flag = field ptr %state {s.flag}
  %unshared = icmp ne ptr %flag, null
  br i1 %unshared, label %acquire, label %try
acquire:
  acquire %flag then %try else %slow
try:
  %answer = call ptr @attempt(ptr %state, ptr %args, i64 %nargs, ptr %names,
                              ptr %room, ptr %arrays, ptr %copies, ptr %copied)
  br i1 %unshared, label %release, label %finish
release:
  set i64 0 %flag 0 release
  br label %finish
finish:
  %copies_count = load i64, ptr %copied
  br label %free
free:
  loop %c = 0 to %copies_count from %finish, %free_one do %free_one else %freed
free_one:
  %copy = item ptr %copies %c
  api void decref(ptr %copy)
  br label %free
freed:
  if eq ptr %answer, {again} then %slow else %done
done:
  ret ptr %answer
slow:
  ; The call may give the program other objects.
  api void incref(ptr %owned)
  %function = field ptr %owned {tuple_items}
  %slow_answer = api ptr vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %names)
  api void decref(ptr %owned)
  ret ptr %slow_answer
}

define internal ptr @attempt(ptr %state, ptr %args, i64 %nargs, ptr %names,
                             ptr %bases, ptr %arrays, ptr %copies, ptr %copied) {
start:
  %n = field i64 %state {s.arguments}
  %arrays_count = field i64 %state {s.arrays}
  %fresh_count = sub i64 %arrays_count, %n
  %variables = field i64 %state {s.variables}
  %inputs = field ptr %state {s.inputs}
  %defaults = field ptr %state {s.defaults}
  %overflow = alloca i32
  br label %defaulting
defaulting:
  loop %df = 0 to %variables from %start, %default do %default else %arguments
default:
  %default_value = item i64 %defaults %df
  put i64 %default_value %inputs %df
  br label %defaulting
arguments:
  if eq ptr %names, null then %unnamed else %named
unnamed:
  if eq i64 %nargs, %n then %prepare else %slow

; `%arrays` receives the arguments in the program's order, then the arrays of the results.
named:
  %names_count = field i64 %names {head}
  %argument_names = field ptr %state {s.argument_names}
  if ugt i64 %nargs, %n then %slow else %positional
positional:
  loop %c = 0 to %nargs from %named, %copy do %copy else %keyword
copy:
  %moved = item ptr %args %c
  put ptr %moved %arrays %c
  br label %positional
keyword:
  %out = phi ptr [null, %positional], [%value, %match], [%out, %put], [%out, %integer]
  %integers = phi i64 [0, %positional], [%integers, %match], [%integers, %put],
                      [%one_more, %integer]
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
  loop %read_at = %nargs to %n from %search, %same_text do %same_text else %variable_names
same_text:
  %text = item ptr %argument_names %read_at
  %difference = api i32 compare_text(ptr %text, ptr %name)
  if eq i32 %difference, 0 then %put else %read
put:
  %found_at = phi i64 [%at, %same_object], [%read_at, %same_text]
  put ptr %value %arrays %found_at
  br label %keyword
variable_names:
  %known_names = field ptr %state {s.variable_names}
  br label %next_variable
next_variable:
  loop %var = 0 to %variables from %variable_names, %same_name do %same_name else %slow
same_name:
  %known_name = item ptr %known_names %var
  %name_difference = api i32 compare_text(ptr %known_name, ptr %name)
  if eq i32 %name_difference, 0 then %read_integer else %next_variable
read_integer:
  %value_type = field ptr %value {type}
  %int_type = field ptr @globals {g.int}
  %int64_type = field ptr @globals {g.numpy_int}
  if eq ptr %value_type, %int_type then %python_integer else %other_integer
other_integer:
  if eq ptr %value_type, %int64_type then %numpy_integer else %slow
numpy_integer:
  %from_numpy = field i64 %value {head}
  br label %integer
python_integer:
  %from_python = api i64 as_integer(ptr %value, ptr %overflow)
  %overflowed = load i32, ptr %overflow
  if eq i32 %overflowed, 0 then %integer else %slow
integer:
  %given_value = phi i64 [%from_numpy, %numpy_integer], [%from_python, %python_integer]
  put i64 %given_value %inputs %var
  %one_more = add i64 %integers, 1
  br label %keyword
matched:
  ; Names differ, so each filled a slot of its own, or is a variable.
  %no_out = icmp eq ptr %out, null
  %outs = select i1 %no_out, i64 0, i64 1
  %others = add i64 %outs, %integers
  %by_name = sub i64 %names_count, %others
  %all = add i64 %nargs, %by_name
  if eq i64 %all, %n then %complete else %slow
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
  %numbers = getelementptr i64, ptr %copies, i64 %arrays_count
  %begins = getelementptr i64, ptr %numbers, i64 %arrays_count
  %ends = getelementptr i64, ptr %begins, i64 %arrays_count
  %records = field ptr %state {s.records}
  %ndarray = field ptr @globals {g.ndarray}
  %nothing = field i64 @globals {g.nothing}
  if eq i64 %variables, 0 then %check_all else %solve

; A size that a shape gives.
solve:
  %dim_inputs_count = field i64 %state {s.dim_inputs_count}
  %dim_inputs = field ptr %state {s.dim_inputs}
  br label %next_input
next_input:
  loop %di = 0 to %dim_inputs_count from %solve, %take_size do %read_dim else %compare_inputs
read_dim:
  %dim_input = getelementptr [3 x i64], ptr %dim_inputs, i64 %di
  %di_argument = field i64 %dim_input 0
  %di_axis = field i64 %dim_input 8
  %di_variable = field i64 %dim_input 16
  %di_array = item ptr %given_arrays %di_argument
  %di_class = field ptr %di_array {type}
  if eq ptr %di_class, %ndarray then %read_rank else %slow
read_rank:
  %di_rank = field i32 %di_array {ndim}
  %di_record = getelementptr [{record_words} x i64], ptr %records, i64 %di_argument
  %di_want_rank = field i32 %di_record {r.ndim}
  if eq i32 %di_rank, %di_want_rank then %read_size else %slow
read_size:
  %di_dims = field ptr %di_array {dims}
  %di_size = item i64 %di_dims %di_axis
  %by_call = item i64 %inputs %di_variable
  %unnamed_size = icmp eq i64 %by_call, {unknown}
  %same_size = icmp eq i64 %by_call, %di_size
  %agrees = or i1 %unnamed_size, %same_size
  br i1 %agrees, label %take_size, label %slow
take_size:
  put i64 %di_size %inputs %di_variable
  br label %next_input
compare_inputs:
  %evaluated = field ptr %state {s.evaluated}
  br label %compare_next
compare_next:
  loop %ci = 0 to %variables from %compare_inputs, %same_input do %compare_input else %sized
compare_input:
  %new_input = item i64 %inputs %ci
  %old_input = item i64 %evaluated %ci
  if eq i64 %new_input, %old_input then %same_input else %evaluate
same_input:
  ; Before the first evaluation, what no call gave equals what none has evaluated.
  if eq i64 %new_input, {unknown} then %slow else %compare_next
evaluate:
  %fits = call i1 @evaluate(ptr %state, ptr %inputs, i64 %variables)
  br i1 %fits, label %sized, label %slow
sized:
  %arena_needed = field i64 %state {s.arena_bytes}
  %sized_arena = field ptr %state {s.arena}
  %arena_size = field i64 %sized_arena 16
  if ule i64 %arena_needed, %arena_size then %check_all else %slow

check_all:
  br label %argument
argument:
  loop %i = 0 to %given from %check_all, %accepted do %check else %overlaps
check:
  %array = item ptr %given_arrays %i
  put ptr %array %arrays %i
  %record = getelementptr [{record_words} x i64], ptr %records, i64 %i
  %class = field ptr %array {type}
  if eq ptr %class, %ndarray then %check_dtype else %check_scalar
check_scalar:
  ; A NumPy number has its value where an array has its address; a Python number is converted.
  %scalar_class = field ptr %record {r.scalar}
  if eq ptr %class, %scalar_class then %numpy_scalar else %check_number
numpy_scalar:
  %scalar_at = getelementptr i8, ptr %array, i64 {head}
  %scalar_address = ptrtoint ptr %scalar_at to i64
  br label %accepted
check_number:
  %kind = field i64 %record {r.number}
  %float_type = field ptr @globals {g.float}
  %whole_type = field ptr @globals {g.int}
  %number_at = getelementptr i64, ptr %numbers, i64 %i
  %number_address = ptrtoint ptr %number_at to i64
  if eq i64 %kind, 0 then %slow else %number_class
number_class:
  if eq ptr %class, %float_type then %python_float else %maybe_whole
maybe_whole:
  if eq ptr %class, %whole_type then %python_whole else %slow
python_float:
  %float_value = field double %array {head}
  switch i64 %kind, label %slow [ i64 {wide_float} , label %as_double
                                  i64 {narrow_float} , label %as_float ]
python_whole:
  %whole = api i64 as_integer(ptr %array, ptr %overflow)
  %whole_overflow = load i32, ptr %overflow
  if eq i32 %whole_overflow, 0 then %whole_fits else %slow
whole_fits:
  %whole_float = sitofp i64 %whole to double
  switch i64 %kind, label %slow [ i64 {wide_float} , label %as_double
                                  i64 {narrow_float} , label %as_float
                                  i64 {wide_int} , label %as_wide
                                  i64 {narrow_int} , label %as_narrow ]
as_double:
  %double_value = phi double [%float_value, %python_float], [%whole_float, %whole_fits]
  store double %double_value, ptr %number_at
  br label %accepted
as_float:
  %wide_value = phi double [%float_value, %python_float], [%whole_float, %whole_fits]
  %narrow_value = fptrunc double %wide_value to float
  store float %narrow_value, ptr %number_at
  br label %accepted
as_narrow:
  %narrow_int = trunc i64 %whole to i32
  %wide_again = sext i32 %narrow_int to i64
  if eq i64 %wide_again, %whole then %as_wide else %slow
as_wide:
  store i64 %whole, ptr %number_at
  br label %accepted
check_dtype:
  %dtype = field ptr %array {dtype}
  %want_dtype = field ptr %record {r.dtype}
  if eq ptr %dtype, %want_dtype then %check_rank else %other_dtype
other_dtype:
  ; An unpickled array has a dtype object of its own that means the same.
  %type_number = field i32 %dtype {type_number}
  %want_number = field i32 %record {r.type_number}
  %order = field i8 %dtype {byte_order}
  if eq i32 %type_number, %want_number and eq i8 %order, 61 then %check_rank else %slow
check_rank:
  %flags = field i32 %array {flags}
  %want_flags = field i32 %record {r.flags}
  %common_flags = and i32 %flags, %want_flags
  %ndim = field i32 %array {ndim}
  %want_ndim = field i32 %record {r.ndim}
  %rank = field i64 %record {r.ndim}
  %dims = field ptr %array {dims}
  %want_dims = field ptr %record {r.dims}
  if eq i32 %ndim, %want_ndim then %dim else %slow
dim:
  loop %d = 0 to %rank from %check_rank, %check_dim do %check_dim else %check_flags
check_dim:
  %size = item i64 %dims %d
  %want_size = item i64 %want_dims %d
  if eq i64 %size, %want_size then %dim else %slow
check_flags:
  if eq i32 %common_flags, %want_flags then %dense else %strided
strided:
  ; An input is copied. An array that is written is not: `slow` says so.
  %writable = and i32 %want_flags, {writeable}
  if eq i32 %writable, 0 then %duplicate else %slow
duplicate:
  %duplicated = api ptr new_copy(ptr %array, i32 0)
  if eq ptr %duplicated, null then %no_memory else %keep_copy
no_memory:
  ret ptr null
keep_copy:
  %copy_number = load i64, ptr %copied
  put ptr %duplicated %copies %copy_number
  %copies_now = add i64 %copy_number, 1
  store i64 %copies_now, ptr %copied
  %copy_data = field i64 %duplicated {data}
  %strides = field ptr %array {strides}
  %first_byte = field i64 %array {data}
  %element = field i64 %record {r.itemsize}
  %last_byte = add i64 %first_byte, %element
  br label %extent
extent:
  ; The bytes from the least element to the end of the greatest.
  %least = phi i64 [%first_byte, %keep_copy], [%less, %axis]
  %most = phi i64 [%last_byte, %keep_copy], [%more, %axis]
  loop %ax = 0 to %rank from %keep_copy, %axis do %axis else %in_place
axis:
  %stride = item i64 %strides %ax
  %steps = item i64 %dims %ax
  %beyond_first = sub i64 %steps, 1
  %reach = mul i64 %stride, %beyond_first
  %down = call i64 @llvm.smin.i64(i64 %reach, i64 0)
  %up = call i64 @llvm.smax.i64(i64 %reach, i64 0)
  %less = add i64 %least, %down
  %more = add i64 %most, %up
  br label %extent
dense:
  %data = field i64 %array {data}
  %nbytes = field i64 %record {r.nbytes}
  %data_end = add i64 %data, %nbytes
  br label %in_place
in_place:
  %array_address = phi i64 [%data, %dense], [%copy_data, %extent]
  %begin = phi i64 [%data, %dense], [%least, %extent]
  %end_byte = phi i64 [%data_end, %dense], [%most, %extent]
  %whole_bytes = field i64 %record {r.nbytes}
  %no_elements = icmp eq i64 %whole_bytes, 0
  %kept_address = select i1 %no_elements, i64 %nothing, i64 %array_address
  %kept_end = select i1 %no_elements, i64 %begin, i64 %end_byte
  br label %accepted
accepted:
  %argument_address = phi i64 [%kept_address, %in_place], [%scalar_address, %numpy_scalar],
      [%number_address, %as_double], [%number_address, %as_float], [%number_address, %as_wide]
  %argument_begin = phi i64 [%begin, %in_place], [0, %numpy_scalar],
      [0, %as_double], [0, %as_float], [0, %as_wide]
  %argument_end = phi i64 [%kept_end, %in_place], [0, %numpy_scalar],
      [0, %as_double], [0, %as_float], [0, %as_wide]
  put i64 %argument_address %bases %i
  put i64 %argument_begin %begins %i
  put i64 %argument_end %ends %i
  br label %argument

overlaps:
  %written_args = field i64 %state {s.written_count}
  %written_count = add i64 %written_args, %extra
  %written = field ptr %state {s.written}
  br label %writer
writer:
  loop %w = 0 to %written_count from %overlaps, %against do %writer_range else %results
writer_range:
  %wi = item i64 %written %w
  %w_begin = item i64 %begins %wi
  %w_end = item i64 %ends %wi
  br label %against
against:
  loop %j = 0 to %given from %writer_range, %other, %compare do %other else %writer
other:
  if eq i64 %j, %wi then %against else %compare
compare:
  %j_begin = item i64 %begins %j
  %j_end = item i64 %ends %j
  if ult i64 %j_begin, %w_end and ult i64 %w_begin, %j_end then %slow else %against

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
  if eq ptr %new, null then %drop else %made
made:
  put ptr %new %arrays %f
  %new_data = field i64 %new {data}
  %new_bytes = field i64 %f_record {r.nbytes}
  %new_is_empty = icmp eq i64 %new_bytes, 0
  %new_address = select i1 %new_is_empty, i64 %nothing, i64 %new_data
  put i64 %new_address %bases %f
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
  %arena = field ptr %state {s.arena}
  %arena_address = field i64 %arena 8
  put i64 %arena_address %bases %arrays_count
  %table = field ptr %state {s.table}
  %nogil = field i64 %state {s.nogil}
  if eq i64 %nogil, 0 then %run_holding else %run_released
run_holding:
  call void @run(ptr %table, ptr %bases)
  br label %hand_back
run_released:
  %thread = api ptr save_thread()
  call void @run(ptr %table, ptr %bases)
  api void restore_thread(ptr %thread)
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
  loop %k = 0 to %results_count from %filling, %fill, %own do %fill else %filled
fill:
  %item_source = item i64 %sources %k
  %item_value = item ptr %arrays %item_source
  put ptr %item_value %items %k
  if ult i64 %item_source, %n then %own else %item
own:
  call void %incref(ptr %item_value)
  br label %item
filled:
  ret ptr %sequence

drop:
  ; A dict has references of its own to the arrays.
  %answer = phi ptr [null, %make], [null, %make_sequence], [null, %make_dict], [null, %drop_dict],
                    [%dict, %entry]
  %end = phi i64 [%f, %make], [%arrays_count, %make_sequence], [%arrays_count, %make_dict],
                 [%arrays_count, %drop_dict], [%arrays_count, %entry]
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
  ret ptr {again}
}

; The addresses of the data of a list of arrays.
define void @read_addresses(ptr %list, ptr %to) {
start:
  %count = field i64 %list {head}
  %items = field ptr %list {list_items}
  br label %each
each:
  loop %i = 0 to %count from %start, %array do %array else %end
array:
  %thing = item ptr %items %i
  %address = field i64 %thing {data}
  put i64 %address %to %i
  br label %each
end:
  ret void
}

; The items of a list or a tuple.
define internal ptr @items(ptr %sequence, i1 %is_list) {
  %of_list = field ptr %sequence {list_items}
  %of_tuple = getelementptr i8, ptr %sequence, i64 {tuple_items}
  %items = select i1 %is_list, ptr %of_list, ptr %of_tuple
  ret ptr %items
}
"""
