"""Code of AArch64, laid out here and run by an emulator: data, functions, imports, far symbols."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.backends.cpu.test_elf_loader import POINTERS
from uopc.backends import elf, relocations
from uopc.backends.cpu.elf_loader import ElfImage
from uopc.backends.llvm import jit
from uopc.errors import Unsupported

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
TRIPLE = "aarch64-unknown-linux-gnu"
BASE, FAR = 0x7000_0000_0000, 0x1000_0000  # of the image, and of what it imports, 100 TB below

# Tables read whole and in parts of 1 to 16 bytes, a pointer to data and to a function, a function
# and a variable of another object.
TEXT = POINTERS + """
  %far = load i64, ptr @outside
  %got = call i64 @imported(i64 %far)
  %third = getelementptr i8, ptr @bytes, i64 2
  %b = load i8, ptr %third
  %h = load i16, ptr @bytes
  %n = load i32, ptr @bytes
  %q = load <2 x i64>, ptr @table, align 16
  %q1 = extractelement <2 x i64> %q, i64 1
  %b64 = zext i8 %b to i64
  %h64 = zext i16 %h to i64
  %n64 = zext i32 %n to i64
  %r1 = add i64 %r0, %got
  %r2 = add i64 %r1, %b64
  %r3 = add i64 %r2, %h64
  %r4 = add i64 %r3, %n64
  %r5 = add i64 %r4, %q1
  ret i64 %r5
}
@bytes = constant [8 x i8] c"\\01\\02\\03\\04\\05\\06\\07\\08"
@outside = external global i64
declare i64 @imported(i64)
"""
RUNS = r"""
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
static int64_t imported(int64_t x) { return 1000 * x; }
int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *image = mmap((void *)BASE, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    char *far = mmap((void *)FAR, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    if (image != (char *)BASE || far != (char *)FAR) return 2;
    *(uint64_t *)far = 7;
    uint32_t jump[2] = {0x58000050, 0xd61f0200}; /* ldr x16, the word after; br x16 */
    __builtin_memcpy(far + 8, jump, 8);
    *(uint64_t *)(far + 16) = (uint64_t)imported;
    FILE *file = fopen("image", "rb");
    if (file == NULL || fread(image, 1, SIZE, file) != SIZE) return 3;
    __builtin___clear_cache(image, image + SIZE);
    __builtin___clear_cache(far, far + 4096);
    int64_t (*pick)(int64_t) = (int64_t (*)(int64_t))(image + AT);
    for (int i = 0; i < 4; i++) printf("%lld\n", (long long)pick(i));
    return 0;
}
"""


def arm_object(text: str) -> bytes:
    machine = jit.target_machine("generic", "+neon", TRIPLE, reloc="pic", codemodel="small")
    with jit.parsed(text) as module:
        return bytes(machine.emit_object(module))


def test_an_image_of_aarch64_runs(tmp_path: Path) -> None:
    if platform.machine() != "x86_64" or not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        pytest.skip(f"{COMPILER} or {EMULATOR} is not installed")
    laid_out = ElfImage(arm_object(TEXT), {"outside": FAR, "imported": FAR + 8})
    image = laid_out.relocated(BASE)
    at = {s.name: offset for s, offset in laid_out.defined()}
    (tmp_path / "image").write_bytes(image)
    (tmp_path / "run.c").write_text(RUNS, "ascii")
    facts = {"BASE": BASE, "FAR": FAR, "SIZE": len(image), "AT": at["pick"]}
    given = [f"-D{name}={value}UL" for name, value in facts.items()]
    command = [COMPILER, "-std=gnu11", "-static", "-O1", *given, "run.c", "-o", "run"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = subprocess.run([EMULATOR, "./run"], cwd=tmp_path, check=True, capture_output=True)
    fixed = 7000 + 3 + 0x0201 + 0x04030201 + 1
    want = [2 * v + 5 + i + fixed for i, v in enumerate([3, 1, 4, 1])]
    assert [int(line) for line in made.stdout.split()] == want


@pytest.mark.parametrize("machine, kind, at, target", [
    (elf.AARCH64, 283, 0, 1 << 28), (elf.AARCH64, 275, 0, 1 << 34), (elf.X86_64, 4, 0, 1 << 31),
    (elf.RISCV, 18, 0, 1 << 32), (elf.AARCH64, 286, 0, 12), (elf.AARCH64, 9999, 0, 0),
])  # fmt: skip
def test_what_no_instruction_reaches_is_refused(
    machine: int, kind: int, at: int, target: int
) -> None:
    with pytest.raises(Unsupported, match=r"link the object file|an access of 8 bytes"):
        relocations.ARCHITECTURES[machine].kind(kind).patch(bytearray(8), at, target)


def test_calls_of_functions_that_code_may_not_call_are_refused() -> None:
    text = "declare float @expf(float)\ndefine float @f(float %x) {\n"
    text += " %y = call float @expf(float %x)\n ret float %y\n}"
    with pytest.raises(Unsupported, match="expf"):
        ElfImage(arm_object(text), {})
