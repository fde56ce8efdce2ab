"""Hardware counters: on a stand-in for the system call, and a plain line where there are none."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import numpy as np
import pytest

import uopc
from uopc.backends.cpu import hardware_counters
from uopc.backends.cpu.hardware_counters import EVENTS, Unavailable
from uopc.program import profile

x = uopc.param("x", (64,))
A = np.ones(64, "f4")


class System:
    """Counters that count 1000 events, times their number, whenever they are enabled."""

    def __init__(self, monkeypatch, tmp_path, refuse=None):
        self.folder, self.refuse = tmp_path, refuse or {}
        self.files, self.opened, self.on = {}, [], 0
        monkeypatch.setattr(hardware_counters.sys, "platform", "linux")
        monkeypatch.setattr(hardware_counters.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(hardware_counters, "_threads", lambda: [7, 8])
        monkeypatch.setattr(hardware_counters, "_open", self.open)
        monkeypatch.setattr(hardware_counters, "_read_counter", lambda f: float(self.files[f][1]))
        monkeypatch.setitem(sys.modules, "fcntl", self)

    def open(self, event, thread):
        if (code := self.refuse.get(event.name) or self.refuse.get(thread)) is not None:
            raise OSError(code, os.strerror(code))
        file = os.open(self.folder / "counter", os.O_RDWR | os.O_CREAT)
        self.files[file] = (event.config + 1, 0)
        self.opened.append((event.name, thread))
        return file

    def ioctl(self, file, command, _):
        step, value = self.files[file]
        if command == hardware_counters._ENABLE:
            self.files[file] = step, value + step * 1000


def test_counts_of_all_threads_add_up_and_files_are_closed(monkeypatch, tmp_path):
    system = System(monkeypatch, tmp_path)
    ran = []
    with hardware_counters.opened() as counters:
        found = counters.of(lambda: ran.append(1))
    assert ran == [1] and found == {e.name: 2000.0 * (e.config + 1) for e in EVENTS}
    assert system.opened == [(e.name, t) for e in EVENTS for t in (7, 8)]
    for file in system.files:
        with pytest.raises(OSError):
            os.fstat(file)


def test_a_counter_that_ran_for_a_part_of_the_time_is_scaled(monkeypatch, tmp_path):
    path = tmp_path / "counter"
    for packed, wanted in (((100, 8, 2), 400), ((100, 8, 8), 100), ((0, 8, 0), 0)):
        path.write_bytes(hardware_counters._COUNT.pack(*packed))
        file = os.open(path, os.O_RDONLY)
        assert hardware_counters._read_counter(file) == wanted
        os.close(file)


def test_events_that_the_machine_lacks_and_threads_that_ended_are_left_out(monkeypatch, tmp_path):
    System(monkeypatch, tmp_path, {"cache_misses": errno.ENOENT, 8: errno.ESRCH})
    with hardware_counters.opened() as counters:
        assert set(counters._files) == {"cycles", "instructions", "branch_misses"}
        assert [len(files) for files in counters._files.values()] == [1, 1, 1]


REASONS = [
    (errno.EACCES, "forbids"), (errno.EPERM, "forbids"), (errno.ENOSYS, "no perf_event_open"),
    (errno.ENOENT, "virtual machines"), (errno.EMFILE, os.strerror(errno.EMFILE)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "said"), REASONS)
def test_a_refusal_says_why(monkeypatch, tmp_path, code, said):
    System(monkeypatch, tmp_path, {e.name: code for e in EVENTS})
    with pytest.raises(Unavailable, match=said), hardware_counters.opened():
        pass


def test_other_systems_and_processors_say_so(monkeypatch):
    monkeypatch.setattr(hardware_counters.platform, "machine", lambda: "z80")
    monkeypatch.setattr(hardware_counters.sys, "platform", "linux")
    with pytest.raises(Unavailable, match="z80"), hardware_counters.opened():
        pass
    monkeypatch.setattr(hardware_counters.sys, "platform", "win32")
    with pytest.raises(Unavailable, match="only Linux"), hardware_counters.opened():
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a system call of Linux")
def test_the_system_call_counts_or_refuses():
    """On this machine, with the real call: events of some work, or a reason in one line."""
    assert hardware_counters._ATTRIBUTES.size == 64  # the first published size of the structure
    try:
        with hardware_counters.opened() as counters:
            found = counters.of(lambda: ctypes.string_at(b"x" * 1000) * 100)
    except Unavailable as error:
        assert "\n" not in str(error)
    else:
        assert all(n >= 0 for n in found.values())


def test_a_profile_has_the_events_of_each_launch(monkeypatch):
    program = uopc.compile(((x * 2).sum() + x).exp())
    per_run = [{"cycles": 20.0, "instructions": 50.0} for _ in program.launches]
    monkeypatch.setattr(type(program._runner), "count", lambda *_: per_run)
    found = profile.profile(program, (A,), samples=1)
    assert found.events == tuple(per_run)
    assert sum(found.events_of(r)["cycles"] for r in found.rows()) == 20 * len(program.launches)


def test_a_run_subtracts_an_empty_one_and_counts_one_of_a_row(monkeypatch, tmp_path):
    System(monkeypatch, tmp_path)
    program = uopc.compile(x * 2)
    (found,) = program._runner.count((A,), {})
    assert set(found) == {e.name for e in EVENTS} and all(n >= 0 for n in found.values())
