"""Arguments by name and `out=`: the part of `entry` that puts them in order, as LLVM IR.

From `named` to `prepare` (see entry_ir.py): `%slots` are the arguments in the program's order and
then the arrays for its results. Other calls go to `slow`, unchanged.
"""

NAMED = """
; Names: arrays and outputs are put in order, arguments first.
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
  if eq i64 %out_kind, 0 then %single_out else %out_class
single_out:
  store ptr %out, ptr %out_slots
  br label %prepare
out_class:
  %out_type = field ptr %out {type}
  %tuple_type = field ptr @globals {g.tuple}
  %list_type = field ptr @globals {g.list}
  %out_is_tuple = icmp eq ptr %out_type, %tuple_type
  %out_is_list = icmp eq ptr %out_type, %list_type
  %out_is_sequence = or i1 %out_is_tuple, %out_is_list
  %out_is_dict = icmp eq i64 %out_kind, {dict}
  %out_is_other = xor i1 %out_is_sequence, true
  %out_unknown = or i1 %out_is_dict, %out_is_other
  br i1 %out_unknown, label %slow, label %out_count
out_count:
  %tuple_size = field ptr @globals {g.tuple_size}
  %list_size = field ptr @globals {g.list_size}
  %tuple_item = field ptr @globals {g.tuple_item}
  %list_item = field ptr @globals {g.list_item}
  %size_of = select i1 %out_is_list, ptr %list_size, ptr %tuple_size
  %item_of = select i1 %out_is_list, ptr %list_item, ptr %tuple_item
  %outs_given = call i64 %size_of(ptr %out)
  if eq i64 %outs_given, %fresh_count then %out_item else %slow
out_item:
  loop %o = 0 to %fresh_count from %out_count, %out_one do %out_one else %prepare
out_one:
  %out_array = call ptr %item_of(ptr %out, i64 %o)
  put ptr %out_array %out_slots %o
  br label %out_item

"""
