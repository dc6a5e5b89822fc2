"""Links to parties in this process, and concurrent requests to all parties."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ostraka.secure.errors import PartyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.secure.wire import Answering

__all__ = ["Local", "ask_all"]

Answer = TypeVar("Answer")

_MOST_CALLS = 16  # parties asked at once


class Local:
    """A link to a party or a dealer in this process, with the interface of a remote one."""

    def __init__(self, party: Answering) -> None:
        self._party = party

    def ask(self, verb: str, sealed: bytes, _most: int) -> bytes:
        """Return the reply to a message."""
        return self._party.answers[f"/v1/{verb}"](sealed)

    def join(self, sealed: bytes, most: int) -> bytes:
        """Return the result of :meth:`Party.join`."""
        return self.ask("join", sealed, most)

    def vote(self, sealed: bytes, most: int) -> bytes:
        """Return the result of :meth:`Party.vote`."""
        return self.ask("vote", sealed, most)


def ask_all(names: tuple[str, ...], ask: Callable[[str], Answer]) -> dict[str, Answer]:
    """Ask all parties at once; return their replies, or raise one error that names all which failed."""
    with ThreadPoolExecutor(min(len(names), _MOST_CALLS)) as pool:
        asked = {name: pool.submit(ask, name) for name in names}
    failed = {name: error for name, one in asked.items() if (error := one.exception()) is not None}
    if not failed:
        return {name: one.result() for name, one in asked.items()}
    for error in failed.values():
        if not isinstance(error, PartyError):
            raise error
    errors = [error for error in failed.values() if isinstance(error, PartyError)]
    named = dict.fromkeys(name for error in errors for name in error.parties)
    text = "; ".join(dict.fromkeys(map(str, errors)))
    raise PartyError(text, code=errors[0].code, parties=tuple(named))
