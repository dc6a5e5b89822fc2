"""The masks of one client in Flower's SecAgg+: keys, shares of its secrets, and masks with six neighbours.

::

    python -m venv /tmp/flower && /tmp/flower/bin/pip install flwr==1.13.1
    /tmp/flower/bin/python bench/peers/flower_masks.py

What the ``secaggplus_mod`` of a client computes from one message to the next, by Flower's own functions.
``python -m bench collect`` has the same of ours, with as many neighbours.
"""

import json
import os
import time
from importlib.metadata import version

import numpy as np
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    encrypt,
    generate_key_pairs,
    generate_shared_key,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

NEIGHBOURS, THRESHOLD, BITS, REPEATS = 6, 4, 32, 5


def client(values: int, others: list) -> None:
    """One client's part of a round."""
    mask_secret, _ = generate_key_pairs()
    share_secret, _ = generate_key_pairs()
    seed = os.urandom(32)
    for secret in (
        seed,
        mask_secret.private_bytes_raw() if hasattr(mask_secret, "private_bytes_raw") else seed,
    ):
        shares = create_shares(secret, THRESHOLD, NEIGHBOURS + 1)
        for (_, public), share in zip(others, shares, strict=False):
            encrypt(generate_shared_key(share_secret, public), share)
    total = pseudo_rand_gen(seed, 1 << BITS, [(values,)])[0]
    for _, public in others:
        pair_seed = generate_shared_key(mask_secret, public)
        total = total + pseudo_rand_gen(pair_seed, 1 << BITS, [(values,)])[0]
    np.mod(total, 1 << BITS)


def main() -> None:
    """Print milliseconds of the processor for a thousand and a hundred thousand values."""
    others = [generate_key_pairs() for _ in range(NEIGHBOURS)]
    figures = {"peer": f"Flower {version('flwr')}", "neighbours": NEIGHBOURS}
    for values in (1_000, 100_000):
        spent = []
        for _ in range(REPEATS):
            start = time.process_time()
            client(values, others)
            spent.append(time.process_time() - start)
        figures[f"milliseconds, {values:,} values"] = round(1e3 * min(spent), 2)
    print(json.dumps(figures))


main()
