"""Every opcode the machine knows: a float form where the type is a float, else the integer one."""

from __future__ import annotations

from tests.ptx import access, conversions, floats, integers, warp
from tests.ptx.build import Action, Build, Builder, Unknown


def _by_type(name: str) -> Builder:
    def make(build: Build) -> Action:
        table = floats.TABLE if floats.is_float(build) else integers.TABLE
        if name not in table:
            raise Unknown(f"{build.instruction.text}: {name} is not known for this type")
        return table[name](build)

    return make


_NAMES = {*integers.TABLE, *floats.TABLE}
OPCODES: dict[str, Builder] = {
    **{name: _by_type(name) for name in _NAMES},
    **{name: floats.TABLE[name] for name in ("setp", "set", "testp", "copysign")},
    "selp": integers.TABLE["selp"],
    **conversions.TABLE,
    **access.TABLE,
    **warp.TABLE,
}
