"""One core of secure sums, under voters and collect.

``keys``: identities, signatures and key exchange. ``masks``: the one stream that hides numbers.
``agreement`` and ``rounds``: what fixed parties agree on, and the messages of one round and what is bound to
it. ``wire``: messages over HTTP, and ``server``, which answers them. ``log``: the one durable log.
``witness``: who else remembers where a ledger ends.

Votes on rows that nobody reads: ``comparison`` (distributed comparison functions), ``two_party`` (one-time
pads, the steps that use them up, and both sides of a vote), and ``dealer`` (who deals the pads).
"""

from __future__ import annotations

__all__: list[str] = []
