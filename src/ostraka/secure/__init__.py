"""One core of secure sums, under voters and collect.

``keys``: identities, signatures and key exchange. ``masks``: the one stream that hides numbers.
``agreement`` and ``rounds``: what fixed parties agree on and what is bound to one round. ``wire``: signed
messages over HTTP.

Votes on rows that nobody reads: ``comparison`` (distributed comparison functions), ``pads`` and ``gates``
(one-time pads, and the steps that use them up), ``two_party`` (both sides of a vote), ``dealing`` and
``dealer`` (who deals the pads), ``questions`` and ``hidden`` (what is agreed on, and the messages).
"""

from __future__ import annotations

__all__: list[str] = []
