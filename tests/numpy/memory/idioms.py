"""In-place idioms of NumPy: functions of one vector of six numbers. NumPy itself is the oracle."""

import numpy as np
from numpy import zeros

X = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.5])


def double(a):
    a *= 2


def slice_plus(x):
    x[1:] += 1
    return x


def view_plus(x):
    v = x[1:]
    v += 1
    return x


def halves(x):
    a, b = x[:3], x[3:]
    a *= 2
    b -= 1
    return x


def alias(x):
    y = x
    y += 1
    return x


def copied(x):
    y = x.copy()
    y += 1
    return x, y


def reshaped(x):
    y = x.reshape(2, 3)
    y[1] = 7
    return x


def reshaped_copy(x):
    y = x[::-1].reshape(2, 3)[:, ::2].reshape(-1)
    y[:] = 7
    return x, y


def raveled(x):
    m = x.reshape(2, 3)
    m.ravel()[1] = 9
    m.T.ravel()[0] = 5
    m.flatten()[2] = 4
    return m


def transposed(x):
    m = x.reshape(2, 3)
    t = m.T
    t[0] += 10
    m.swapaxes(0, 1)[2, 1] = 0
    np.moveaxis(m, 0, 1)[1, 1] *= 3
    return m


def rows(x):
    for row in x.reshape(2, 3):
        row += row.sum()
    return x


def helper(x):
    double(x[::2])
    double(x)
    return x


def history(x):
    kept = []
    for _ in range(3):
        kept.append(x)
        x += 1
    return np.stack(kept)


def history_of_copies(x):
    kept = []
    for _ in range(3):
        kept.append(x.copy())
        x += 1
    return np.stack(kept)


def sorted_in_place(x):
    x.sort()
    y = np.sort(x)[::-1]
    y[0] = -1
    return x, y


def diagonals(x):
    m = np.outer(x, x)
    m[np.diag_indices(6)] = 0
    np.fill_diagonal(m[1:, 1:], 3)
    return m


def diagonal_of_a_row(x):
    m = np.outer(x, x)
    m.reshape(-1)[::7] += 100
    return m


def index_array_is_a_copy(x):
    y = x[[0, 2, 4]]
    y += 1
    x[[0, 0, 5]] += 1
    return x, y


def masked(x):
    x[x > 2] = 0
    x[x == 0] += 5
    return x


def masked_copy(x):
    big = x[x > 2] * 2
    return x, big.sum()


def masked_by_another(x):
    y = x * 2
    m = x > 2
    y[m] = x[m] - y[m]
    return y


def at(x):
    np.add.at(x, [0, 0, 5], 1)
    np.maximum.at(x, np.array([1]), 99.0)
    np.subtract.at(x, np.array([2, 2]), 1.0)
    return x


def out(x):
    y = np.empty_like(x)
    np.multiply(x, 2, out=y)
    np.add(y, 1, out=x[:])
    np.negative(y, out=y, where=x > 5)
    return x, y


def copyto(x):
    np.copyto(x[1:], x[:-1] * 2)
    np.putmask(x, x > 9, -x)
    np.put(x, [1, 3], [8, 9])
    np.place(x, x < 0, [1.0, 2.0])
    return x


def fill(x):
    x[1:3].fill(x[0])
    return x


def along_an_axis(x):
    m = np.outer(x, x)
    np.put_along_axis(m, np.argsort(m, axis=1)[:, :1], -1.0, axis=1)
    return m


def overlapping(x):
    x[1:] = x[:-1]
    x[:] = x[::-1]
    return x


def swapped(x):
    x[0], x[1] = x[1], x[0]
    x[[2, 3]] = x[[3, 2]]
    return x


def swapped_views(x):
    a, b = x[:3], x[3:]
    a[:], b[:] = b, a.copy()
    return x


def swapped_aliases(x):
    a, b = x[:3], x[3:]
    a[:], b[:] = b, a
    return x


def a_number_is_no_view(x):
    s = x[0]
    s += 100
    t = x[1, ...]
    t += 50
    return x, s


def containers(x):
    d = {"a": x, "b": [x[1:]]}
    d["b"][0] *= 3
    d["a"][0] = -1
    return d["a"]


def broadcast_write(x):
    m = np.outer(x, x)[:3]
    m[:] = x
    m[:, 0] = [1, 2, 3]
    m[1:, ::2] = x[:2, None]
    return m


def negative_steps(x):
    x[::-2] = [1, 2, 3]
    x[-2:] -= 1
    v = x[4:1:-1]
    v[0] = 50
    return x


def loop(x):
    r = np.zeros_like(x)
    r[0] = x[0]
    for i in range(1, len(x)):
        r[i] = 0.5 * r[i - 1] + x[i]
    return r


def an_old_value_later(x):
    old = x[2]
    part = x[1:4].copy()
    x[:] = 0
    return x + old, part


def split(x):
    a, b = np.split(x, 2)
    a[0] = 10
    b += 1
    return x


def squeezed(x):
    m = x[None, :, None]
    s = np.squeeze(m)
    s[2] = 6
    m[0, 3, 0] = 7
    np.expand_dims(x, 1)[4] = 8
    np.atleast_2d(x)[0, 5] = 9
    return x


def flipped(x):
    np.flip(x)[0] = 8
    np.rot90(x.reshape(2, 3))[0, 1] = 9
    return x


def a_broadcast_view_reads_anew(x):
    y = np.broadcast_to(x, (2, 6))
    x[0] = 5
    return y + 1


def traced_places(x):
    i = np.argmax(x)
    x[i] = -x[i]
    m = np.outer(x, x)
    row = m[np.argmin(x)]
    row += 1
    row[2:4] *= 2
    return m


def same_kind(x):
    k = np.argsort(x)
    k += 1
    k[1:] *= 2
    k[0] = x[1] * 1.5
    return k


def creators(x):
    r = np.zeros(3)
    r[0] = x[0]
    q = zeros((2, 2))
    v = q.T
    q[1] = r[:2]
    e = np.arange(4)
    e[1] = 7
    f = np.full(2, x[1])
    f[0] += 1
    return r, v + 0, e, f, np.array([x[0], x[1]]), np.asarray(x) is x


def cast_on_write(x):
    r = np.zeros(3, int)
    r[:] = x[:3] * 1.6
    b = np.zeros(2, bool)
    b[0] = x[0] > 1
    return r, b


_OWN = [f for f in list(globals().values()) if getattr(f, "__module__", "") == __name__]
IDIOMS = {f.__name__: f for f in _OWN if f is not double}
