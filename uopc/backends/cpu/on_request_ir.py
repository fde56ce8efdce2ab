"""The parts of the native entry that only some calls run, as LLVM IR: arguments by name, `out`,
sizes that shapes give, numbers, arrays that are not dense, several results.

`native.py` compiles these functions with less effort than `entry` and `run`, which every call runs.
"""

ON_REQUEST = """
; The arguments of a call with names, in the program's order, and after them the arrays for its
; results: the number of these, or -1 where Python has to look.
define i64 @by_name(ptr %state, ptr %args, i64 %nargs, ptr %names, ptr %arrays) {
start:
  %n = field i64 %state {s.arguments}
  %arrays_count = field i64 %state {s.arrays}
  %fresh_count = sub i64 %arrays_count, %n
  %variables = field i64 %state {s.variables}
  %inputs = field ptr %state {s.inputs}
  %overflow = alloca i32
  %names_count = field i64 %names {head}
  %argument_names = field ptr %state {s.argument_names}
  if ugt i64 %nargs, %n then %slow else %positional
positional:
  loop %c = 0 to %nargs from %start, %copy do %copy else %keyword
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
  br i1 %no_out, label %no_outs, label %take_out
no_outs:
  ret i64 0

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
  ret i64 1
out_class:
  br i1 %out_is_list, label %out_sequence, label %out_other
out_other:
  if eq ptr %out_type, %tuple_type then %out_sequence else %slow
out_sequence:
  %outs_given = field i64 %out {head}
  %out_items = call ptr @items(ptr %out, i1 %out_is_list)
  if eq i64 %outs_given, %fresh_count then %out_item else %slow
out_item:
  loop %o = 0 to %fresh_count from %out_sequence, %out_one do %out_one else %outs_taken
out_one:
  %out_array = item ptr %out_items %o
  put ptr %out_array %outputs %o
  br label %out_item
outs_taken:
  ret i64 %fresh_count
slow:
  ret i64 -1
}

; True if the sizes of a call with these arrays are known, and the arena has room for them.
define i1 @sized(ptr %state, ptr %given_arrays) {
start:
  %variables = field i64 %state {s.variables}
  %inputs = field ptr %state {s.inputs}
  %records = field ptr %state {s.records}
  %ndarray = field ptr @globals {g.ndarray}
  %dim_inputs_count = field i64 %state {s.dim_inputs_count}
  %dim_inputs = field ptr %state {s.dim_inputs}
  br label %next_input
next_input:
  loop %di = 0 to %dim_inputs_count from %start, %take_size do %read_dim else %compare_inputs
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
  if ule i64 %arena_needed, %arena_size then %yes else %slow
yes:
  ret i1 true
slow:
  ret i1 false
}

; The address of a number: in its object, if that is one of NumPy's; else `at`, converted.
; 0 where Python has to look.
define i64 @number(ptr %array, ptr %record, ptr %at) {
start:
  %class = field ptr %array {type}
  %overflow = alloca i32
  ; A NumPy number has its value where an array has its address; a Python number is converted.
  %scalar_class = field ptr %record {r.scalar}
  if eq ptr %class, %scalar_class then %numpy_scalar else %check_number
numpy_scalar:
  %scalar_at = getelementptr i8, ptr %array, i64 {head}
  %scalar_address = ptrtoint ptr %scalar_at to i64
  ret i64 %scalar_address
check_number:
  %kind = field i64 %record {r.number}
  %float_type = field ptr @globals {g.float}
  %whole_type = field ptr @globals {g.int}
  %number_address = ptrtoint ptr %at to i64
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
  store double %double_value, ptr %at
  ret i64 %number_address
as_float:
  %wide_value = phi double [%float_value, %python_float], [%whole_float, %whole_fits]
  %narrow_value = fptrunc double %wide_value to float
  store float %narrow_value, ptr %at
  ret i64 %number_address
as_narrow:
  %narrow_int = trunc i64 %whole to i32
  %wide_again = sext i32 %narrow_int to i64
  if eq i64 %wide_again, %whole then %as_wide else %slow
as_wide:
  store i64 %whole, ptr %at
  ret i64 %number_address
slow:
  ret i64 0
}

; The address of the elements of a dense copy, which the call owns; 0 if there is no memory. The
; array has the bytes from `begin` to `end`: from its least element to the end of the greatest.
define i64 @duplicate(ptr %array, ptr %record, ptr %copies, ptr %copied, ptr %begin, ptr %end) {
start:
  %dims = field ptr %array {dims}
  %rank = field i64 %record {r.ndim}
  %duplicated = api ptr new_copy(ptr %array, i32 0)
  if eq ptr %duplicated, null then %none else %keep_copy
none:
  ret i64 0
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
  %least = phi i64 [%first_byte, %keep_copy], [%less, %axis]
  %most = phi i64 [%last_byte, %keep_copy], [%more, %axis]
  loop %ax = 0 to %rank from %keep_copy, %axis do %axis else %extended
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
extended:
  %nbytes = field i64 %record {r.nbytes}
  %no_elements = icmp eq i64 %nbytes, 0
  %nothing = field i64 @globals {g.nothing}
  %address = select i1 %no_elements, i64 %nothing, i64 %copy_data
  %last = select i1 %no_elements, i64 %least, i64 %most
  store i64 %least, ptr %begin
  store i64 %last, ptr %end
  ret i64 %address
}

; A new array for a large result, or in its place one of other memory, if stores to it would delay
; loads from `n` others that are large (see `memory_plan.py`). Null if there is no memory.
define ptr @apart(ptr %new, ptr %record, ptr %begins, ptr %ends, i64 %n) {
start:
  %room = alloca i64
  if eq ptr %new, null then %none else %look
none:
  ret ptr null
look:
  %first = field i64 %new {data}
  %is_ahead = call i1 @is_ahead(i64 %first, ptr %begins, ptr %ends, i64 %n)
  br i1 %is_ahead, label %replace, label %keep
keep:
  ret ptr %new
replace:
  api void decref(ptr %new)
  %nbytes = field i64 %record {r.nbytes}
  %with_room = add i64 %nbytes, {page}
  store i64 %with_room, ptr %room
  %ndarray = field ptr @globals {g.ndarray}
  %byte = field ptr @globals {g.byte}
  api void incref(ptr %byte)
  %owner = api ptr new_array(ptr %ndarray, ptr %byte, i32 1, ptr %room, ptr null, ptr null, i32 0,
                             ptr null)
  if eq ptr %owner, null then %none else %place
place:
  %owned = field i64 %owner {data}
  %rounded = add i64 %owned, 63
  %line = and i64 %rounded, -64
  br label %try
try:
  loop %k = 0 to 63 from %place, %try_next do %try_one else %found
try_one:
  %offset = mul i64 %k, 64
  %here = add i64 %line, %offset
  %bad = call i1 @is_ahead(i64 %here, ptr %begins, ptr %ends, i64 %n)
  br i1 %bad, label %try_next, label %found
try_next:
  br label %try
found:
  ; Where there are so many arguments that each place is ahead of one, any place is as good.
  %chosen = phi i64 [%line, %try], [%here, %try_one]
  %address = inttoptr i64 %chosen to ptr
  %dtype = field ptr %record {r.dtype}
  %rank = field i32 %record {r.ndim}
  %dims = field ptr %record {r.dims}
  api void incref(ptr %dtype)
  %view = api ptr new_array(ptr %ndarray, ptr %dtype, i32 %rank, ptr %dims, ptr null, ptr %address,
                            i32 {plain_flags}, ptr null)
  if eq ptr %view, null then %lost else %own
lost:
  api void decref(ptr %owner)
  ret ptr null
own:
  ; It takes the reference to the owner, also where it fails.
  %failed = api i32 set_base(ptr %view, ptr %owner)
  if eq i32 %failed, 0 then %placed else %unowned
unowned:
  api void decref(ptr %view)
  ret ptr null
placed:
  ret ptr %view
}

; True if an address lies a little ahead of one of `n` large arrays, in their pages.
define internal i1 @is_ahead(i64 %address, ptr %begins, ptr %ends, i64 %n) {
start:
  br label %argument
argument:
  loop %i = 0 to %n from %start, %compare do %compare else %no
compare:
  %begin = item i64 %begins %i
  %end = item i64 %ends %i
  %nbytes = sub i64 %end, %begin
  %distance = sub i64 %address, %begin
  %in_page = and i64 %distance, {page_mask}
  %beyond = sub i64 %in_page, 1
  if ugt i64 %nbytes, {least_large} and ult i64 %beyond, {ahead} then %yes else %argument
yes:
  ret i1 true
no:
  ret i1 false
}

; A dict, list or tuple of the results; null if there is no memory: the results are freed then.
define ptr @handed(ptr %state, ptr %arrays) {
start:
  %n = field i64 %state {s.arguments}
  %arrays_count = field i64 %state {s.arrays}
  %sources = field ptr %state {s.sources}
  %structure = field i64 %state {s.structure}
  %incref = field ptr @globals {g.incref}
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
  %answer = phi ptr [null, %make_sequence], [null, %make_dict], [null, %drop_dict], [%dict, %entry]
  call void @drop(ptr %arrays, i64 %n, i64 %arrays_count)
  ret ptr %answer
}

define void @drop(ptr %arrays, i64 %first, i64 %end) {
start:
  br label %dropping
dropping:
  loop %x = %first to %end from %start, %drop_one do %drop_one else %dropped
drop_one:
  %unwanted = item ptr %arrays %x
  api void decref(ptr %unwanted)
  br label %dropping
dropped:
  ret void
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
