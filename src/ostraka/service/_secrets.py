"""The secrets of a service folder, and the teachers that the folder belongs to."""

from __future__ import annotations

import contextlib
import hmac
import os
from typing import TYPE_CHECKING

from ostraka import _files
from ostraka.ledger import LedgerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["recognise", "remember", "secret_of"]

_KNOWN = "teachers.mac"


def secret_of(name: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Return a secret from OSTRAKA_…_SECRET, or from a private file, which is created if missing."""
    variable = f"OSTRAKA_{name.upper()}_SECRET"
    if variable in environment:
        with contextlib.suppress(ValueError):
            found = bytes.fromhex(environment[variable])
            if len(found) >= 32:
                return found
        raise ValueError(f"{variable} must be 64 or more hexadecimal digits")
    return _files.create(folder / f"{name}.secret", os.urandom(32))


def recognise(teachers: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Refuse other teachers than this service began with, by their hash, before they are parsed.

    Raises
    ------
    LedgerError
        The hash differs.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    known = folder / _KNOWN
    if known.is_file() and not hmac.compare_digest(
        known.read_bytes(), _sealed(teachers, folder, environment)
    ):
        raise LedgerError(
            "the teachers are not those that this service began with: put these back, or serve a copy of the "
            "run without its service folder"
        )


def remember(teachers: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Store the teachers' hash for an early check at later starts; the ledger's own check decides."""
    _files.create(folder / _KNOWN, _sealed(teachers, folder, environment))


def _sealed(teachers: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    secret = secret_of("ledger", folder, environment)
    return hmac.digest(secret, f"ostraka/teachers/1\x00{teachers}".encode(), "sha256")
