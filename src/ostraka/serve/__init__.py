"""Service: teachers behind HTTP. Every label is paid for durably before it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.serve.client import Client as Client

__all__ = ["Client"]

__getattr__, __dir__ = face(__name__, __file__)
