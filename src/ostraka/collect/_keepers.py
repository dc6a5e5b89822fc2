"""Ask the keepers of a task, here or elsewhere, and name those which fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ostraka.secure.errors import PartyError
from ostraka.secure.wire import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.collect.keeper import Keeper

__all__ = ["asked", "link"]


def link(key: str, keeper: Keeper | str, timeout: float) -> Callable[[bytes, int], bytes]:
    """Return a function that sends a request of some bytes, and takes an answer of at most so many."""
    if isinstance(keeper, str):
        remote = Remote(f"keeper {key[:16]}", keeper, timeout=timeout)
        return lambda request, most: remote.ask("close", request, most)
    return lambda request, _: keeper.answer(request)


def asked(
    keepers: Mapping[str, Callable[[bytes, int], bytes]], request: bytes, most: int
) -> dict[str, bytes]:
    """Ask every keeper; return the answers, or raise one error that names all keepers which failed."""
    with ThreadPoolExecutor(len(keepers)) as pool:
        waiting = {key: pool.submit(ask, request, most) for key, ask in keepers.items()}
    failed = {key: error for key, one in waiting.items() if (error := one.exception()) is not None}
    for error in failed.values():
        if not isinstance(error, PartyError):
            raise error
    if failed:
        text = "; ".join(f"keeper {key[:16]}: {error}" for key, error in failed.items())
        raise PartyError(text, code="unreachable", parties=tuple(key[:16] for key in failed))
    return {key: one.result() for key, one in waiting.items()}
