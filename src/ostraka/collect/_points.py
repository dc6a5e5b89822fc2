"""Points of secp256k1 by coincurve: sums, small logarithms, and proofs of knowledge made non-interactive."""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache
from typing import Any

from ostraka import _check

__all__ = [
    "ORDER",
    "POINT",
    "SCALAR",
    "challenge",
    "context",
    "evaluated",
    "known",
    "logarithm",
    "point_of",
    "prove",
    "random_scalar",
    "scalar_bytes",
    "table",
    "times_base",
    "total_of",
    "weight",
]

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT, SCALAR = 33, 32


def prove(secret: int, bound: bytes) -> bytes:
    nonce = random_scalar()
    asked = challenge(bound, [times_base(nonce)])
    return scalar_bytes(asked) + scalar_bytes((nonce + asked * secret) % ORDER)


def known(point: Any, proof: bytes, bound: bytes) -> bool:
    """Verify Schnorr's proof that its author knows the logarithm of a point."""
    asked, answer = int.from_bytes(proof[:SCALAR]), int.from_bytes(proof[SCALAR:])
    if not (0 < asked < ORDER and 0 < answer < ORDER):
        return False
    at = total_of([times_base(answer), point.multiply(scalar_bytes(ORDER - asked))])
    return challenge(bound, [at]) == asked


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
    for other in chosen:
        if other != number:
            above, below = above * other % ORDER, below * (other - number) % ORDER
    return above * pow(below, -1, ORDER) % ORDER


@lru_cache(maxsize=4)
def table(most: int) -> tuple[dict[bytes, int], int]:
    """Return the baby steps: the points of 1 to ``step``."""
    step = max(1, int((2 * most + 1) ** 0.5))
    base, point, found = times_base(1), None, {}
    for value in range(1, step + 1):
        point = base if point is None else total_of([point, base])
        found[point.format()] = value
    return found, step


def logarithm(second: Any, shared: Any, steps: dict[bytes, int], step: int, most: int) -> int:
    """Return the value, from ``-most`` to ``most``, whose point is ``second - shared``, by giant steps."""
    # second - shared + (most + 1) G is the point of a number from 1 on
    try:
        point = total_of([second, _negative(shared), times_base(most + 1)])
    except ValueError:
        raise ValueError(f"a cell of the sum is not within {most}") from None
    back = _negative(times_base(step))
    for giant in range((2 * most + 1) // step + 1):
        found = steps.get(point.format())
        if found is not None:
            value = giant * step + found - most - 1
            if abs(value) <= most:
                return value
            break
        point = total_of([point, back])
    raise ValueError(f"a cell of the sum is not within {most}")


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
    return _check.require("coincurve", extra="collect")
