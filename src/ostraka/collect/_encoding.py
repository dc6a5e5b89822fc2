"""What an encoding owes to a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Encoding"]


@runtime_checkable
class Encoding(Protocol):
    """What a task needs to know about an encoding. All of it is public."""

    @property
    def cells(self) -> int:
        """Length of the vector."""
        ...

    @property
    def l1(self) -> float:
        """How far two encodings can lie apart, in L1."""
        ...

    @property
    def l2(self) -> float:
        """How far two encodings can lie apart, in L2."""
        ...

    @property
    def largest(self) -> int:
        """No cell of one encoding is larger, in absolute value."""
        ...

    def encode(self, value: Any) -> np.ndarray:
        """The vector of one value, uint32 of shape (cells,); negative numbers modulo 2^32."""
        ...
