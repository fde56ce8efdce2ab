"""Counts of n-grams."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.onnx.node import Node, dims
from uopc.onnx.ops.labels import rows
from uopc.onnx.registry import op
from uopc.onnx.values import Array, texts


@op("TfIdfVectorizer")
def tf_idf_vectorizer(n: Node) -> UOp:
    """(C,) or (batch, C), numbers or known strings -> the number of times each n-gram of a pool
    occurs.

    Up to `max_skip_count` other elements may stand between neighbours of an n-gram, as many between
    all of them. Elements are compared by their number in the list of all elements of the pool.
    """
    pool = n.attr("pool_int64s", []) or n.attr("pool_strings", [])
    columns, starts = list(n.attr("ngram_indexes", [])), list(n.attr("ngram_counts", []))
    grams = _grams(pool, starts)
    if len(grams) != len(columns) or any([c < 0 for c in columns]):
        raise UserError(f"ngram_indexes must be {len(grams)} numbers of 0 or more, got {columns}")
    is_text = bool(n.attr("pool_strings", []))
    names = sorted(set(pool))
    keys = texts(names, (len(names),)) if is_text else np.asarray(names, np.int64)
    found = rows(n.raw(0) if is_text else n.x(0), keys)
    x = uopc.constant(found) if isinstance(found, np.ndarray) else found
    number = {name: i for i, name in enumerate(names)}
    width = max(columns, default=-1) + 1
    batch = x if len(x.shape) == 2 else x.unsqueeze(0)
    total = uopc.full((dims(batch)[0], width), 0.0, dtypes.float32)
    low, high = n.attr("min_gram_length", 1), n.attr("max_gram_length", 1)
    for size in range(low, min(high, len(starts)) + 1):
        own = [i for i, g in enumerate(grams) if len(g) == size]
        if own:
            wanted = np.asarray([[number[e] for e in grams[i]] for i in own], np.int64)
            counts = _counts(batch, wanted, n.attr("max_skip_count", 0) if size > 1 else 0)
            total = total.at[:, np.asarray([columns[i] for i in own], np.int64)].add(counts)
    made = _weighted(n, total, columns)
    return made if len(x.shape) == 2 else made[0]


def _grams(pool: list[object], starts: list[int]) -> list[list[object]]:
    """The n-grams in the order of the pool, shortest first."""
    found: list[list[object]] = []
    ends = [*starts[1:], len(pool)]
    for size, (begin, end) in enumerate(zip(starts, ends), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % size:
            raise UserError(f"ngram_counts {starts} do not fit a pool of {len(pool)}")
        found += [pool[i : i + size] for i in range(begin, end, size)]
    return found


def _counts(x: UOp, wanted: Array, skips: int) -> UOp:
    """(batch, C), (n-grams, size) -> (batch, n-grams): the occurrences at all distances."""
    grams, size = wanted.shape
    length = dims(x)[1]
    total = uopc.full((dims(x)[0], grams), 0.0, dtypes.float32)
    for step in range(1, skips + 2):
        places = length - (size - 1) * step
        if places <= 0:
            break
        parts = [x[:, k * step : k * step + places].unsqueeze(2) for k in range(size)]
        same = [p.eq(uopc.constant(w).cast(x.dtype)) for p, w in zip(parts, wanted.T)]
        total = total + functools.reduce(operator.and_, same).cast(dtypes.float32).sum(1)
    return total


def _weighted(n: Node, counts: UOp, columns: list[int]) -> UOp:
    mode, given = n.attr("mode", "TF"), n.attr("weights", None)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UserError(f"mode must be TF, IDF or TFIDF, got {mode!r}")
    counts = counts.minimum(1.0) if mode == "IDF" else counts
    if mode == "TF" or not given:
        return counts
    if len(given) != len(columns):
        raise UserError(f"expected a weight for each of {len(columns)} n-grams, got {len(given)}")
    weights = np.ones(math.prod(dims(counts)[1:]), np.float32)
    weights[columns] = given
    return counts * uopc.constant(weights)
