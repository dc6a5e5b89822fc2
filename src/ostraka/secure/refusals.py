"""Refusals: how a role that serves messages turns what is wrong with one into an error that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ostraka.secure.errors import PartyError
from ostraka.secure.keys import unseal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.secure.errors import Code

__all__ = ["checked", "refused", "unsealed"]

Checked = TypeVar("Checked")


def refused(who: str, why: str, *parties: str, code: Code = "refused") -> PartyError:
    """Return an error that says who refuses, why, and which parties are at fault."""
    return PartyError(f"{who} refuses: {why}", code=code, parties=parties)


def checked(who: str, work: Callable[[], Checked], *parties: str) -> Checked:
    """Turn a ValueError about a message into a refusal; messages are public."""
    try:
        return work()
    except ValueError as error:
        raise refused(who, str(error), *parties) from None


def unsealed(who: str, public_key: str, purpose: str, sealed: bytes, *parties: str) -> bytes:
    """Return the body if this key signed it for this purpose; a refusal otherwise."""
    try:
        return unseal(public_key, purpose, sealed)
    except ValueError as error:
        raise refused(who, str(error), *parties, code="wrong_identity") from None
