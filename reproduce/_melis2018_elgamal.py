"""Threshold ElGamal of Melis 2018, Sec. 4.3: clients encrypt vectors, and k of n authorities decrypt a sum.

It shows what the thesis built, and is no part of the package: whoever adds the vectors is trusted. Copies of
one client's ciphertext, encrypted again, pass as reports of others, and so do zeros of the adder's own, so
that a sum can be one person's vector. Proofs of plaintext and signatures of enrolled clients would be needed.
``ostraka.collect`` masks instead. Needs coincurve.
"""

from __future__ import annotations

import hashlib
import importlib
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms.skellam import vector_adjacency
from ostraka.core.private import Private
from ostraka.secure.keys import HoldsSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.collect.encodings import Encoding

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT, SCALAR = 33, 32


def prove(secret: int, bound: bytes) -> bytes:
    nonce = random_scalar()
    demand = challenge(bound, [times_base(nonce)])
    return scalar_bytes(demand) + scalar_bytes((nonce + demand * secret) % ORDER)


def known(point: Any, proof: bytes, bound: bytes) -> bool:
    """Verify Schnorr's proof that its author knows the logarithm of a point."""
    demand, answer = int.from_bytes(proof[:SCALAR]), int.from_bytes(proof[SCALAR:])
    if not (0 < demand < ORDER and 0 < answer < ORDER):
        return False
    at = total_of([times_base(answer), point.multiply(scalar_bytes(ORDER - demand))])
    return challenge(bound, [at]) == demand


def context(purpose: bytes, number: int, body: bytes) -> bytes:
    return hashlib.sha256(b"ostraka/elgamal/1/" + purpose + number.to_bytes(4, "big") + body).digest()


def challenge(bound: bytes, points: list[Any]) -> int:
    body = bound + b"".join(point.format() for point in points)
    return int.from_bytes(hashlib.sha512(body).digest()) % ORDER


def evaluated(commitments: list[Any], number: int) -> Any:
    powers = [scalar_bytes(pow(number, place, ORDER)) for place in range(len(commitments))]
    return total_of([point.multiply(power) for point, power in zip(commitments, powers, strict=True)])


def weight(number: int, chosen: list[int]) -> int:
    above, below = 1, 1
    for member in chosen:
        if member != number:
            above, below = above * member % ORDER, below * (member - number) % ORDER
    return above * pow(below, -1, ORDER) % ORDER


@lru_cache(maxsize=4)
def table(bound: int) -> tuple[dict[bytes, int], int]:
    """Return the baby steps: the points of 1 to ``step``."""
    step = max(1, int((2 * bound + 1) ** 0.5))
    base, point, steps = times_base(1), None, {}
    for value in range(1, step + 1):
        point = base if point is None else total_of([point, base])
        steps[point.format()] = value
    return steps, step


def logarithm(second: Any, shared: Any, steps: dict[bytes, int], step: int, bound: int) -> int:
    """Return the value, from ``-most`` to ``most``, whose point is ``second - shared``, by giant steps."""
    # second - shared + (most + 1) G is the point of a number from 1 on
    try:
        point = total_of([second, _negative(shared), times_base(bound + 1)])
    except ValueError:
        raise ValueError(f"a cell of the sum is not within {bound}") from None
    back = _negative(times_base(step))
    for giant in range((2 * bound + 1) // step + 1):
        baby = steps.get(point.format())
        if baby is not None:
            value = giant * step + baby - bound - 1
            if abs(value) <= bound:
                return value
            break
        point = total_of([point, back])
    raise ValueError(f"a cell of the sum is not within {bound}")


def _negative(point: Any) -> Any:
    body = point.format()
    return point_of(bytes([body[0] ^ 1]) + body[1:])


def total_of(points: list[Any]) -> Any:
    return _curve().PublicKey.combine_keys(points)


def point_of(body: bytes) -> Any:
    """Parse a compressed point; ValueError for anything else."""
    if len(body) != POINT:
        raise ValueError(f"a point must have {POINT} bytes, got {len(body)}")
    return _curve().PublicKey(body)


def times_base(scalar: int) -> Any:
    return _curve().PublicKey.from_valid_secret(scalar_bytes(scalar))


def random_scalar() -> int:
    return 1 + secrets.randbelow(ORDER - 1)


def scalar_bytes(scalar: int) -> bytes:
    return scalar.to_bytes(SCALAR, "big")


def _curve() -> Any:
    return importlib.import_module("coincurve")


@dataclass(frozen=True, slots=True, repr=False)
class Ciphertexts:
    """An encrypted vector: a pair of points for each cell."""

    pairs: tuple[tuple[Any, Any], ...]

    def write(self) -> bytes:
        """Return the wire format, with 66 bytes per cell."""
        return b"".join(point.format() for pair in self.pairs for point in pair)

    @classmethod
    def read(cls, body: bytes, *, cells: int) -> Ciphertexts:
        """Read this number of ciphertexts; ValueError for anything else, and if a point appears twice.

        A client that copies one ciphertext along a row, and adds to one copy, shows which cell it is in.
        """
        if len(body) != 2 * POINT * cells:
            raise ValueError(f"there must be {2 * POINT * cells} bytes, got {len(body)}")
        parts = [body[at : at + POINT] for at in range(0, len(body), POINT)]
        if len(set(parts)) < len(parts):
            raise ValueError("every cell must be encrypted afresh: a point appears twice")
        points = [point_of(part) for part in parts]
        return cls(tuple(zip(points[::2], points[1::2], strict=True)))


@dataclass(frozen=True, slots=True, repr=False)
class Part:
    """One authority's points, and the proof that they were made with its share."""

    points: tuple[Any, ...]
    proof: bytes


_LEAST = 3  # of two, each would know the other's vector from the sum
_MOST_SUM = 2**22  # sums are found in a table of square-root size


@dataclass(frozen=True, slots=True)
class Group:
    """What all authorities have published: each one's commitments, with proofs that it knows its secret.

    Parameters
    ----------
    threshold : int > half of the authorities, >= 2
        How many authorities decrypt together. Two groups of them then share one, which refuses a second sum.
    dealings : tuple of bytes
        ``Authority.dealing`` of each, in the order of their numbers from 1.

    Raises
    ------
    ValueError
        Fewer authorities than the threshold, malformed commitments or a wrong proof of possession.

    Examples
    --------
    >>> authorities = [Authority(number, n=3, threshold=2) for number in (1, 2, 3)]
    >>> group = Group(2, tuple(one.dealing for one in authorities))
    >>> len(group.key)
    33
    """

    threshold: int
    dealings: tuple[bytes, ...]

    def __post_init__(self) -> None:
        check.integer(threshold=self.threshold, least=2)
        if not self.threshold <= len(self.dealings) < min(101, 2 * self.threshold):
            raise ValueError(
                f"there must be {self.threshold} to {min(100, 2 * self.threshold - 1)} authorities, got "
                f"{len(self.dealings)}: with more, two groups of {self.threshold} could decrypt two sums"
            )
        if len({dealing[:POINT] for dealing in self.dealings}) < len(self.dealings):
            raise ValueError("every authority must have commitments of its own")
        for number, dealing in enumerate(self.dealings, start=1):
            if len(dealing) != POINT * self.threshold + 2 * SCALAR:
                raise ValueError(f"authority {number}: {self.threshold} commitments and a proof are needed")
            proof, body = dealing[POINT * self.threshold :], dealing[: POINT * self.threshold]
            if not known(point_of(body[:POINT]), proof, context(b"possession", number, body)):
                raise ValueError(f"authority {number} does not prove that it knows its secret")

    @property
    def key(self) -> bytes:
        """The public key for encryption: the sum of the first commitments."""
        return total_of([self.commitments(number)[0] for number in self.numbers]).format()

    @property
    def numbers(self) -> range:
        """The authorities' numbers."""
        return range(1, len(self.dealings) + 1)

    def commitments(self, number: int) -> list[Any]:
        """Return one authority's points."""
        dealing = self.dealings[number - 1]
        return [point_of(dealing[at : at + POINT]) for at in range(0, POINT * self.threshold, POINT)]

    def public_share(self, number: int) -> Any:
        """Return the point of the share that an authority decrypts with."""
        return total_of([evaluated(self.commitments(dealer), number) for dealer in self.numbers])

    @property
    def digest(self) -> bytes:
        """The digest that proofs are bound to."""
        return hashlib.sha256(bytes([self.threshold]) + b"".join(self.dealings)).digest()


class Authority(HoldsSecrets):
    """One of n authorities: it deals shares of a secret, and decrypts with the sum of those it gets.

    Parameters
    ----------
    number : int
        From 1 to ``n``.
    n, threshold : int
        How many there are, and how many decrypt together.
    least : int >= 3, default 3
        Sums of fewer clients are refused.

    Raises
    ------
    ValueError
        Numbers out of range; a dealt share that does not fit its dealer's commitments.

    Guarantees
    ----------
    Fewer than ``threshold`` authorities learn nothing about the joint secret, which exists nowhere. Shares
    are checked against commitments (Feldman 1987). A part of a decryption carries a proof that it was made
    with the share that was committed to. Each authority adds the vectors itself, refuses fewer than
    ``least`` and repeated ones, and decrypts one sum for each purpose.
    Source: Pedersen 1991, doi:10.1007/3-540-46416-6_47 (keys); Chaum and Pedersen 1992 (proofs).

    Examples
    --------
    >>> from ostraka.collect import Histogram
    >>> authorities = [Authority(number, n=3, threshold=2) for number in (1, 2, 3)]
    >>> group = Group(2, tuple(one.dealing for one in authorities))
    >>> for one in authorities:
    ...     one.receive(group, [other.share_for(one.number) for other in authorities])
    >>> encoding = Histogram(0, 2, cells=2)
    >>> vectors = [encrypted(encoding.encode(value), group.key) for value in (0, 1, 1)]
    >>> parts = {one.number: one.part(group, vectors, purpose="May") for one in authorities[:2]}
    >>> decrypted(added(vectors), parts, group, encoding=encoding, most=3)
    Private(shape=(2,), unit='client')
    """

    def __init__(self, number: int, *, n: int, threshold: int, least: int = _LEAST) -> None:
        check.integer(n=n, threshold=threshold, least=2)
        if not least >= _LEAST:
            raise ValueError(f"least must be at least {_LEAST}, got {least!r}")
        if not (1 <= number <= n and threshold <= n):
            raise ValueError(f"number and threshold must be at most {n}, and number at least 1")
        self.number, self._least = number, least
        self._polynomial = [random_scalar() for _ in range(threshold)]
        points = b"".join(times_base(value).format() for value in self._polynomial)
        proof = prove(self._polynomial[0], context(b"possession", number, points))
        self.dealing = points + proof
        self._share: int | None = None
        self._done: dict[str, bytes] = {}

    def share_for(self, number: int) -> int:
        """Return the secret share for another authority; send it to that authority only."""
        total = 0
        for coefficient in reversed(self._polynomial):
            total = (total * number + coefficient) % ORDER
        return total

    def receive(self, group: Group, shares: Sequence[int]) -> None:
        """Take the shares of all dealers, in order, after a check against their commitments."""
        if len(shares) != len(group.dealings) or group.dealings[self.number - 1] != self.dealing:
            raise ValueError("the group must hold this authority, and there must be a share of each dealer")
        for dealer, share in zip(group.numbers, shares, strict=True):
            if not 0 < share < ORDER or times_base(share) != evaluated(
                group.commitments(dealer), self.number
            ):
                raise ValueError(f"the share of authority {dealer} does not fit its commitments")
        self._share = sum(shares) % ORDER

    def part(self, group: Group, vectors: Sequence[Ciphertexts], *, purpose: str) -> Part:
        """Return this authority's part in the decryption of a sum; one sum for each purpose."""
        if self._share is None:
            raise ValueError("this authority has received no shares yet")
        if not purpose.isprintable() or " ".join(purpose.split()) != purpose or not purpose:
            raise ValueError(f"a purpose must be words with one space between them, got {purpose!r}")
        if len({vector.write() for vector in vectors}) < max(self._least, len(vectors)):
            raise ValueError(f"a sum needs vectors of {self._least} clients or more, each of them once")
        total = added(vectors)
        body = total.write()
        if self._done.setdefault(purpose, body) != body:
            raise ValueError(f"another sum was decrypted for {purpose!r}: two would show their difference")
        scalar = scalar_bytes(self._share)
        points = [first.multiply(scalar) for first, _ in total.pairs]
        public = group.public_share(self.number)
        bases, bound = _batched(group, total, points, public)
        nonce = random_scalar()
        at = [times_base(nonce), bases[0].multiply(scalar_bytes(nonce))]
        demand = challenge(bound, at)
        answer = (nonce + demand * self._share) % ORDER
        return Part(tuple(points), scalar_bytes(demand) + scalar_bytes(answer))

    def __repr__(self) -> str:
        return f"Authority(number={self.number})"


def encrypted(vector: Any, key: bytes) -> Ciphertexts:
    """Encrypt a vector of whole numbers under a group's key, with fresh randomness in each cell.

    Parameters
    ----------
    vector : uint32 array of shape (cells,)
        Private. Negative numbers modulo 2^32.
    key : bytes
        ``Group.key``.

    Returns
    -------
    Ciphertexts

    Examples
    --------
    >>> group = Group(2, tuple(Authority(number, n=2, threshold=2).dealing for number in (1, 2)))
    >>> len(encrypted([1, 0], group.key).write())
    132
    """
    public, pairs = point_of(key), []
    for value in np.asarray(vector, dtype=np.uint32).astype(np.int32).tolist():
        random = random_scalar()
        second = public.multiply(scalar_bytes(random))
        pairs.append((times_base(random), total_of([second, times_base(value % ORDER)]) if value else second))
    return Ciphertexts(tuple(pairs))


def added(vectors: Sequence[Ciphertexts]) -> Ciphertexts:
    """Return the encryption of the sum of the vectors.

    Parameters
    ----------
    vectors : sequence of Ciphertexts
        Of one length.

    Returns
    -------
    Ciphertexts

    Examples
    --------
    >>> group = Group(2, tuple(Authority(number, n=2, threshold=2).dealing for number in (1, 2)))
    >>> len(added([encrypted([1, 0], group.key)] * 1).pairs)
    2
    """
    if not vectors or len({len(vector.pairs) for vector in vectors}) != 1:
        raise ValueError("the vectors must have one length, and be one or more")
    columns = zip(*(vector.pairs for vector in vectors), strict=True)
    return Ciphertexts(
        tuple((total_of([a for a, _ in cell]), total_of([b for _, b in cell])) for cell in columns)
    )


def decrypted(
    total: Ciphertexts, parts: Mapping[int, Part], group: Group, *, encoding: Encoding, most: int
) -> Private:
    """Decrypt the sum from the parts of ``threshold`` or more authorities whose proofs hold.

    Parameters
    ----------
    total : Ciphertexts
        What :func:`added` returned.
    parts : mapping of int to Part
        By the authorities' numbers.
    group : Group
        All authorities.
    encoding : Encoding
        Of the clients' vectors: its norms become the adjacency of the sum.
    most : int
        No cell of the sum is larger, in absolute value: clients times the largest entry.

    Returns
    -------
    Private of shape (cells,), unit "client"
        Exact: release it with ``SkellamSum(…, adds=True)``.

    Raises
    ------
    ValueError
        Too few parts, a proof that does not hold (its authority is named), or a cell beyond ``most``.

    Examples
    --------
    See :class:`Authority`.

    >>> decrypted.__name__
    'decrypted'
    """
    check.integer(most=most, least=1)
    if most > _MOST_SUM:
        raise ValueError(f"most must be at most {_MOST_SUM:,}, got {most:,}")
    if len(parts) < group.threshold or not set(parts) <= set(group.numbers):
        raise ValueError(f"parts of {group.threshold} of the authorities are needed, got {sorted(parts)}")
    for number, part in parts.items():
        if not _holds(group, total, number, part):
            raise ValueError(f"the part of authority {number} does not hold")
    chosen = sorted(parts)[: group.threshold]
    weights = [scalar_bytes(weight(number, chosen)) for number in chosen]
    steps, step = table(most)
    values = []
    for cell, (_, second) in enumerate(total.pairs):
        shared = total_of([parts[n].points[cell].multiply(w) for n, w in zip(chosen, weights, strict=True)])
        values.append(logarithm(second, shared, steps, step, most))
    return Private(np.array(values, dtype=np.int64), vector_adjacency(encoding.l1, encoding.l2, sigma=0.0))


def _holds(group: Group, total: Ciphertexts, number: int, part: Part) -> bool:
    """Verify Chaum and Pedersen's proof for all cells at once, with weights that nobody can choose."""
    if len(part.points) != len(total.pairs) or len(part.proof) != 2 * SCALAR:
        return False
    public = group.public_share(number)
    (base, image), bound = _batched(group, total, list(part.points), public)
    demand, answer = (int.from_bytes(part.proof[at : at + SCALAR]) for at in (0, SCALAR))
    if not (0 < demand < ORDER and 0 < answer < ORDER):
        return False
    back = scalar_bytes(ORDER - demand)
    at = [
        total_of([times_base(answer), public.multiply(back)]),
        total_of([base.multiply(scalar_bytes(answer)), image.multiply(back)]),
    ]
    return challenge(bound, at) == demand


def _batched(
    group: Group, total: Ciphertexts, points: list[Any], public: Any
) -> tuple[tuple[Any, Any], bytes]:
    """Return weighted sums of the first points and of their images; the weights are a hash of all."""
    body = total.write() + b"".join(point.format() for point in points)
    bound = context(b"decryption", 0, group.digest + public.format() + body)
    weights = [
        hashlib.sha256(bound + cell.to_bytes(4, "big")).digest()[:16].rjust(SCALAR, b"\0")
        for cell in range(len(points))
    ]
    firsts = [first for first, _ in total.pairs]
    base = total_of([point.multiply(weight) for point, weight in zip(firsts, weights, strict=True)])
    image = total_of([point.multiply(weight) for point, weight in zip(points, weights, strict=True)])
    return (base, image), bound
