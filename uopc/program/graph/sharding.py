"""The mesh of a compile: the layouts of arguments and results, as users give them and in one
form."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from uopc.backends.exchange.cost import Machine, bucket_bytes, pays_beside
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.core import dtypes
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.device import is_cpu
from uopc.ir.devices.mesh import Mesh, PartitionSpec, coordinate, make_mesh
from uopc.ir.records import dataclass
from uopc.program.graph.facts import GraphFacts

if TYPE_CHECKING:  # `import uopc.Sharding` loads no pass
    from uopc.passes.sharding import MeshLayout

BLOCKS = 8  # along each mesh axis, of a program whose sums do not depend on the mesh


@dataclass(frozen=True)
class Sharding:
    """The mesh that runs a program, and how arrays lie on it: `sharding=` of `compile`.

    mesh: a `uopc.Mesh`. All its devices run the program, each on its part of the arrays; devices
    that the mesh names run at the same time. Calls take and give whole arrays; on ranks, a result
    that stays cut is a `uopc.ShardedArray`. in_shardings: a `uopc.P` for all arguments, or a dict
    by name. out_shardings: a `uopc.P` for all results, or a list. explicit: raise an error if
    operands need an exchange because their layouts do not fit. deterministic: results are equal bit
    for bit on all meshes with the same axes, of a size that divides the number of blocks (True: 8)
    along each axis. overlap: start exchanges early and await them when their memory is needed, with
    launches in between: always (True), or where that pays on a `uopc.distributed.Machine`. See
    `docs/distributed.md`.

    Examples:
        >>> mesh, x = uopc.make_mesh((2,), ("data",)), uopc.param("x", (4,))
        >>> halves = uopc.Sharding(mesh, in_shardings=uopc.P("data"))
        >>> uopc.compile(x * 2, sharding=halves)(np.ones(4, "f4"))
        array([2., 2., 2., 2.], dtype=float32)
    """

    mesh: Mesh
    in_shardings: Any = None
    out_shardings: Any = None
    explicit: bool = False
    deterministic: bool | int = False
    overlap: bool | Machine = False


@dataclass(frozen=True)
class MeshRequest:
    """The mesh of a compile, and how its arguments (by name) and results are to be laid out."""

    mesh: Mesh
    in_specs: tuple[tuple[str, PartitionSpec], ...] = ()
    out_specs: tuple[PartitionSpec | None, ...] | None = None
    explicit: bool = False
    hosts: Mesh | None = None  # the mesh of the processes, where that of the program is of blocks
    overlap: bool | Machine = False  # where exchanges run beside launches

    def for_graph(
        self, facts: GraphFacts, params: Sequence[UOp], device: str, beam: int
    ) -> MeshRequest:
        """The shardings of this graph's params and results. UserError for a name that the graph
        does not have, and for a variable that is called as the coordinate of a mesh axis;
        Unsupported for a kernel, a search, and devices that are no CPUs where these must be."""
        if beam:
            raise Unsupported("compile: beam is not supported on a mesh of devices")
        if facts.level is not TENSOR:
            raise Unsupported("compile: a mesh needs a graph of values, not a kernel")
        if not is_cpu(device) and (self.mesh.devices or self.hosts):
            raise Unsupported(
                "compile: deterministic, or a mesh that names its devices, needs device cpu"
            )
        taken = {coordinate(a) for a in self.mesh.axis_names}
        for v in facts.variables:
            if v.arg.name in taken:
                raise UserError(
                    f"compile: the name of variable {v.arg.name!r} is taken by a mesh axis"
                )
        outputs = len([v for v in facts.graph.src if v.dtype is not dtypes.void])
        names = [str(p.arg.name) for p in params]
        given = dict(self.in_specs)
        if "" in given:
            given = dict.fromkeys(names, given[""])
        for name in given:
            if name not in names:
                shown = ", ".join(map(repr, names)) or "none"
                raise UserError(f"compile: in_shardings: unknown param {name!r}; choose {shown}")
        results = self.out_specs
        if results is not None and len(results) == 1:
            results = results * outputs
        if results is not None and len(results) != outputs:
            raise UserError(
                f"compile: out_shardings must have {outputs} specs, one per result, got"
                f" {len(results)}"
            )
        return replace(self, in_specs=tuple(sorted(given.items())), out_specs=results)

    def layout(self) -> MeshLayout:
        """The layouts that the user asks for, which the passes complete."""
        from uopc.passes.sharding import MeshLayout

        return MeshLayout(
            self.mesh, dict(self.in_specs), self.out_specs, self.explicit, hosts=self.hosts,
            bucket=bucket_bytes(self.overlap, self.mesh.axis_names),
            pays=partial(pays_beside, self.overlap),
        )  # fmt: skip


class Earlier(TypedDict, total=False):
    """The arguments of `compile` that are now parts of a `Sharding`."""

    mesh: Mesh | None
    in_shardings: Any
    out_shardings: Any
    explicit: bool
    deterministic: bool | int
    overlap: bool | Machine


def of_arguments(sharding: Sharding | None, given: Earlier) -> Sharding | None:
    """The sharding of a compile. In this version its parts may also be arguments of `compile`."""
    if not given:
        return sharding
    parts: dict[str, Any] = dict(given)
    asked = {n: v for n, v in parts.items() if v is not None and v is not False}
    if unknown := sorted(given.keys() - {f.name for f in fields(Sharding)}):
        raise TypeError(f"compile() got an unexpected keyword argument {unknown[0]!r}")
    if sharding is not None:
        raise UserError(f"compile: put {', '.join(given)} into sharding=uopc.Sharding(...)")
    checks.flag("compile", "explicit", given.get("explicit", False))
    if asked.get("mesh") is None:
        if asked:
            raise UserError(
                "compile: in_shardings, out_shardings, explicit, deterministic and overlap need a"
                " mesh: uopc.Sharding(mesh, ...)"
            )
        return None
    names = [f.name for f in fields(Sharding)[1:] if f.name in asked]
    written = ", ".join(["mesh", *[f"{n}=..." for n in names]])
    warnings.warn(
        f"compile: write sharding=uopc.Sharding({written}); the next version does not take this"
        " argument", DeprecationWarning, stacklevel=3,
    )  # fmt: skip
    return Sharding(**parts)


def mesh_request(sharding: Sharding | None) -> MeshRequest | None:
    """A sharding in one form; UserTypeError for a part of a wrong kind."""
    if sharding is None:
        return None
    if not isinstance(sharding, Sharding):
        raise UserTypeError(f"compile: sharding must be a uopc.Sharding, got {sharding!r}")
    mesh, deterministic, overlap = sharding.mesh, sharding.deterministic, sharding.overlap
    in_shardings, out_shardings = sharding.in_shardings, sharding.out_shardings
    explicit = checks.flag("compile", "explicit", sharding.explicit)
    if not isinstance(mesh, Mesh):
        raise UserTypeError(f"compile: mesh must be a uopc.Mesh, got {mesh!r}")
    _check_overlap(overlap, mesh, deterministic)
    mesh, hosts = _in_blocks(mesh, deterministic)
    given: dict[str, PartitionSpec] = {}
    if isinstance(in_shardings, Mapping):
        given = {_name_of(k): _spec("in_shardings", v) for k, v in in_shardings.items()}
    elif in_shardings is not None:
        given = {"": _spec("in_shardings", in_shardings)}
    results: tuple[PartitionSpec | None, ...] | None = None
    if isinstance(out_shardings, list):
        results = tuple([v if v is None else _spec("out_shardings", v) for v in out_shardings])
    elif out_shardings is not None:
        results = (_spec("out_shardings", out_shardings),)
    return MeshRequest(mesh, tuple(given.items()), results, explicit, hosts, overlap)


def _check_overlap(overlap: object, mesh: Mesh, deterministic: object) -> None:
    """UserTypeError for another type; Unsupported if exchanges are copies, or run by blocks."""
    if not isinstance(overlap, (bool, Machine)):
        raise UserTypeError(
            "compile: overlap must be True, False or a uopc.distributed.Machine, got"
            f" {overlap!r}"
        )
    if overlap and (mesh.devices or deterministic is not False):
        raise Unsupported(
            "compile: overlap is not supported with deterministic or on a mesh that names its"
            " devices: their exchanges are copies"
        )


def _in_blocks(mesh: Mesh, blocks: bool | int) -> tuple[Mesh, Mesh | None]:
    """The mesh of the program. If it counts blocks along each axis, also the given mesh, whose
    devices have equally many blocks each; else None."""
    if blocks is False:
        return mesh, None
    if mesh.devices:
        raise Unsupported(
            "compile: deterministic needs a mesh without devices="
        )
    count = BLOCKS if blocks is True else blocks
    if type(count) is not int or count < 1:
        raise UserTypeError(
            f"compile: deterministic must be True, False or a number of blocks, got {blocks!r}"
        )
    for name, n in mesh.shape.items():
        if count % n:
            raise UserError(
                f"compile: deterministic: the {n} devices along {name!r} must divide the {count}"
                f" blocks: pass deterministic={-(-count // n) * n}"
            )
    return make_mesh([count] * len(mesh.axis_names), mesh.axis_names), mesh


def _name_of(param: Any) -> str:
    if isinstance(param, UOp) and param.op is Ops.PARAM:
        return str(param.arg.name)
    if isinstance(param, str) and param:
        return param
    raise UserTypeError(f"compile: in_shardings: expected a param or its name, got {param!r}")


def _spec(who: str, given: Any) -> PartitionSpec:
    if not isinstance(given, PartitionSpec):
        raise UserTypeError(f"compile: {who}: expected a uopc.P, got {given!r}")
    return given
