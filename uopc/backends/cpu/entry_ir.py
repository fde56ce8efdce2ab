"""The `entry` function of the runtime, which CPython calls for a program, as LLVM IR.

`entry` acquires the program's memory, lets `attempt` do the call, and frees the copies that it
made. `attempt` checks the arguments, finds the sizes, makes the outputs, runs the launches and
returns the results; or it returns 1, and `entry` passes the call, unchanged, to the Python function
`slow`, the first of the objects that the program owns. `on_request_ir.py` has what only some calls
need. `native.py` fills in the offsets in braces and explains the abbreviations.

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

named:
  %outs = call i64 @by_name(ptr %state, ptr %args, i64 %nargs, ptr %names, ptr %arrays)
  if eq i64 %outs, -1 then %slow else %prepare

prepare:
  %given_arrays = phi ptr [%args, %unnamed], [%arrays, %named]
  %extra = phi i64 [0, %unnamed], [%outs, %named]
  %given = add i64 %n, %extra
  %bases_count = field i64 %state {s.bases}
  %numbers = getelementptr i64, ptr %copies, i64 %arrays_count
  %begins = getelementptr i64, ptr %numbers, i64 %arrays_count
  %ends = getelementptr i64, ptr %begins, i64 %arrays_count
  %records = field ptr %state {s.records}
  %ndarray = field ptr @globals {g.ndarray}
  %nothing = field i64 @globals {g.nothing}
  if eq i64 %variables, 0 then %check_all else %find_sizes
find_sizes:
  %sized = call i1 @sized(ptr %state, ptr %given_arrays)
  br i1 %sized, label %check_all, label %slow
check_all:
  br label %argument
argument:
  loop %i = 0 to %given from %check_all, %accepted, %duplicate do %check else %overlaps
check:
  %array = item ptr %given_arrays %i
  put ptr %array %arrays %i
  %record = getelementptr [{record_words} x i64], ptr %records, i64 %i
  %class = field ptr %array {type}
  if eq ptr %class, %ndarray then %check_dtype else %no_array
no_array:
  %number_at = getelementptr i64, ptr %numbers, i64 %i
  %number_address = call i64 @number(ptr %array, ptr %record, ptr %number_at)
  if eq i64 %number_address, 0 then %slow else %accepted
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
  %begin_at = getelementptr i64, ptr %begins, i64 %i
  %end_at = getelementptr i64, ptr %ends, i64 %i
  %duplicated = call i64 @duplicate(ptr %array, ptr %record, ptr %copies, ptr %copied,
                                    ptr %begin_at, ptr %end_at)
  put i64 %duplicated %bases %i
  if eq i64 %duplicated, 0 then %no_memory else %argument
no_memory:
  ret ptr null
dense:
  %data = field i64 %array {data}
  %nbytes = field i64 %record {r.nbytes}
  %data_end = add i64 %data, %nbytes
  %no_elements = icmp eq i64 %nbytes, 0
  %kept_address = select i1 %no_elements, i64 %nothing, i64 %data
  br label %accepted
accepted:
  %argument_address = phi i64 [%kept_address, %dense], [%number_address, %no_array]
  %argument_begin = phi i64 [%data, %dense], [0, %no_array]
  %argument_end = phi i64 [%data_end, %dense], [0, %no_array]
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
  %new_bytes = field i64 %f_record {r.nbytes}
  call void %incref(ptr %f_dtype)
  %made_new = api ptr new_array(ptr %ndarray, ptr %f_dtype, i32 %f_ndim, ptr %f_dims,
                                ptr null, ptr null, i32 0, ptr null)
  if ult i64 %new_bytes, {large} then %check_new else %large
large:
  ; A kernel that writes the result may read the arena. No array is given for a result, so the
  ; extent of the first has room for the arena's.
  %read_arena = field ptr %state {s.arena}
  %read_begin = field i64 %read_arena 8
  %read_bytes = field i64 %read_arena 16
  %read_end = add i64 %read_begin, %read_bytes
  put i64 %read_begin %begins %n
  put i64 %read_end %ends %n
  %read_count = add i64 %n, 1
  %apart = call ptr @apart(ptr %made_new, ptr %f_record, ptr %begins, ptr %ends, i64 %read_count)
  br label %check_new
check_new:
  %new = phi ptr [%made_new, %make], [%apart, %large]
  if eq ptr %new, null then %drop else %made
made:
  put ptr %new %arrays %f
  %new_data = field i64 %new {data}
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
  %many = call ptr @handed(ptr %state, ptr %arrays)
  ret ptr %many
drop:
  call void @drop(ptr %arrays, i64 %n, i64 %f)
  ret ptr null

slow:
  ret ptr {again}
}
"""
