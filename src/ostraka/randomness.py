"""Where noise comes from: keyed by the operating system, keyed by a kept secret, or a simulation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__: list[str] = []  # noise is drawn where rng=None


def os_keyed() -> np.random.Generator:
    """Where release noise comes from: a ChaCha20 stream under a fresh 256-bit key from the operating system.

    Returns
    -------
    numpy.random.Generator
        A new one for each call; nobody can repeat it.

    Examples
    --------
    >>> os_keyed().normal() == os_keyed().normal()
    False
    """
    from randomgen import ChaCha  # noqa: PLC0415  (0.1 s to import; only releases need it)

    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))


class KeyedNoise(np.random.Generator):
    """A ChaCha20 stream under a key.

    Parameters
    ----------
    key : bytes, 32
        Secret, and used for one question only.
    kept : bool, default False
        True: the key was derived from a secret that nobody outside knows and that is kept with the
        ledger, as :class:`ostraka.consistent.Consistent` does it. Otherwise the key counts as known,
        and releases that use it are simulations.

    Examples
    --------
    >>> KeyedNoise(bytes(32)).normal() == KeyedNoise(bytes(32)).normal()
    True
    >>> is_simulation(KeyedNoise(bytes(32)))
    True
    """

    def __init__(self, key: bytes, *, kept: bool = False) -> None:
        from randomgen import ChaCha  # noqa: PLC0415

        super().__init__(ChaCha(key=int.from_bytes(key, "little"), rounds=20))
        self.kept = kept


class KeyedRows:
    """A draw whose row k is what ``KeyedNoise(keys[k])`` gives, a few times faster. For one draw only.

    Parameters
    ----------
    keys : sequence of bytes, 32 each
        Secret, one a question, each used for one question only.
    kept : bool, default False
        As for :class:`KeyedNoise`.

    Raises
    ------
    ValueError
        A second draw, or one with another number of rows: noise must not come twice.

    Examples
    --------
    >>> rows = KeyedRows([bytes(32), b"k" * 32]).normal(size=(2, 3))
    >>> bool((rows[1] == KeyedNoise(b"k" * 32).normal(size=3)).all())
    True
    """

    def __init__(self, keys: Sequence[bytes], *, kept: bool = False) -> None:
        self._keys: Sequence[bytes] | None = keys
        self.kept = kept

    def normal(self, *, scale: float = 1.0, size: int | tuple[int, ...]) -> np.ndarray:
        """Gaussian noise; the first number of ``size`` is the number of keys."""
        return self._draw("normal", scale, size)

    def laplace(self, *, scale: float = 1.0, size: int | tuple[int, ...]) -> np.ndarray:
        """Laplace noise; the first number of ``size`` is the number of keys."""
        return self._draw("laplace", scale, size)

    def gumbel(self, *, scale: float = 1.0, size: int | tuple[int, ...]) -> np.ndarray:
        """Gumbel noise; the first number of ``size`` is the number of keys."""
        return self._draw("gumbel", scale, size)

    def _draw(self, law: str, scale: float, size: int | tuple[int, ...]) -> np.ndarray:
        from randomgen import ChaCha  # noqa: PLC0415

        shape = (size,) if isinstance(size, int | np.integer) else size
        keys, self._keys = self._keys, None
        if keys is None or shape[0] != len(keys):
            raise ValueError("noise of one key a row must be drawn once, with one row a key")
        stream = ChaCha(key=0, rounds=20)
        draw = getattr(np.random.Generator(stream), law)
        state = stream.state
        rows = np.empty(shape)
        for k, key in enumerate(keys):
            state["state"]["keysetup"] = np.frombuffer(key, dtype="<u4")
            stream.state = state  # at the start of the stream of this key
            rows[k] = draw(scale=scale, size=shape[1:])
        return rows


def is_simulation(rng: np.random.Generator | None) -> bool:
    """Whether somebody could repeat the noise: of every generator but None and one under a kept secret.

    Examples
    --------
    >>> is_simulation(None), is_simulation(np.random.default_rng(0))
    (False, True)
    """
    return not (rng is None or (isinstance(rng, KeyedNoise) and rng.kept))
