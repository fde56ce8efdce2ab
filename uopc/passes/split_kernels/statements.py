"""Launches for few elements that depend on each other, or share their work, become one.

    a[0] = f(x[0])                                  a[0] = t, t = f(x[0])
    b[0] = g(a[0])      three launches  →  one:     b[0] = g(t)
    c[0] = h(a[0])                                  c[0] = h(t)

A launch of few elements takes about as long as it takes to begin. Here a value that another
launch stored is that value, so that work that several repeat is done once; and an element that
nobody else reads is not stored. The states of a rollout are such elements, whoever reads them.

A launch moves up to an earlier one: none between them may write what it reads, or use what it
writes. It stays apart where it costs more than the launch that it saves, as the steps of a rollout
in one kernel do that is called for each.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.nest.arithmetic import expansion
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.contract import Context
from uopc.passes.split_kernels.elements import Place, StoredElement, element, elements_of
from uopc.passes.split_kernels.kernel_calls import KernelCall, StorageUse

# The cost of a launch, in operations of one element: 6 ns on a CPU, 2 µs on a GPU.
LAUNCH, LAUNCH_OF_GPU = 8.0, 512.0
# A launch is joined where this saves at least this share of the time of what it adds.
LEAST_SAVED = 1 / 4
# More operations than this, functions expanded, take longer to compile than launches are worth.
MOST_CODE = 8192


class _Statements:
    """Launches merged into one: the written elements, and the remaining reads."""

    def __init__(self, launch: KernelCall) -> None:
        self.first: KernelCall | None = launch  # None once there are several
        self.effect = launch.effect
        self.written: dict[Place, UOp] = {}
        self.reads: dict[UOp, StorageUse] = {}
        self.places_read: set[Place] = set()
        self.roots: set[UOp] = set()  # of all storage
        self.roots_written: set[UOp] = set()
        self.read_anywhere: set[UOp] = set()  # at places that are not known
        self.nodes: set[UOp] = set()
        self.variables: set[UOp] = set()
        self.code = 0

    def add(self, found: StoredElement) -> None:
        """Take elements, as `with_values` made them."""
        self.written |= found.written
        self.reads |= found.reads
        for use in found.reads.values():
            self.places_read.add((use.root, use.flat))
            if use.flat.op is not Ops.CONST:
                self.read_anywhere.add(use.root)
        self.roots_written |= {root for root, _ in found.written}
        self.roots |= self.roots_written | {use.root for use in found.reads.values()}
        new = _unknown_nodes(found.written.values(), self.nodes)
        self.nodes |= new
        self.variables |= {u for u in new if u.op is Ops.VARIABLE}
        self.code += _code(new)

    def with_values(self, found: StoredElement) -> StoredElement | None:
        """Put values of these launches in place of reads of their elements. None if that is not
        enough: of two accesses to one element, one must come first."""
        for root, flat in found.written:
            place = root, flat
            if root in self.read_anywhere or place in self.places_read or place in self.written:
                return None
        values: dict[UOp, UOp] = {}
        for read, use in found.reads.items():
            if use.root in self.roots_written:
                value = self.written.get((use.root, use.flat))
                if use.flat.op is not Ops.CONST:
                    return None
                if value is not None and use.guard.op is not Ops.CONST:
                    return None
                if value is not None:
                    values[read] = value
        moved = [u for u in found.reads.values() if u.gathered]
        if values and any([values.keys() & walk.toposort(u.flat).keys() for u in moved]):
            return None  # an address that another launch stores
        left = {r: use for r, use in found.reads.items() if r not in values}
        written = {p: rebuild.rebuild_more(v, values) for p, v in found.written.items()}
        return StoredElement(written, left)

    def launch(self, kept: set[UOp]) -> KernelCall | None:
        """The launch that stores what is to be kept, by storage; None if there is nothing."""
        if self.first is not None:
            return self.first
        stores, accesses = [], {}
        for (root, flat), value in self.written.items():
            if root in kept:
                target = element(root, (flat,))
                accesses[target] = StorageUse(root, flat, index_maps.true(), False)
                stores.append(intern(Ops.STORE, dtypes.void, (target, value)))
                set_origin(stores[-1], self.effect.origin)
        if not stores:
            return None
        effect = stores[0]
        if len(stores) > 1:
            effect = intern(Ops.END, dtypes.void, (intern(Ops.GROUP, dtypes.void, tuple(stores)),))
        set_origin(effect, self.effect.origin)
        nodes = list(walk.toposort(effect))
        accesses |= {u: self.reads[u] for u in nodes if u in self.reads}
        return KernelCall([], [], [], effect, nodes, accesses)


def _unknown_nodes(values: Iterable[UOp], known: Container[UOp]) -> set[UOp]:
    """The nodes of values that are not known, nor below known ones."""
    stack = [v for v in values if v not in known]
    found = set(stack)
    while stack:
        new = [s for s in stack.pop().src if s not in found and s not in known]
        found.update(new)
        stack += new
    return found


def _code(nodes: Iterable[UOp]) -> int:
    """The number of operations that nodes become."""
    return sum([expansion(u) for u in nodes if u.op.is_alu])


def _cost(nodes: Iterable[UOp]) -> float:
    """The cost of the operations of single elements; addresses are free."""
    return sum([u.op.cost for u in nodes if u.dtype is not dtypes.index])


class _LaunchJoiner:
    """The launches so far, and the last one that used each storage."""

    def __init__(self, context: Context) -> None:
        self.saved = LAUNCH if context.target.gpu is None else LAUNCH_OF_GPU
        self.limit = Limit.of(context)
        self.launches: list[KernelCall | _Statements] = []
        self.written: dict[UOp, int] = {}  # storage -> the last launch that writes it
        self.touched: dict[UOp, int] = {}
        self.reader: dict[UOp, int] = {}  # storage -> the last launch of few elements that reads it

    def add(self, launch: KernelCall) -> None:
        """Add a launch: joined to an earlier one if possible."""
        found = elements_of(launch)
        if found is None:
            reads = {s.root for s in launch.reads}
            writes = {s.root for s in launch.writes}
            self.launches.append(launch)
            self._note(len(self.launches) - 1, reads, writes)
            return
        reads = {use.root for use in found.reads.values()}
        writes = {root for root, _ in found.written}
        at = self._joined(found, reads, writes)
        if at is None:
            at = len(self.launches)
            made = _Statements(launch)
            made.add(found)
            self.launches.append(made)
        self._note(at, reads, writes)
        self.reader |= {root: max(at, self.reader.get(root, -1)) for root in reads}

    def _note(self, at: int, reads: set[UOp], writes: set[UOp]) -> None:
        for root in reads | writes:
            self.touched[root] = max(at, self.touched.get(root, -1))
        for root in writes:
            self.written[root] = max(at, self.written.get(root, -1))

    def _joined(self, found: StoredElement, reads: set[UOp], writes: set[UOp]) -> int | None:
        """The place of the launch that these elements were added to, if there is one."""
        ready = max([self.written.get(root, -1) for root in reads], default=-1)
        ready = max([ready, *[self.touched.get(root, -1) for root in writes]])
        near = {last.get(root, -1) for last in (self.written, self.reader) for root in reads}
        for at in sorted(near):
            launch = self.launches[at] if at >= max(ready, 0) else None
            if isinstance(launch, _Statements):
                made = launch.with_values(found)
                if made is not None and self._pays(launch, found, made):
                    launch.first = None
                    launch.add(made)
                    return at
        return None

    def _pays(self, launch: _Statements, found: StoredElement, made: StoredElement) -> bool:
        """True if these elements are cheaper as statements of that launch, and few enough."""
        roots = {use.root for use in made.reads.values()} | {root for root, _ in made.written}
        buffers = len(launch.roots | roots)
        added = _unknown_nodes(made.written.values(), launch.nodes)
        variables = len(launch.variables) + sum([u.op is Ops.VARIABLE for u in added])
        if buffers > self.limit.buffers or buffers + variables > self.limit.arguments:
            return False
        if launch.code + _code(added) > MOST_CODE:
            return False
        alone, more = _cost(_unknown_nodes(found.written.values(), ())), _cost(added)
        return self.saved + alone - more >= LEAST_SAVED * more


def joined(launches: list[KernelCall], outputs: set[UOp], context: Context) -> list[KernelCall]:
    """Launches in order, those of few elements joined. `outputs`: storage that the caller gets."""
    joiner = _LaunchJoiner(context)
    for launch in launches:
        joiner.add(launch)
    kept = set(outputs)
    for made in joiner.launches:
        spans = made.reads.values() if isinstance(made, _Statements) else made.reads
        kept |= {use.root for use in spans}
    found = [m.launch(kept) if isinstance(m, _Statements) else m for m in joiner.launches]
    return [launch for launch in found if launch is not None]
