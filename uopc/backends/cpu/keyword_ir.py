"""Arguments by name and `out=`: the part of `entry` that puts them in order, as LLVM IR.

From `named` to `prepare` (see entry_ir.py): `%slots` are the arguments in the program's order and
then the arrays for its results. Other calls go to `slow`, unchanged.
"""

NAMED = """
; Names: arrays and outputs are put in order, arguments first.
named:
  %names_count = field i64 %names {head}
  %too_many = icmp ugt i64 %nargs, %n
  br i1 %too_many, label %slow, label %sorting
sorting:
  %slots_count = add i64 %n, %fresh_count
  %slots = alloca ptr, i64 %slots_count, align 16
  %argument_names = field ptr %state {s.argument_names}
  br label %keyword
keyword:
  %kw = phi i64 [0, %sorting], [%kw_next, %is_named_out], [%kw_next, %put]
  %out = phi ptr [null, %sorting], [%value, %is_named_out], [%out, %put]
  %more_names = icmp ult i64 %kw, %names_count
  br i1 %more_names, label %match, label %matched
match:
  %names_items = getelementptr i8, ptr %names, i64 {tuple_items}
  %name_at = getelementptr ptr, ptr %names_items, i64 %kw
  %name = load ptr, ptr %name_at
  %value_number = add i64 %nargs, %kw
  %value_at = getelementptr ptr, ptr %args, i64 %value_number
  %value = load ptr, ptr %value_at
  %kw_next = add i64 %kw, 1
  %out_name = field ptr @globals {g.out}
  %is_out = icmp eq ptr %name, %out_name
  br i1 %is_out, label %is_named_out, label %search
is_named_out:
  br label %keyword
search:
  ; Names in the text of a program are interned: one object for each.
  %at = phi i64 [%nargs, %match], [%at_next, %same_object]
  %at_next = add i64 %at, 1
  %more_arguments = icmp ult i64 %at, %n
  br i1 %more_arguments, label %same_object, label %read
same_object:
  %known_at = getelementptr ptr, ptr %argument_names, i64 %at
  %known = load ptr, ptr %known_at
  %is_known = icmp eq ptr %known, %name
  br i1 %is_known, label %put, label %search
read:
  ; Others, the keys of a dict that was read from somewhere, say, are compared as text.
  %read_at = phi i64 [%nargs, %search], [%read_next, %same_text]
  %read_next = add i64 %read_at, 1
  %more_to_read = icmp ult i64 %read_at, %n
  br i1 %more_to_read, label %same_text, label %slow
same_text:
  %text_at = getelementptr ptr, ptr %argument_names, i64 %read_at
  %text = load ptr, ptr %text_at
  %compare_text = field ptr @globals {g.compare_text}
  %difference = call i32 %compare_text(ptr %text, ptr %name)
  %is_text = icmp eq i32 %difference, 0
  br i1 %is_text, label %put, label %read
put:
  %found_at = phi i64 [%at, %same_object], [%read_at, %same_text]
  %slot = getelementptr ptr, ptr %slots, i64 %found_at
  store ptr %value, ptr %slot
  br label %keyword
matched:
  ; Names differ, so each filled a slot of its own.
  %no_out = icmp eq ptr %out, null
  %outs = select i1 %no_out, i64 0, i64 1
  %by_name = sub i64 %names_count, %outs
  %all = add i64 %nargs, %by_name
  %complete = icmp eq i64 %all, %n
  br i1 %complete, label %copy_array, label %slow
copy_array:
  %c = phi i64 [0, %matched], [%c_next, %copy_one]
  %more_positional = icmp ult i64 %c, %nargs
  br i1 %more_positional, label %copy_one, label %copied
copy_one:
  %copy_from = getelementptr ptr, ptr %args, i64 %c
  %copy_to = getelementptr ptr, ptr %slots, i64 %c
  %copied_array = load ptr, ptr %copy_from
  store ptr %copied_array, ptr %copy_to
  %c_next = add i64 %c, 1
  br label %copy_array
copied:
  %out_slots = getelementptr ptr, ptr %slots, i64 %n
  br i1 %no_out, label %prepare, label %take_out

take_out:
  %takes_out = field i64 %state {s.takes_out}
  %may_out = icmp ne i64 %takes_out, 0
  br i1 %may_out, label %out_structure, label %slow
out_structure:
  %out_kind = field i64 %state {s.structure}
  %one_out = icmp eq i64 %out_kind, 0
  br i1 %one_out, label %single_out, label %out_class
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
  %outs_counted = icmp eq i64 %outs_given, %fresh_count
  br i1 %outs_counted, label %out_item, label %slow
out_item:
  %o = phi i64 [0, %out_count], [%o_next, %out_one]
  %more_outs = icmp ult i64 %o, %fresh_count
  br i1 %more_outs, label %out_one, label %prepare
out_one:
  %out_array = call ptr %item_of(ptr %out, i64 %o)
  %out_slot = getelementptr ptr, ptr %out_slots, i64 %o
  store ptr %out_array, ptr %out_slot
  %o_next = add i64 %o, 1
  br label %out_item

"""
