"""One core of secure sums, under voters and collect.

``keys``: identities, signatures and key exchange. ``masks``: the one stream that hides numbers.
``agreement`` and ``rounds``: what fixed parties agree on and what is bound to one round. ``wire``: messages
over HTTP, and ``server``, which answers them. ``log``: the one durable log.

Votes on rows that nobody reads: ``comparison`` (distributed comparison functions), ``pads`` (one-time pads),
``two_party`` (the steps that use them up, and both sides of a vote), ``dealer`` (who deals the pads), and
``hidden`` (the messages).
"""

from __future__ import annotations

__all__: list[str] = []
