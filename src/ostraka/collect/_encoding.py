"""The protocol of encodings: what a task reads from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Encoding"]


@runtime_checkable
class Encoding(Protocol):
    """An encoding of values as vectors, with bounds on how two vectors differ. All of it is public."""

    @property
    def cells(self) -> int:
        """Length of the vector."""
        ...

    @property
    def l1(self) -> float:
        """The largest L1 distance between two encodings."""
        ...

    @property
    def l2(self) -> float:
        """The largest L2 distance between two encodings."""
        ...

    @property
    def largest(self) -> int:
        """The largest absolute value of a cell in one encoding."""
        ...

    def encode(self, value: Any) -> np.ndarray:
        """The vector of one value, uint32 of shape (cells,); negative numbers modulo 2^32."""
        ...
