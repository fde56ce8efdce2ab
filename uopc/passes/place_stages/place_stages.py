"""Choose what is stored: a STAGE around each value that is computed once and read back.

Before (tensor)
    %1 = param x : f32[64, 64]
    %2 = reduce.add %1 axes=(0,) : f32[64]
    %3 = fdiv %1, %2 : f32[64, 64]
    sink %3
After (tensor)
    %1 = param x : f32[64, 64]
    %2 = reduce.add %1 axes=(0,) : f32[64]
    %3 = stage %2 reason="each element would be computed 64 times, in 1 place" : f32[64]
    %4 = fdiv %1, %3 : f32[64, 64]
    %5 = stage %4 reason="output 0" : f32[64, 64]
    sink %5

One walk goes from the outputs to the inputs. A demand on a value is the index of a read, and the
loops around the read, outer first. A value that a user, an output or an effect fixes is stored. For
any other value the demands give the number of evaluations, and `fusion_cost` decides. Loops count
down to the innermost range that the index uses, because the value is computed outside of loops
further inside: a row's maximum is free in its row.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uopc.errors import Unsupported
from uopc.ir.builder import index_maps, lookup_tables, rebuild
from uopc.ir.builder.elements import Elements
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import dtypes, ranges, shapes, trace, walk
from uopc.ir.core.args import Space, StageArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, whole_root, written_slots
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.analysis.op_costs import LOAD, whole_cost
from uopc.passes.analysis.parts import MOST_PARTS, is_stored_by_part, shared_work
from uopc.passes.analysis.user_opts import Opts, opts_of_stored
from uopc.passes.contract import Context
from uopc.passes.effects.copy_elision import without_needless_copies
from uopc.passes.effects.old_values import OldValues
from uopc.passes.effects.store_cycles import LaunchFootprints, Placed, may_overlap, opened
from uopc.passes.effects.views import is_final_storage, is_view, reshaped_base, root_index
from uopc.passes.place_stages import code_limits, fusion_cost
from uopc.passes.place_stages.buffer_limits import BufferLimit
from uopc.passes.place_stages.demand import Demand, evaluations_apart, share_of
from uopc.passes.place_stages.factor_reuse import FactorReuse
from uopc.passes.place_stages.value_costs import FORCED, Measures

if TYPE_CHECKING:
    from uopc.cost.parts import Cost
    from uopc.passes.place_stages.doubts import Predicting

_MOVES_ITSELF = "reads other elements of the array that it writes"
_CIRCLE = "several stores overwrite each other's operands"
# A value read at more different indices than this is stored rather than analysed further.
MOST_DEMANDS = 64
# Parts that cost more than this together are not asked whether they share work.
MOST_SHARED_WORK = 1e5
# Copies for the order of launches change what is stored, so the order is looked at again.
MOST_ROUNDS = 8


class _StagePlacement:
    """The walk: demands flow from readers to sources."""

    def __init__(
        self, graph: UOp, facts: Measures, copied: dict[UOp, str], explained: bool,
        asked: Predicting | None = None,
    ) -> None:  # fmt: skip
        """Decide all values. `copied`: STOREs whose value must exist before them, with reasons.
        `asked`: None if no cycles are predicted."""
        self.explained = explained  # keep demands and decisions, for the dump
        self.asked = asked
        self.doubts = None if asked is None else asked.doubts(facts)
        self.graph, self.facts, self.order, self.copied = graph, facts, facts.order, copied
        self.known: dict[UOp, UOp] = {}  # AFTER -> the node under it and the AFTERs below
        self.demands: dict[UOp, dict[tuple[UOp, Index], Demand]] = {}
        self.reasons = dict(facts.fixed)
        self.notes: dict[UOp, fusion_cost.StorageChoice] = {}
        self.by_part: set[UOp] = set()  # stored values whose parts have loops of their own
        self.tuned = set(opts_of_stored(self.order, self.order))  # values with the user's Opts
        self.axes = itertools.count(1)
        self.reuse = FactorReuse(facts.of, self.axes)
        self.elements = Elements()  # lowers indices that read no storage
        for v in self.copied_outputs():
            self._start(v, v)
        for u in reversed(self.order):
            if u.op is Ops.STORE:
                self._start_store(u)
            elif u.op is Ops.CALL:
                for a in u.src[1:]:
                    self._start(u, a)
            elif u.dtype is dtypes.void or u.op.is_storage or u.op is Ops.CONST:
                continue
            elif u in self.reasons:
                self._start_stored(u)
            elif u in self.demands:
                self._decide(u)

    def beyond(self, limit: Limit) -> dict[UOp, str]:
        """The values to store so that kernels take no more arguments than the limit."""
        kinds = [u.op.is_storage or u.op is Ops.VARIABLE or u in self.reasons for u in self.order]
        if 1 + sum(kinds) <= min(limit):
            return {}
        return BufferLimit(self.order, dict(self.reasons), limit, self._may_store).applied()

    def too_long(self) -> dict[UOp, str]:
        """The values to store so that no kernel has too much code for a GPU."""
        return code_limits.too_long(self.order, self.reasons, self._may_store)

    def _may_store(self, u: UOp) -> bool:
        """True if a value is computed and can have storage of its own."""
        return u.dtype is not dtypes.void and not is_view(u) and not self.facts.of[u].partial

    def copied_outputs(self) -> list[UOp]:
        """Outputs that show storage as it is before later effects, and so must be copied."""
        values = [v for v in self.graph.src if v.dtype is not dtypes.void]
        views = [v for v in values if is_view(reshaped_base(v))]
        return [v for v in views if not self._is_final(v)]

    def _is_final(self, v: UOp) -> bool:
        return is_final_storage(v, self.facts.effects, self.facts.below)

    def _start(self, reader: UOp, value: UOp) -> None:
        """Start a demand of stored `reader`: a loop for each axis longer than 1."""
        index, loops = index_maps.loop_index(shapes.shape(value))
        self._demand(value, Demand(reader, index, loops))

    def _start_stored(self, u: UOp) -> None:
        """Start the demands of a stored value, in its own loops; if it is stored by part, in the
        loops of each part."""
        value = u.src[0] if u.op in FORCED and u.src[0] not in self.reasons else u
        if is_stored_by_part(value) or (self._has_tiled_parts(value) and u not in self.tuned):
            self.by_part.add(u)
            for s in value.src:
                self._start(u, s)
        else:
            index, loops = index_maps.loop_index(shapes.shape(u))
            self._pass_on(u, Demand(u, index, loops))

    def _has_tiled_parts(self, u: UOp) -> bool:
        """True if parts of a STACK or CAT are contractions, which need own loops for a tile."""
        if u.op not in (Ops.STACK, Ops.CAT):
            return False
        return fusion_cost.tiles_pay([self.facts.of[s] for s in u.src])

    def _start_store(self, u: UOp) -> None:
        index, loops = index_maps.loop_index(shapes.shape(u.src[0]))
        for s in u.src[1:]:
            if u in self.copied:  # read in a loop nest of its own
                self._start(u if _space(self.copied[u], s) == "local" else s, s)
            else:
                mapped = index_maps.broadcast_index(index, shapes.shape(s))
                self._demand(s, Demand(u, mapped, loops))

    def self_reads(self) -> dict[UOp, str]:
        """STOREs, in graph order, whose value reads the written storage at other places."""
        writes: dict[tuple[UOp, UOp], Index] = {}
        for u in self.order:
            if u.op is Ops.STORE:
                written, _ = index_maps.loop_index(shapes.shape(u.src[0]))
                root, written, _ = root_index(u.src[0], written, self.known)
                writes[root, u] = written
        found: dict[UOp, str] = {}
        for root in dict.fromkeys([root for root, _ in writes]):
            for reader, index in self.demands.get(root, ()):
                written = writes.get((root, reader), index)
                if index != written and may_overlap(root, index, written):
                    found[reader] = _MOVES_ITSELF
        return found

    def _demand(self, u: UOp, demand: Demand) -> None:
        found = self.demands.setdefault(u, {})
        if found.setdefault(demand.key, demand).share < demand.share:
            found[demand.key] = demand

    def _decide(self, u: UOp) -> None:
        asked = self.explained or u in self.facts.effects  # for them again, later
        demands = list((self.demands[u] if asked else self.demands.pop(u)).values())
        if u.op not in (Ops.AFTER, Ops.IOTA, Ops.VARIABLE) and not self.facts.of[u].partial:
            moves = (u.op.movement and not self._is_part(u)) or self._is_window(u)
            choice = self._unravelled(u, demands) if moves else self._choose(u, demands)
            if self.explained:
                self.notes[u] = choice
            if choice.stored:
                self.reasons[u] = choice.reason
                self._start_stored(u)
                return
        for d in demands:
            self._pass_on(u, d)

    def _is_part(self, u: UOp) -> bool:
        """True if a SHRINK is the only reader of a computed value: it needs no other elements."""
        if u.op is not Ops.SHRINK:
            return False
        value = u.src[0]
        while value.op is Ops.RESHAPE and value not in self.facts.several:
            value = value.src[0]
        return not is_view(value) and value not in self.facts.several

    def _is_window(self, u: UOp) -> bool:
        """True if a gather reads each element of its source, in another order of loops, like the
        windows of a convolution. Its source is stored instead, in its own loops."""
        if u.op is not Ops.INDEX or any([self.facts.of[i].reads for i in u.src[1:]]):
            return False
        return self.facts.of[u].elements >= self.facts.of[u.src[0]].elements

    def _unravelled(self, u: UOp, demands: list[Demand]) -> fusion_cost.StorageChoice:
        """Decide for a movement: it is only index arithmetic, unless its index has too many
        divisions."""
        deepest = max([lookup_tables.divisions(x) for d in demands for x in d.index], default=0)
        if deepest <= lookup_tables.MOST_DIVISIONS:
            choice = fusion_cost.StorageChoice(False, "only an index")
            return choice if self.doubts is None else self.doubts.repeated(u, demands, choice)
        return fusion_cost.StorageChoice(True, "its index is {} divisions deep", (deepest,))

    def _choose(self, u: UOp, demands: list[Demand]) -> fusion_cost.StorageChoice:
        value = self.facts.of[u]
        if len(demands) > MOST_DEMANDS and value.cost > LOAD:
            return fusion_cost.StorageChoice(True, "read at {} different places", (len(demands),))
        evaluations = unshared = sum([d.evaluations for d in demands])
        if evaluations > value.elements and not value.has_reduce:
            evaluations = sum([d.evaluations_once_nested for d in demands])
            cheap = value.cost <= fusion_cost.CHEAP_VALUE
            unshared = max(value.elements, evaluations_apart(demands, value.elements, cheap))
        if u.op is Ops.CAT and len({d.reader for d in demands}) > 1:  # a DenseNet's, say
            together = len(u.src) + max([d.parts for d in demands])
            if together > MOST_PARTS:  # some reader would have a loop for each of them
                return fusion_cost.StorageChoice(True, "readers choose among {} parts", (together,))
        choice = fusion_cost.choose_storage(value, evaluations, unshared, len(demands))
        recomputed = evaluations > value.elements
        if not choice.stored and any([d.gathered or (recomputed and d.in_reduce) for d in demands]):
            # Each read computes what loops of the value itself would compute once.
            full_cost = whole_cost(u, self.reasons, self.facts.loops)
            choice = fusion_cost.choose_scattered(value, full_cost, evaluations, choice)
        twice = value.has_reduce and len(demands) > len({d.reader for d in demands})
        if twice or (value.contracts and any([d.in_reduce or not d.keeps_loops for d in demands])):
            choice = fusion_cost.choose_tiling(value, evaluations, choice)
        if value.contracts and any([d.evaluations < value.elements for d in demands[1:]]):
            choice = self._choose_product(u, demands, choice)
        if recomputed and value.over_reduce:
            repeated = [d for d in demands if d.evaluations > value.elements]
            saved = max([d.tile for d in repeated if not d.moves_with_loops], default=0.0)
            choice = fusion_cost.choose_operand(value, saved, evaluations, choice)
        if u.op is Ops.STACK and not choice.stored:
            choice = self._choose_parts(u, demands, choice)
        if self.doubts is not None:
            by_kernels = self.doubts.choice(u, demands, evaluations, choice)
            if by_kernels is not None:
                return by_kernels
        if choice.stored and value.is_light:
            # It reads a reduce that has other readers: storing the reduce serves them all.
            return fusion_cost.StorageChoice(False, "cheap once the reduce that it reads is stored")
        return choice

    def _choose_product(
        self, u: UOp, demands: list[Demand], choice: fusion_cost.StorageChoice
    ) -> fusion_cost.StorageChoice:
        """Decide for a contraction with several readers that each read some elements."""
        if choice.stored:
            return choice
        value, (full_index, _) = self.facts.of[u], index_maps.loop_index(shapes.shape(u))
        separate = sum([d.evaluations * self.reuse.rereads(u, d.index) for d in demands])
        together = value.elements * self.reuse.rereads(u, full_index)
        evaluations = sum([d.evaluations for d in demands])
        return fusion_cost.choose_product(
            value, evaluations, len(demands), separate, together, choice
        )

    def _choose_parts(
        self, u: UOp, demands: list[Demand], choice: fusion_cost.StorageChoice
    ) -> fusion_cost.StorageChoice:
        """Decide for a STACK whose parts share work that a loop nest of their own would do once."""
        evaluations = sum([d.evaluations for d in demands if d.computes_apart(d.index[0])])
        if not evaluations or len({shapes.shape(s) for s in u.src}) > 1:
            return choice
        together = shared_work(u.src, self.reasons, MOST_SHARED_WORK)
        if not together:
            return choice
        return fusion_cost.choose_parts(self.facts.of[u], len(u.src), together, evaluations, choice)

    def _pass_on(self, u: UOp, demand: Demand) -> None:
        """Turn a read of `u` into demands on the sources of `u`."""
        index, loops = demand.index, demand.around
        if u.op is Ops.AFTER:
            self._demand(before_effects(u, self.known), demand)
        elif u.op.movement:
            mapped, _ = index_maps.source_index(u, index)
            share = share_of(u.src[0], u) if u.op is Ops.PAD else 1.0
            self._demand(u.src[0], demand.moved(mapped, loops, share))
        elif u.op is Ops.REDUCE:
            mapped, inner = index_maps.reduce_index(u, index, self.axes)
            tile = fusion_cost.tile_saves(self.facts.cost_of_reduce(u), demand.evaluations)
            packed = repeats_factors(u.src[0])
            moved = demand.moved(mapped, loops + inner, tile=tile, packed=packed)
            self._demand(u.src[0], moved)
        elif u.op is Ops.INDEX:
            self._pass_on_gather(u, demand)
        elif u.op in (Ops.STACK, Ops.CAT):
            self._pass_on_parts(u, demand)
        elif u.op is Ops.BITCAST:
            for mapped in index_maps.resized_indices(u, index):
                self._demand(u.src[0], demand.moved(mapped, loops))
        else:
            for s in u.src:
                if s.op is not Ops.CONST or s in self.facts.effects:
                    mapped = index_maps.broadcast_index(index, shapes.shape(s))
                    self._demand(s, demand.moved(mapped, loops))

    def _pass_on_gather(self, u: UOp, demand: Demand) -> None:
        loops, gathered = demand.around, False
        index, rest = index_maps.gather_index(u, demand.index)
        values: list[UOp] = []
        for s in u.src[1:]:
            mapped = index_maps.broadcast_index(index, shapes.shape(s))
            self._demand(s, demand.moved(mapped, loops))
            if self.facts.of[s].reads:  # only its ranges matter
                values.append(intern(Ops.INDEX, dtypes.index, (s, *mapped)))
                gathered = True
            else:
                values.append(self.elements.lower((s, mapped, index_maps.true())))
        index = *values, *rest
        self._demand(u.src[0], demand.moved(index, loops, gathered=gathered))

    def _pass_on_parts(self, u: UOp, demand: Demand) -> None:
        """Pass a demand on to the parts of a STACK or CAT, each with its share of the loop."""
        loops = demand.around
        axis, parts = index_maps.cut_in_parts(u)
        more = len(parts) - 1 if u.op is Ops.CAT else 0
        at = demand.index[axis]
        for s, begin, _ in parts:
            inner = () if u.op is Ops.STACK else (affine.sub(at, dim_uop(begin)),)
            mapped = (*demand.index[:axis], *inner, *demand.index[axis + 1 :])
            made = demand.moved(mapped, loops, demand.chosen(at, share_of(s, u)), more)
            if not ranges.ranges(at) <= set(made.around):
                made = demand.moved(mapped, loops, parts=more)  # the parts' loop is further in
            self._demand(s, made)

    def decided(self) -> dict[str, Any]:
        """The demands on each value, the choices by cost, and the reasons of stored values."""
        return {"demands": self.demands, "choices": self.notes, "stored": self.reasons}

    def launches(self) -> LaunchFootprints:
        """The launches, with the versions of storage that they read and write."""
        facts, copied = self.facts, self.copied
        apart = {u for u in copied if "global" in [_space(copied[u], s) for s in u.src[1:]]}
        found = Placed(
            self.order, self.reasons, facts.effects, facts.below, self.demands,
            self.copied_outputs(), apart,
        )  # fmt: skip
        return LaunchFootprints(found)

    def placed(self, context: Context, given: Mapping[UOp, str]) -> UOp:
        """Put STAGEs into the graph. `given`: values stored for launch order, with reasons."""
        tiles = context.target.gpu is not None
        again = functools.partial(_decided, self.graph, tiles, given, self.copied, self.asked)
        context.notes["placement"] = self.decided if self.explained else again
        opts = opts_of_stored(self.order, self.reasons)

        def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
            reason = self.reasons.get(u)
            if reason is not None:
                forced = u.op in FORCED
                value = src[0] if forced else rebuild.remake(u, src)
                place = self._place(u)
                moves = u.op is Ops.COPY and place != ""
                if forced and value.op is Ops.STAGE and (moves or u.src[0] in self.facts.effects):
                    arg = StageArg(reason, False, place)
                    return intern(Ops.STAGE, value.dtype, (value,), arg)
                by_part = u in self.by_part
                return _stage(value, reason, not forced, opts.get(u), by_part=by_part, place=place)
            if u.op is Ops.COPY:  # read where it is
                return src[0]
            if u.op is Ops.CALL and u.src[0].op in walk.CALLED:
                return _called(u, src)
            if u in self.copied:
                reason = self.copied[u]
                spaces = [_space(reason, s) for s in src[1:]]
                copies = [
                    _stage(s, reason, False, None, to, place=self._place(u.src[1 + i]))
                    for i, (s, to) in enumerate(zip(src[1:], spaces))
                ]
                return intern(u.op, u.dtype, (src[0], *copies), u.arg, u.tag)
            if u is self.graph:
                return intern(u.op, u.dtype, self._outputs(src), u.arg, u.tag)
            return None

        return rebuild.rewritten(self.graph, change, outside_kernels=True)

    def _place(self, u: UOp) -> str:
        """The name of the device of a stored value, in a program for several."""
        place = self.facts.places.get(u)
        return place if isinstance(place, str) else ""

    def _outputs(self, values: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """The outputs, with a STAGE on each that needs its own storage. The result of an assignment
        is the caller's array."""
        out: list[UOp] = []
        taken: set[UOp] = set()
        for i, (before, v) in enumerate(zip(self.graph.src, values)):
            root = whole_root(v)
            if v.dtype is not dtypes.void:
                if root in taken or not self._is_final(before):
                    arg = StageArg(f"output {i}", False, self._place(before))
                    v = intern(Ops.STAGE, v.dtype, (v,), arg)
                elif root.op is not Ops.PARAM:
                    taken.add(root)
            out.append(v)
        return tuple(out)


def _called(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Copy views that move elements for a hand-written kernel, which takes whole storage only."""
    written = written_slots(src[0])
    args = []
    for slot, a in enumerate(src[1:]):
        view = whole_root(a)
        if view.op.movement:
            if slot in written:
                raise Unsupported(
                    f"kernel argument {slot} is written: it must be storage, got {view.op.name}"
                )
            a = _stage(a, "argument of a kernel", False)
        args.append(a)
    return intern(u.op, u.dtype, (src[0], *args), u.arg, u.tag)


def _stage(
    value: UOp, reason: str, removable: bool, opts: Opts = None, space: Space = "global",
    by_part: bool = False, place: str = "",
) -> UOp:  # fmt: skip
    if value.op is Ops.STAGE:
        if opts in (None, value.arg.opts):
            return value
        value = value.src[0] if value.arg.removable else value  # once more, by these Opts
    arg = StageArg(reason, removable, place, space, opts, by_part)
    return intern(Ops.STAGE, value.dtype, (value,), arg)


def _space(reason: str, value: UOp) -> Space:
    """The space for a value that must exist before a store begins: a tile if the value fits."""
    return "local" if reason is _MOVES_ITSELF and fusion_cost.fits_tile(value) else "global"


def _measured(graph: UOp, tiles: bool, stored: Mapping[UOp, str]) -> Measures:
    """Measure a graph. `tiles`: products run in tiles and need their operands in memory. `stored`:
    values that are stored in any case, with reasons."""
    facts = Measures(graph, walk.nodes(graph), stored)
    if not tiles:
        return facts
    from uopc.passes.place_stages.gpu_operands import computed_operands

    operands = computed_operands(facts)
    return Measures(graph, facts.order, {**operands, **stored}) if operands else facts


def _decided(
    graph: UOp, tiles: bool, stored: Mapping[UOp, str], copied: dict[UOp, str],
    asked: Predicting | None,
) -> dict[str, Any]:  # fmt: skip
    """Make the decisions and their reasons again, for a graph whose decisions were not kept."""
    return _StagePlacement(graph, _measured(graph, tiles, stored), copied, True, asked).decided()


def _within(
    limit: Limit, graph: UOp, tiles: bool, reasons: dict[UOp, str], watched: bool,
    context: Context,
) -> _StagePlacement:  # fmt: skip
    """Decide, and store more values until no kernel takes too many arguments or has too much GPU
    code. The added values also go into `reasons`."""
    asked = None if context.cost is None else _predicting(context, {})
    while True:
        facts = _measured(graph, tiles, reasons)
        placement = _StagePlacement(graph, facts, {}, watched, asked)
        if changed := _changed(placement, context):
            asked = _predicting(context, changed)
            placement = _StagePlacement(graph, facts, {}, watched, asked)
        if copied := placement.self_reads():
            # A copied value reads in a kernel of its own, so one more walk is enough.
            placement = _StagePlacement(graph, facts, copied, watched, asked)
        more = placement.beyond(limit) or (placement.too_long() if tiles else {})
        if not more:
            return placement
        reasons |= more


# Only programs whose cycles are predicted import the cost.
def _predicting(context: Context, chosen: Mapping[UOp, bool]) -> Predicting:
    """The machine of a program, and the values in doubt that are decided."""
    from uopc.cost.machine import machine_of
    from uopc.passes.place_stages.doubts import Predicting

    return Predicting(machine_of(context.target), chosen)


def _changed(placement: _StagePlacement, context: Context) -> dict[UOp, bool]:
    """The values in doubt that are decided otherwise, by the cycles of their kernels."""
    doubts, predicted = placement.doubts, context.cost
    if doubts is None or predicted is None or not doubts.found:
        return {}
    from uopc.passes.place_stages import by_cycles

    own = dataclasses.replace(context, notes={})

    def cost(program: UOp, chosen: Mapping[UOp, bool]) -> Cost:
        asked = _predicting(context, chosen)
        placed = _StagePlacement(program, _measured(program, False, {}), {}, False, asked)
        return predicted(placed.placed(own, {}), "place-stages")

    found = by_cycles.decided(doubts.found, placement.order, placement.reasons, cost)
    context.compared.update({u: decided.comparison for u, decided in found.items()})
    return {u: d.stored for u, d in found.items() if d.stored != doubts.found[u].stored}


def place_stages(graph: UOp, context: Context) -> UOp:
    """Put a STAGE around each value to store; `context.notes` get the reasons, for the dump."""
    graph = without_needless_copies(graph)
    tiles, watched = context.target.gpu is not None, trace.current_listener() is not None
    graph = code_limits.in_segments(graph) if tiles else graph
    reasons: dict[UOp, str] = {}
    limit = Limit.of(context)
    for _ in range(MOST_ROUNDS):
        placement = _within(limit, graph, tiles, reasons, watched, context)
        launches = placement.launches()
        copies, apart = opened(launches)
        if not copies and not apart:
            break
        changed = OldValues(graph, launches, copies, apart)
        graph = changed.rewritten()
        reasons |= dict.fromkeys(changed.made, _CIRCLE)
    placed = placement.placed(context, reasons)
    if not context.optimize:
        return placed
    from uopc.passes.place_stages.rounded_quotients import with_products

    return with_products(placed, context.target)
