"""The one chance of a false alarm that all statistical tests share, and a test with it that several use."""

import numpy as np
from scipy.stats import chi2

FALSE_ALARM = 1e-9  # probability that correct code fails one statistical check


def looks_uniform(words: np.ndarray) -> bool:
    """Chi-squared of each of the four bytes, at FALSE_ALARM together."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)
    tallies = np.stack([np.bincount(octets[:, place], minlength=256) for place in range(4)])
    expected = len(octets) / 256
    return bool((((tallies - expected) ** 2).sum(axis=1) / expected < chi2.isf(FALSE_ALARM / 4, 255)).all())
