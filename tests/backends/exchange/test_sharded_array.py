"""Arrays that are cut over a mesh: made by part, taken by programs as they are, and gathered."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import uopc
from uopc import NamedSharding, P, make_array_from_callback, make_mesh

MESH = make_mesh((2, 2), ("a", "b"))


def cut(array, spec, mesh=MESH):
    return make_array_from_callback(
        array.shape, NamedSharding(mesh, spec), lambda index: array[index]
    )


SPECS = P(), P("a"), P(None, "b"), P("b", "a"), P(("a", "b")), P("a", "b")


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("shape", [(8, 4), (7, 5), (1, 3), (0, 2)])
def test_parts_and_the_whole(spec, shape):
    a = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    x = cut(a, spec)
    assert x.shape == shape and x.dtype == a.dtype and x.mesh == MESH
    assert x.whole().tobytes() == np.asarray(x).tobytes() == a.tobytes()
    assert np.asarray(x, "f8").dtype == "f8"
    for part in x.parts.values():
        assert part.size == 0 or part[0, 0] in a
    total = uopc.param("x", shape).sum()
    f = uopc.compile(total, sharding=uopc.Sharding(MESH, in_shardings=spec))
    assert f(x) == f(a) == a.sum()


def test_each_part_is_read_once_and_by_itself():
    asked = []

    def read(index):
        asked.append(index)
        return np.ones([s.stop - s.start for s in index], "i4")

    x = make_array_from_callback((5, 4), NamedSharding(MESH, P("a")), read)
    rows = [(slice(0, 3), slice(0, 4))] * 2 + [(slice(3, 5), slice(0, 4))] * 2
    assert asked == rows and {k: v.shape for k, v in x.parts.items()} == {
        0: (3, 4), 1: (3, 4), 2: (2, 4), 3: (2, 4),
    }  # fmt: skip


def test_a_map_of_a_file_is_used_where_it_lies(tmp_path):
    np.arange(12.0).tofile(tmp_path / "numbers")
    file = np.memmap(tmp_path / "numbers", "f8", "r")
    x = cut(file, P("a"), make_mesh((2,), ("a",)))
    assert all(np.shares_memory(part, file) for part in x.parts.values())
    x = cut(file, P("a"))
    assert uopc.compile(
        uopc.param("x", (12,), "f8").sum(), sharding=uopc.Sharding(MESH, in_shardings=P("a"))
    )(x) == 66


def test_an_array_that_is_cut_is_written_in_place():
    x = uopc.param("x", (6, 2))
    q = x.pad(((1, 1), (0, 0)))
    f = uopc.compile(x.assign(q[:-2] + q[2:]), sharding=uopc.Sharding(MESH, in_shardings=P("a")))
    a = np.arange(12, dtype="f4").reshape(6, 2)
    own = cut(a.copy(), P("a"))
    assert f(own) is own
    padded = np.pad(a, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(own.whole(), padded[:-2] + padded[2:])


def test_other_libraries_see_the_part():
    a = np.arange(6.0)
    x = cut(a, P("a"), make_mesh((1,), ("a",)))
    np.testing.assert_array_equal(np.from_dlpack(x), a)
    assert np.shares_memory(np.from_dlpack(x), x.part)
    with pytest.raises(uopc.UserError, match="4 devices, not 1: use `parts`"):
        np.from_dlpack(cut(a, P("a")))


def test_jitted_functions_take_them():
    x = cut(np.arange(8.0), P("a"))
    f = uopc.shard_map(lambda x: uopc.psum(x.sum(), "a"), MESH, P("a"), P())
    assert f(x) == 28


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_pickles_and_copies_have_the_parts(spec):
    a = np.arange(35.0).reshape(7, 5)
    x = cut(a, spec)
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert y.spec == x.spec and y.mesh == x.mesh and y.parts.keys() == x.parts.keys()
        np.testing.assert_array_equal(y.whole(), a)


def test_what_is_refused():
    a = np.arange(8.0)
    x = cut(a, P("a"))
    p = uopc.param("x", (8,), "f8")
    on_mesh = uopc.compile(p * 2, sharding=uopc.Sharding(MESH, in_shardings=P("b")))
    other = make_mesh((4,), ("a",))
    sharding = NamedSharding(MESH, P("a"))
    two = uopc.param("y", (8,), "f8")
    both = uopc.compile(p.assign(p + two), sharding=uopc.Sharding(MESH, in_shardings=P("a")))
    named = uopc.compile(
        p * 2, sharding=uopc.Sharding(make_mesh((2,), ("a",), devices=("cpu:0", "cpu:1")))
    )
    two_devices, fixed = make_mesh((2,), ("a",)), a.copy()
    in_two = uopc.compile(p.assign(p + 1), sharding=uopc.Sharding(two_devices, in_shardings=P("a")))
    fixed.flags.writeable = False
    for call, words in (
        (lambda: in_two(cut(fixed, P("a"), two_devices)), "the array is read-only"),
        (lambda: both(cut(a, P("a")), cut(a[:4], P("a"))), r"expected float64\[8\]"),
        (lambda: uopc.compile(p * 2)(x), "cut over a mesh: compile with sharding="),
        (lambda: uopc.compile(p * 2)(a, out=x), "cut over a mesh"),
        (lambda: named(x), "cut over a mesh: compile with sharding=, for a mesh"),
        (lambda: on_mesh(x), r"cut as P\('a'\) over .*, but the program takes P\('b'\)"),
        (lambda: on_mesh(cut(a, P("a"), other)), "over {'a': 4}, but the program takes"),
        (lambda: on_mesh(cut(a.astype("f4"), P("b"))), "expected float64"),
        (lambda: on_mesh(cut(a[:4], P("b"))), r"expected float64\[8\], got float64\[4\]"),
        (lambda: both(x, x), "'y' overlaps argument 'x' in memory, and argument 'x' is written"),
        (lambda: both(cut(a, P("a")), cut(a, P("a"))), "another argument shares it"),
        (lambda: make_array_from_callback((8,), P("a"), None), "expected a uopc.NamedSharding"),
        (lambda: NamedSharding(MESH, "a"), "expected a uopc.Mesh and a uopc.P"),
        (lambda: make_array_from_callback((-8,), sharding, lambda i: a), "integers of 0 or more"),
        (lambda: make_array_from_callback(8, sharding, lambda i: a), "expected a shape and a func"),
        (lambda: make_array_from_callback((8,), sharding, a), "expected a shape and a function"),
        (lambda: make_array_from_callback((8,), sharding, lambda i: a), r"got \(8,\)"),
        (lambda: cut(a, P("c")), "unknown mesh axis 'c'"),
        (lambda: cut(a, P(None, "a")), "2 entries for 1 dimensions"),
        (
            lambda: make_array_from_callback(
                (8,), sharding, lambda i: a[i].astype("f4" if i[0].start else "f8")
            ),
            "all parts must have one dtype",
        ),
    ):
        with pytest.raises(uopc.UserError, match=words):
            call()
    with pytest.raises(ValueError, match="gathering a ShardedArray"):
        np.asarray(x, copy=False)
