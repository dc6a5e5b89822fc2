"""Sources of noise: keyed by the operating system, keyed by a kept secret, or a simulation."""

from __future__ import annotations

import hmac
import math
import os
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__: list[str] = []

_RAW_IS_64_BITS = {"ChaCha", "PCG64", "PCG64DXSM", "Philox", "SFC64"}
_MANY = 1024  # words, from which on OpenSSL's ChaCha20 is faster: 4 to 10 times
_ZEROS = bytes(2**16)
_NO_COPY = "noise under a secret key cannot be copied or pickled: ask Consistent for it where it is drawn"


def os_keyed() -> np.random.Generator:
    """A generator for release noise: a ChaCha20 stream under a fresh 256-bit key from the operating system.

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


def seed_of(random_state: int | np.random.RandomState | None) -> int | None:
    """The seed in scikit-learn's ``random_state``: a number as it is, of a generator its next number.

    Raises
    ------
    ValueError
        It is neither, and not None.
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if random_state is not None:
        check.integer(random_state=random_state)
    return random_state


class Keyed:
    """HMAC-SHA256 under one secret, for many messages. Its state is as secret as the secret.

    The state after the secret is kept, and copied for each message, which takes two thirds of what
    ``hmac.digest`` does.

    Parameters
    ----------
    secret : bytes

    Examples
    --------
    >>> import hmac
    >>> Keyed(b"secret")(b"message") == hmac.digest(b"secret", b"message", "sha256")
    True
    """

    __slots__ = ("_prepared",)

    def __init__(self, secret: bytes) -> None:
        self._prepared = hmac.new(secret, digestmod="sha256")

    def __call__(self, message: bytes) -> bytes:
        """The 32 bytes of a message."""
        keyed = self._prepared.copy()
        keyed.update(message)
        return keyed.digest()

    def __reduce__(self) -> NoReturn:
        """Refuse copies and pickles: they would hold the secret."""
        raise TypeError("what is keyed by a secret cannot be copied or pickled: make it where the secret is")


class KeyedNoise(np.random.Generator):
    """A ChaCha20 stream under a key.

    Parameters
    ----------
    key : bytes, 32
        Secret, and used for one question only.
    kept : bool, default False
        True: the key was derived from a secret that nobody outside knows and that is kept with the
        ledger, as :class:`ostraka.core.consistent.Consistent` does it. Otherwise the key counts as known,
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

    def __reduce__(self) -> NoReturn:
        """Refuse copies and pickles: they would hold the secret, and give the same noise again."""
        raise TypeError(_NO_COPY)


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
        self._keys: Sequence[bytes] = keys
        self._used = False
        self._drawn: int | None = None  # words of each row
        self.kept = kept

    def __reduce__(self) -> NoReturn:
        """Refuse copies and pickles: they would hold the secrets, and give the same noise again."""
        raise TypeError(_NO_COPY)

    def words(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Random 64-bit words; the first number of ``size`` is the number of keys."""
        rows = self._rows(size, np.uint64, lambda stream, shape: stream.random_raw(shape))
        self._drawn = math.prod(rows.shape[1:])
        return rows

    def further(self, row: int) -> Callable[[], int]:
        """The words of one row's key that come after those drawn."""
        if self._drawn is None:
            raise ValueError("words must be drawn before further ones are")
        stream = KeyedNoise(self._keys[row])
        words(stream, (self._drawn,))
        return further(stream, row)

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
        return self._rows(
            size,
            np.float64,
            lambda stream, shape: getattr(np.random.Generator(stream), law)(scale=scale, size=shape),
        )

    def _rows(
        self,
        size: int | tuple[int, ...],
        kind: type[np.generic],
        draw: Callable[[Any, tuple[int, ...]], np.ndarray],
    ) -> np.ndarray:
        from randomgen import ChaCha  # noqa: PLC0415

        shape = (int(size),) if isinstance(size, int | np.integer) else size
        if self._used or shape[0] != len(self._keys):
            raise ValueError("noise of one key a row must be drawn once, with one row a key")
        self._used = True
        stream = ChaCha(key=0, rounds=20)
        state = stream.state
        rows = np.empty(shape, dtype=kind)
        for k, key in enumerate(self._keys):
            state["state"]["keysetup"] = np.frombuffer(key, dtype="<u4")
            stream.state = state  # at the start of the stream of this key
            rows[k] = draw(stream, shape[1:])
        return rows


def words(rng: np.random.Generator | KeyedRows, shape: tuple[int, ...]) -> np.ndarray:
    """Random 64-bit words, uint64.

    Examples
    --------
    >>> words(KeyedNoise(bytes(32)), (2,)) == words(KeyedNoise(bytes(32)), (2,))
    array([ True,  True])
    """
    if isinstance(rng, KeyedRows):
        return rng.words(shape)
    source: Any = rng.bit_generator
    kind = type(source).__name__
    if kind == "ChaCha" and math.prod(shape) >= _MANY:
        numbers = _many_words(source, math.prod(shape))
        if numbers is not None:
            return numbers.reshape(shape)
    if kind in _RAW_IS_64_BITS:
        return np.asarray(source.random_raw(shape), dtype=np.uint64)
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def _many_words(source: Any, n: int) -> np.ndarray | None:
    """The next words of a ChaCha20 stream, as ``random_raw`` gives them, or None where it must draw them."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415  (15 ms to import)

    with source.lock:
        bookkeeping = source.state
        state = bookkeeping["state"]
        start, nonce = state["ctr"].tolist()  # the stream is counted in numbers of 32 bits, 16 a block
        first, last = start // 16, (start + 2 * n) // 16
        if start % 2 or nonce or state["rounds"] != 20 or last >= 2**32:
            return None
        place = first.to_bytes(4, "little") + bytes(12)
        cipher = Cipher(algorithms.ChaCha20(state["keysetup"].astype("<u4").tobytes(), place), mode=None)
        blocks = np.empty((last + 1 - first, 8), dtype="<u8")
        encryptor, view = cipher.encryptor(), blocks.data.cast("B")
        for begin in range(0, len(view), len(_ZEROS)):  # the key stream is what the encryption of zeros is
            part = view[begin : begin + len(_ZEROS)]
            encryptor.update_into(_ZEROS[: len(part)], part)
        state["ctr"][0], state["block"] = start + 2 * n, blocks[-1].view("<u4").astype(np.uint32)
        source.state = bookkeeping
    return blocks.ravel()[start % 16 // 2 :][:n].astype(np.uint64, copy=False)


def further(rng: np.random.Generator | KeyedRows, row: int) -> Callable[[], int]:
    """One more word at each call, for one row of those drawn by :func:`words`."""
    if isinstance(rng, KeyedRows):
        return rng.further(row)
    return lambda: int(words(rng, (1,))[0])


def is_simulation(rng: np.random.Generator | None) -> bool:
    """Return whether the noise could be repeated: True except for None and a generator under a kept secret.

    Examples
    --------
    >>> is_simulation(None), is_simulation(np.random.default_rng(0))
    (False, True)
    """
    return not (rng is None or (isinstance(rng, KeyedNoise) and rng.kept))
