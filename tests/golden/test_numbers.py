"""Prices, plans, bounds and draws stay what they were (``numbers.py`` says why)."""

import numpy as np
import pytest

from tests.golden import blocks, numbers

RECORDED = dict(numbers.lines())


@pytest.fixture(scope="module", autouse=True)
def _own_tables(tmp_path_factory):
    """Nothing comes from the folder of tables of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("tables")))
        yield


def same(present, recorded):
    """Equal, but for what another processor adds in another order: sums of products, and tails of laws."""
    if isinstance(recorded, list):
        return len(present) == len(recorded) and all(map(same, present, recorded))
    if isinstance(recorded, dict):
        return present.keys() == recorded.keys() and all(
            same(present[name], recorded[name]) for name in recorded
        )
    if isinstance(recorded, float):
        return bool(np.isclose(present, recorded, rtol=1e-6, atol=1e-14))
    return type(present) is type(recorded) and present == recorded


@pytest.mark.parametrize("expression", RECORDED)
def test_a_number_is_what_it_was(expression):
    present = numbers.evaluated(expression)
    if blocks.RECORDING:
        numbers.record(expression, present)
    else:
        assert same(present, RECORDED[expression]), present
