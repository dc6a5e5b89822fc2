"""One core of secure sums, under voters and collect.

``keys``: identities, signatures and key exchange. ``masks``: the one stream that hides numbers.
``agreement`` and ``rounds``: what fixed parties agree on and what is bound to one round. ``wire``: signed
messages over HTTP.
"""

__all__: list[str] = []
