"""Features of ARM processors, as Linux, macOS and Windows report them.

The words of Linux are those that /proc/cpuinfo has on these machines, from public reports of them;
the registers are those of Arm's manuals of the cores, macOS's names those of Apple's page.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from uopc.backends import arm_features, detect
from uopc.target import Target

PI_4 = "fp asimd evtstrm crc32 cpuid"
PI_5 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop"
    " asimddp"
)
GRAVITON_2 = f"{PI_5} ssbs"
GRAVITON_3 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma"
    " lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg"
    " dcpodp svei8mm svebf16 i8mm bf16 dgh rng"
)
A64FX = "fp asimd evtstrm sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm fcma dcpop sve"


@pytest.mark.parametrize("words, names", [
    (PI_4, []), (PI_5, ["dotprod", "fullfp16"]), (GRAVITON_2, ["dotprod", "fullfp16"]),
    (GRAVITON_3, ["dotprod", "i8mm", "bf16", "fullfp16", "fp16fml"]), (A64FX, ["fullfp16"]),
    ("", []),
])  # fmt: skip
def test_linux(words: str, names: list[str]) -> None:
    assert arm_features.of_linux(words) == names


def test_macos() -> None:
    m1 = {"FEAT_DotProd": 1, "FEAT_FP16": 1, "FEAT_FHM": 1, "FEAT_I8MM": 0, "FEAT_BF16": 0}
    asked = {f"hw.optional.arm.{name}": value for name, value in m1.items()}
    assert arm_features.of_macos(asked.get) == ["dotprod", "fullfp16", "fp16fml"]
    assert arm_features.of_macos(lambda name: None) == []


def test_windows() -> None:
    cortex_a72 = {"CP 4020": 0x2222, "CP 4030": 0x11120, "CP 4031": 0}
    n1 = {"CP 4020": 0x1100000011112222, "CP 4030": 0x0000100010211120, "CP 4031": 0x100001}
    assert arm_features.of_registers(cortex_a72.get) == []
    assert arm_features.of_registers(n1.get) == ["dotprod", "fullfp16"]
    without_floats = {"CP 4020": 0xFF0000}
    assert arm_features.of_registers(without_floats.get) == []


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which this machine describes itself as an ARM processor under Linux."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(detect, "_PROCESSORS", str(tmp_path / "cpuinfo"))
    return tmp_path


@pytest.mark.parametrize("words, dot4", [(PI_4, ""), (PI_5, "sdot"), (GRAVITON_3, "usdot")])
def test_dot_products_are_found(arm: Path, words: str, dot4: str) -> None:
    text = f"processor\t: 0\nFeatures\t: {words}\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n"
    (arm / "cpuinfo").write_text(text, "ascii")
    found = detect.with_arm_features("+crc,-sve", detect.first_processor())
    machine = Target("host", "cpu", 128, 32, "generic", found)
    assert machine.dot4 == dot4 and machine.is_arm and found.startswith("+crc,-sve,+neon")
    stamp = detect.processor_stamp()
    assert stamp is not None and words in stamp and "0xd0c" in stamp


def test_the_last_cache_is_the_greatest_level(tmp_path: Path) -> None:
    levels = [("1", "Data", "32K"), ("1", "Instruction", "48K"), ("2", "Unified", "1024K")]
    for i, row in enumerate(levels):
        (tmp_path / f"index{i}").mkdir()
        for name, text in zip(("level", "type", "size"), row):
            (tmp_path / f"index{i}" / name).write_text(text + "\n", "ascii")
    found = [detect.cache_bytes(level, 7, str(tmp_path)) for level in (1, 2, 3, None)]
    assert found == [32 << 10, 1 << 20, 7, 1 << 20]
    assert detect.cache_bytes(None, 7, str(tmp_path / "none")) == 7
