"""Wire format of encrypted vectors, and of the parts of their decryption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ostraka.collect._points import POINT, point_of

__all__ = ["Ciphertexts", "Part"]


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
