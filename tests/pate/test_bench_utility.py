"""The benchmark of accuracy for an epsilon runs, in its smallest form."""

import importlib
import re
import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    yield importlib.import_module("bench.utility")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


def test_one_deal_of_digits(bench, capsys):
    bench.main("digits", quick=True)
    found = {
        line[:34].strip(): float(re.search(r"([01]\.\d{4}) ±", line)[1])
        for line in capsys.readouterr().out.splitlines()[1:]
    }
    assert found["digits, shuffled labels"] < 0.4  # seeded, as all of it
    assert 0.9 < found["digits"] <= found["digits, true public labels"] + 0.05
