"""The owner's page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostraka.service._overview import Overview

__all__ = ["render"]


def render(seen: Overview) -> str:
    """The page as HTML that needs nothing else."""
    clients = "".join(
        f"<li>{html.escape(client.name)}: {client.spent:.3f} of {client.cap:g}</li>"
        for client in seen.clients
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>ostraka</title>"
        f"<h1>ostraka</h1><p>epsilon {seen.spent:.3f} of {seen.epsilon:g} at delta {seen.delta:g} is spent, "
        f"for one {html.escape(seen.unit)}</p><ul>{clients}</ul>"
    )
