"""Compiled: counts of coded rows, and the moments and sweeps of a log-linear model on particles.

A table is up to three columns; column -1 stands for none. Cells of all tables lie in one array, each table
from its offset on, its last column running fastest.
"""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel

_MOST_LOGIT = 600.0  # beyond, exp would overflow


@kernel("u2[:,::1], i8[:,::1], i8[::1], i8[::1], i8[::1]")
def tally(block, tables, sizes, offsets, out):
    """Add the weights of the rows of a block to the cells of each table.

    ``block``: one line a column, and a last one of weights.
    """
    weights = block[block.shape[0] - 1]
    for t in range(tables.shape[0]):
        a, b, c = tables[t, 0], tables[t, 1], tables[t, 2]
        begin = offsets[t]
        first = block[a]
        if b < 0:
            for i in range(block.shape[1]):
                out[begin + np.int64(first[i])] += weights[i]
        elif c < 0:
            second, wide = block[b], sizes[b]
            for i in range(block.shape[1]):
                out[begin + np.int64(first[i]) * wide + np.int64(second[i])] += weights[i]
        else:
            second, third, wide, deep = block[b], block[c], sizes[b], sizes[c]
            for i in range(block.shape[1]):
                cell = (np.int64(first[i]) * wide + np.int64(second[i])) * deep + np.int64(third[i])
                out[begin + cell] += weights[i]


@kernel("u2[:,::1], i8[:,::1], i8[::1], i8[::1], i4[:,::1]")
def places(codes, tables, sizes, offsets, out):
    """The cell of each row in each table: ``out`` has shape (n_rows, n_tables)."""
    for i in range(codes.shape[0]):
        for t in range(tables.shape[0]):
            cell = np.int64(codes[i, tables[t, 0]])
            for k in range(1, 3):
                column = tables[t, k]
                if column >= 0:
                    cell = cell * sizes[column] + np.int64(codes[i, column])
            out[i, t] = offsets[t] + cell


@kernel("i4[:,::1], f8[::1], f8[::1]")
def logits(cells, weights, out):
    """The sum of the weights of each row's cells; the largest of all."""
    most = -np.inf
    for i in range(cells.shape[0]):
        total = 0.0
        for t in range(cells.shape[1]):
            total += weights[cells[i, t]]
        out[i] = total
        most = max(most, total)
    return most


@kernel("i4[:,::1], f8[::1], f8[::1]")
def moments(cells, weights, out):
    """Sum of exp of the rows' logits; ``out`` gets the same sum for the rows of each cell.

    Infinity where a number would overflow; then ``out`` is of no use.
    """
    out[:] = 0.0
    whole = 0.0
    for i in range(cells.shape[0]):
        total = 0.0
        for t in range(cells.shape[1]):
            total += weights[cells[i, t]]
        if not total < _MOST_LOGIT:
            return np.inf
        share = math.exp(total)
        whole += share
        for t in range(cells.shape[1]):
            out[cells[i, t]] += share
    return whole


@kernel("i4[:,::1], f8[::1], f8[::1]")
def spread(cells, values, out):
    """Put the sum of the values of the rows of each cell into ``out``."""
    out[:] = 0.0
    for i in range(cells.shape[0]):
        for t in range(cells.shape[1]):
            out[cells[i, t]] += values[i]


@kernel("u2[:,::1], f4[:,::1], i8[::1], i8[::1], i8[::1], i8[:,::1], f8[::1]")
def sweep(codes, uniforms, columns, sizes, starts, parts, factors):
    """Draw each of ``columns`` anew, in turn, given all other columns of its row.

    ``parts``: one line for each table of a column, those of column k from ``starts[k]`` to ``starts[k + 1]``:
    where its factors begin, and two other columns with their strides (-1: none). Its own column runs fastest.
    The chance of a code is the product of its ``factors``, which are at most 1.
    """
    chances = np.empty(sizes.max())
    for k in range(columns.size):
        j, size = columns[k], sizes[columns[k]]
        for i in range(codes.shape[0]):
            chances[:size] = 1.0
            for p in range(starts[k], starts[k + 1]):
                begin = parts[p, 0]
                if parts[p, 1] >= 0:
                    begin += np.int64(codes[i, parts[p, 1]]) * parts[p, 2]
                if parts[p, 3] >= 0:
                    begin += np.int64(codes[i, parts[p, 3]]) * parts[p, 4]
                for v in range(size):
                    chances[v] *= factors[begin + v]
            whole = 0.0
            for v in range(size):
                whole += chances[v]
                chances[v] = whole
            if not whole > 0.0:  # all of them underflow: the code stays
                continue
            at = uniforms[k, i] * whole
            v = 0
            while v < size - 1 and chances[v] <= at:
                v += 1
            codes[i, j] = v
