"""Prices of one answer: processor time of a new noise, against the search and against a repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from ostraka import GNMax, Threshold
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms import tight as _tabulated
from ostraka.core.mechanisms import tight as _tight

if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import _lru_cache_wrapper

NEW, SEARCHED, REPEATS, SMALLEST, LARGEST = 300, 12, 2_000, 2.1, 90_000.0
QUICK = {"NEW": 3, "SEARCHED": 1, "REPEATS": 5}
KINDS: dict[str, tuple[Callable[[float], GNMax | Threshold], _lru_cache_wrapper[tuple[float, ...]]]] = {
    "GNMax": (lambda sigma: GNMax(sigma=sigma), _tight.gaussian_argmax),
    "Threshold": (lambda sigma: Threshold(at=0.0, sigma=sigma), _tight.gaussian_screen),
}


def seconds(work: Callable[[float], object], sigmas: list[float]) -> float:
    """Processor seconds of each; the sum counts, since each noise is new once only."""
    start = time.process_time()
    for sigma in sigmas:
        work(sigma)
    return (time.process_time() - start) / len(sigmas)


def main() -> None:
    """Print milliseconds and ratios for the argmax and for the screen."""
    rng = np.random.default_rng(18)
    for name, (mechanism, price) in KINDS.items():
        new, sigmas = (
            np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST), count)).tolist()
            for count in (NEW, SEARCHED)
        )
        mechanism(3.0).curve("tight")  # the table is read once
        table = seconds(lambda sigma, make=mechanism: make(sigma).curve("tight"), new)
        again = seconds(lambda sigma, make=mechanism: make(sigma).curve("tight"), new[:1] * REPEATS)
        prices = {sigma: price(1 / sigma, ORDERS) for sigma in sigmas}
        with mock.patch.multiple(_tabulated, argmax=lambda *_: None, screen=lambda *_: None):
            price.cache_clear()
            searched = seconds(lambda sigma, price=price: price(1 / sigma, ORDERS), sigmas)
            ratios = [
                a / b
                for sigma in sigmas
                for a, b in zip(prices[sigma][:-1], price(1 / sigma, ORDERS), strict=False)
            ]
            price.cache_clear()
        print(
            f"{name}, {len(ORDERS)} orders: a new sigma {1e3 * table:.2f} ms, searched "
            f"{1e3 * searched:.0f} ms, ratio {searched / table:,.0f}; again {1e6 * again:.1f} us; "
            f"{100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f} % above the search"
        )


if __name__ == "__main__":
    main()
