"""The error of a round: what failed, and who."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["Code", "PartyError"]

Code = Literal["budget_exceeded", "disagreement", "internal", "refused", "unreachable", "wrong_identity"]


class PartyError(RuntimeError):
    """A round failed. The error says why and names the parties. Nothing in it is private.

    Attributes
    ----------
    code : str
        ``"unreachable"``, ``"wrong_identity"`` (signed by somebody else), ``"refused"``,
        ``"budget_exceeded"``, ``"disagreement"`` (masks do not cancel) or ``"internal"``.
    parties : tuple of str
        Names of the parties that failed; empty where it cannot be told which one did.
    """

    def __init__(self, message: str, *, code: Code, parties: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.parties = code, parties

    def __reduce__(self) -> tuple[Any, ...]:
        return _error, (str(self), self.code, self.parties)


def _error(message: str, code: Code, parties: tuple[str, ...]) -> PartyError:
    return PartyError(message, code=code, parties=parties)
