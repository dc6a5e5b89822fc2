"""Validity: keepers and tally check together that each masked answer is one, and learn nothing else of it.

An answer is a vector x of zeros and ones in blocks, of which each holds one mark (or at most one). Masks
are numbers modulo a prime p, so x is the sum of shares: the tally's is what a client sent, a keeper's is
its mask. For weights r that the client could not know when it sent, <r, x>^2 = <r^2, x> holds for every r
if at most one cell of a block is 1 and the others are 0, and else for few r. Of a vector, entries stand in
front of their bits, and the squares of all of them are opened under one r. The square needs one opening,
Z = <r, x> + a, with a mask a and its square from the client. A wrong square changes a constant of a
polynomial in r that is not constant, so it helps no liar.

A keeper or a tally that cheats could open Z + d, and learn from the outcome whether <r, x> is what it
guesses. So the client also sends y = k x, with a secret number k for each block and each repetition, and
the outcome adds k Z - c - <r, y> with c = k a: whoever shifts Z shifts the outcome by a multiple of k,
which nobody knows.

All of it is done twice: an invalid report passes with a chance below (3 / (p - 1))^2 = 2^-58.
docs/collect.md has the proof.
Source: Boneh et al. 2021, arXiv:2012.14884 (sketches, and a secret multiple against parties that cheat).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.encodings import PRIME, Grid, Histogram, Histograms, Sum, Tree, Vector, Visits
from ostraka.secure.masks import mask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ostraka.collect.encodings import Encoding
    from ostraka.collect.task import Task

TIMES = 2  # repetitions; each is wrong with a chance of 3 / (p - 1) at most
_SPARE = 64  # words of a stream beyond those that are needed: one in 2^31 is left out
_MOST_BLOCKS = 100_000  # of a vector: a report of 4.4 MB
_P = np.uint64(PRIME)


@dataclass(frozen=True)
class Form:
    """What a valid answer of an encoding is: its blocks, one behind the other.

    ``exact``: each block has exactly one mark, else at most one. ``fanout``: if above 0, the mark of a block
    is the parent of that of the next. ``binary``: the cells are the bits of one number, which is summed.
    ``entries``: if above 0, so many first cells are the entries of a vector whose norm is at most ``bound``.
    The bits of each entry follow, then those of what the square of its norm lacks.
    """

    sizes: tuple[int, ...]
    exact: bool = True
    fanout: int = 0
    binary: bool = False
    entries: int = 0
    bound: int = 0

    @classmethod
    def of_vector(cls, entries: int, bound: int) -> Form | None:
        """Return that of vectors; None where squares could add up to p, or a report would be too long."""
        form = cls((), exact=False, entries=entries, bound=bound)
        blocks = entries * (1 + form.bits) + form.rest_bits
        if blocks > _MOST_BLOCKS or entries * 4 ** (form.bits - 1) + 2**form.rest_bits > PRIME:
            return None
        return replace(form, sizes=(1,) * blocks)

    @property
    def bits(self) -> int:
        """Bits of an entry of a vector, plus half of their range."""
        return self.bound.bit_length() + 1

    @property
    def rest_bits(self) -> int:
        """Bits of what the square of a norm lacks of the largest."""
        return (self.bound**2).bit_length()

    @property
    def cells(self) -> int:
        """Cells of the answer."""
        return sum(self.sizes)

    @property
    def length(self) -> int:
        """Numbers that a client sends: the answer, its multiples, and what opens the squares."""
        return (1 + TIMES) * self.cells + 4 * TIMES * len(self.sizes)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first cell of each block."""
        return np.cumsum([0, *self.sizes[:-1]])

    def answer(self, vector: np.ndarray) -> np.ndarray:
        """Return the zeros and ones of an encoded value; in front of them, the entries of a vector."""
        if self.entries:
            entries = vector.astype(np.uint32).view(np.int32).astype(np.int64)
            heights = entries + (1 << (self.bits - 1))  # above the lowest that bits can say
            bits = heights[:, None] >> np.arange(self.bits) & 1
            slack = self.bound**2 - (entries * entries).sum()
            rest_bits = slack >> np.arange(self.rest_bits) & 1
            return np.concatenate([entries % PRIME, bits.ravel(), rest_bits]).astype(np.uint64)
        cells = vector.astype(np.uint64)
        return cells[0] >> np.arange(self.cells, dtype=np.uint64) & np.uint64(1) if self.binary else cells

    def summed(self, total: np.ndarray) -> np.ndarray:
        """Return the cells of the encoding that belong to a sum of answers modulo p."""
        if not self.binary:
            return total[: self.entries or None]
        return np.array([sum(int(part) << bit for bit, part in enumerate(total)) % PRIME], dtype=np.uint64)


def form_of(encoding: Encoding) -> Form | None:
    """Return what keepers can check of an encoding; None if that is nothing."""
    if isinstance(encoding, Histogram):
        return Form((encoding.cells,))
    if isinstance(encoding, Histograms):
        return Form(tuple(cells for _, _, cells in encoding.parts))
    if isinstance(encoding, Tree):
        return Form(encoding.sizes, fanout=encoding.fanout)
    if isinstance(encoding, Grid) and not isinstance(encoding, Visits) and encoding.at_most == 1:
        return Form((encoding.cells,), exact=False)  # a client may have no position
    if isinstance(encoding, Sum):
        return Form((1,) * encoding.bits, exact=False, binary=True)
    if isinstance(encoding, Vector):
        return Form.of_vector(encoding.cells, encoding.bound)
    return None


def residues(words: np.ndarray, size: int) -> np.ndarray:
    """Return the first ``size`` numbers below p of a stream of :func:`words_for` words; uniform, uint64."""
    numbers = words >> np.uint32(1)
    below = numbers != PRIME
    if not below[:size].all():
        numbers = numbers[below]
    return np.asarray(numbers[:size], dtype=np.uint64)


def words_for(size: int) -> int:
    """Return how many words of a stream give so many numbers below p, but for a chance below 2^-1000."""
    return size + _SPARE


def signed(total: np.ndarray) -> np.ndarray:
    """Return numbers modulo p as whole numbers next to 0, int64."""
    numbers = total.astype(np.int64)
    return np.where(numbers > PRIME // 2, numbers - PRIME, numbers)


def proved(form: Form, vector: np.ndarray, key: bytes) -> np.ndarray:
    """Return what a client shares: its answer, and what proves it by secrets from ``key``; uint64 below p."""
    marks, n = form.answer(vector), TIMES * len(form.sizes)
    stream = mask(hashlib.sha256(b"ostraka/proof/1" + key).digest(), size=words_for(2 * n))
    multiples, masks = residues(stream, 2 * n).reshape(2, TIMES, len(form.sizes))
    copies = np.repeat(multiples, form.sizes, axis=1) * marks
    opening = (multiples, masks, masks * masks % _P, multiples * masks % _P)
    return np.concatenate([marks, copies.ravel(), *(part.ravel() for part in opening)])


@dataclass(frozen=True, slots=True)
class Weights:
    """The random weights of one round, drawn after its reports were fixed."""

    form: Form
    digest: bytes

    def shares(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a party's share of the openings of one report, and its terms of the verdict.

        Openings have shape (TIMES, n_blocks), terms (TIMES, 1 + n_blocks): the verdict is the first term plus
        the sum of openings times the others.
        """
        form, m, k = self.form, self.form.cells, len(self.form.sizes)
        of_marks, of_square, of_copy, _ = _drawn(form, self.digest)
        marks, copies = share[:m], share[m : (1 + TIMES) * m].reshape(TIMES, m)
        multiple, masks, square, product = share[(1 + TIMES) * m :].reshape(4, TIMES, k)
        products = np.empty((4, TIMES, m), dtype=np.uint64)
        np.multiply(of_marks, marks, out=products[:3])
        np.multiply(of_marks[0], copies, out=products[3])
        # 2^31 is 1 modulo p: both halves of a product add up to less than 2^32, and no division is needed
        halves = (products & _P) + (products >> np.uint64(31))
        sums, square_sums, linear_sums, copy_sums = np.add.reduceat(halves, form.starts, axis=2) % _P
        constant = linear_sums.sum(axis=1)
        constant += (of_square * ((square + _P - square_sums) % _P) % _P).sum(axis=1)
        constant += (of_copy * (2 * _P - (product + copy_sums) % _P) % _P).sum(axis=1)
        slope = (of_copy * multiple + of_square * ((2 * (_P - masks)) % _P)) % _P
        return (sums + masks) % _P, np.concatenate([constant[:, None] % _P, slope], axis=1)

    def verdicts(self, terms: np.ndarray, openings: np.ndarray) -> np.ndarray:
        """Return a party's share of each verdict, from terms and openings of all reports: (n, TIMES)."""
        return np.asarray((terms[..., 0] + (terms[..., 1:] * openings % _P).sum(axis=-1)) % _P)

    def public(self, openings: np.ndarray) -> np.ndarray:
        """Return the part of each verdict that everybody knows: (n, TIMES)."""
        _, of_square, _, constant = _drawn(self.form, self.digest)
        squares = (of_square * (openings * openings % _P) % _P).sum(axis=-1)
        return np.asarray((squares + constant) % _P)


@dataclass(frozen=True, slots=True)
class Check:
    """One party's part in the check of all reports of a round."""

    digest: bytes  # of the request that fixed the reports
    weights: Weights
    openings: np.ndarray  # shares, (n, TIMES, n_blocks)
    terms: np.ndarray  # of the verdicts, (n, TIMES, 1 + n_blocks)
    total: np.ndarray  # of all shares of answers, (cells,)

    @classmethod
    def of(cls, task: Task, digest: bytes, shares: Iterable[np.ndarray], *, n: int) -> Check:
        """Compute it from one share of each of ``n`` reports, in order."""
        form = task.form
        if form is None:
            raise ValueError("reports of this task cannot be checked")
        weights, blocks = Weights(form, digest), len(form.sizes)
        openings = np.empty((n, TIMES, blocks), dtype=np.uint64)
        terms = np.empty((n, TIMES, 1 + blocks), dtype=np.uint64)
        total = np.zeros(form.cells, dtype=np.uint64)
        for place, share in enumerate(shares):
            openings[place], terms[place] = weights.shares(share)
            total += share[: form.cells]
        return cls(digest, weights, openings, terms, total)


@lru_cache(maxsize=4)
def _drawn(form: Form, digest: bytes) -> tuple[np.ndarray, ...]:
    # three weights of each cell: r, r^2 and those of its linear term; of squares and of copies by block; and
    # the constant
    m, k = form.cells, len(form.sizes)
    size = TIMES * (2 * m + 3 * k)
    stream = mask(hashlib.sha256(b"ostraka/weights/1" + digest).digest(), size=words_for(size))
    numbers = residues(stream, size + _SPARE // 2)
    numbers = numbers[numbers > 0][:size]  # a weight of 0 would let a shift of an opening pass unseen
    weights, parents = numbers[: TIMES * 2 * m].reshape(2, TIMES, m)
    of_square, of_copy, of_sum = numbers[TIMES * 2 * m :].reshape(3, TIMES, k)
    linear, constant = np.zeros((TIMES, m), dtype=np.uint64), np.zeros(TIMES, dtype=np.uint64)
    if form.exact:
        linear += np.repeat(of_sum, form.sizes, axis=1)
        constant += _P - of_sum.sum(axis=1) % _P
    if form.fanout:  # a parent less its children, which is 0
        for start, above, size_below in zip(form.starts, form.sizes, form.sizes[1:], strict=False):
            of_parents = parents[:, start : start + above]
            linear[:, start : start + above] += of_parents
            children = np.arange(size_below) // form.fanout
            linear[:, start + above : start + above + size_below] += _P - of_parents[:, children]
    n = form.entries  # their squares are one sum, which is looked at with one weight
    weights[:, :n], of_square[:, :n] = weights[:, :1], of_square[:, :1]
    squares = weights * weights % _P
    if n:
        # each entry is what its bits say, which ``parents`` weigh; no norm is too long: one weight of squares
        norm = of_square[:, :1] * squares[:, :1] % _P
        powers = np.uint64(1) << np.arange(form.bits, dtype=np.uint64)
        powers_of_rest = np.uint64(1) << np.arange(form.rest_bits, dtype=np.uint64)
        of_entries = parents[:, :n]
        of_bits = (_P - of_entries[:, :, None] * powers % _P).reshape(TIMES, -1)
        constant = of_entries.sum(axis=1) % _P * powers[-1] % _P  # bits say what an entry is above the lowest
        constant += _P - norm[:, 0] * np.uint64(form.bound**2) % _P
        linear = np.concatenate([of_entries, of_bits, norm * powers_of_rest % _P], axis=1)
        squares[:, :n] = 0
    of_marks = np.stack([weights, squares, linear % _P])
    return of_marks, of_square, of_copy, constant % _P


def packed(numbers: Any) -> bytes:
    """Return numbers below p with four bytes each."""
    return np.asarray(numbers).astype("<u4").tobytes()


def unpacked(body: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Read what :func:`packed` wrote, uint64; ValueError for another length, or numbers of p and above."""
    if len(body) != 4 * int(np.prod(shape)):
        raise ValueError("the numbers of the check have another length")
    numbers = np.frombuffer(body, dtype="<u4").astype(np.uint64).reshape(shape)
    if numbers.size and numbers.max() >= PRIME:
        raise ValueError("the numbers of the check must be below the prime")
    return numbers
