"""The benchmark of accuracy for an epsilon finds in its smallest form what it finds at length."""

import re

from bench import utility


def test_one_deal_of_digits(monkeypatch, capsys):
    for setting, value in utility.QUICK.items():
        monkeypatch.setattr(utility, setting, value)
    monkeypatch.setattr(utility, "NAMES", ("digits",))
    monkeypatch.setattr(
        utility, "RELATIONS", ("zero-out",)
    )  # the other takes as long and differs by its noise
    utility.main()
    figures = {
        line[:48].strip(): float(re.search(r"([01]\.\d{4}) ±", line)[1])
        for line in capsys.readouterr().out.splitlines()[1:]
    }
    for relation in utility.RELATIONS:
        assert figures[f"digits, {relation}, shuffled labels"] < 0.4  # seeded, as all of it
        assert 0.9 < figures[f"digits, {relation}"] <= figures["digits, true public labels"] + 0.05
