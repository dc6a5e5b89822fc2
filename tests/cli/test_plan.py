"""ostraka plan: every way, the command that carries out the best, and nothing private read."""

import json
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ostraka import GNMax, Threshold
from ostraka.core.accounting.plan import Estimate
from ostraka.learn import cli_plan
from ostraka.learn.ways.choose import Forecast
from ostraka.voters.named import Way
from tests.cli.terminal import typed
from tests.golden import blocks

FEW = ("--public-rows", 60, "--columns", 4)  # worlds that are small, and tried at once
RECORD = Path(blocks.__file__).with_name("plans.txt")


plan = partial(typed, "plan")


def test_each_way_fits_the_budget_and_the_best_one_is_what_to_type():
    code, out, err = plan("--rows", 5000, "--classes", 2, "--epsilon", 2, *FEW)
    assert code == 0, err
    names = [line.split()[0] for line in out.splitlines()[1:5]]
    assert names == ["counts", "filter", "rounds", "argmax"]
    best = re.search(r"Recommended: (\w+)\.", out)[1]
    typed = re.search(r"ostraka learn .*--epsilon ([\d.]+)", out)
    assert float(typed[1]) <= 2.0001
    assert f"--way {best} " in typed[0] or (best == "argmax" and "--teachers" in typed[0])
    blocks.hold(RECORD, "of 5000 rows", blocks.normal_form(out), models=True)


def test_json_holds_every_plan_and_none_is_expected_to_beat_what_is_recommended_clearly():
    rows, classes, epsilon = 400, 2, 3.0
    code, out, err = plan("--rows", rows, "--classes", classes, "--epsilon", epsilon, *FEW, "--json")
    assert code == 0, err
    record = json.loads(out)
    ways = {way["way"]: way for way in record["ways"]}
    expected = {name: way["accuracy"]["best"] for name, way in ways.items() if way["accuracy"]}
    best = record["recommended"]
    assert expected[best] >= expected[Way.FILTER]
    assert expected[best] >= max(expected.values()) - 0.01
    assert record["learn"] == ways[best]["learn"]
    assert all(way["epsilon"] <= epsilon for way in ways.values() if way["epsilon"])
    teachers = ways["argmax"]
    total = teachers["n_questions"] * eval(teachers["mechanism"], {"GNMax": GNMax}).curve()
    if teachers["screen"]:
        screen = eval(teachers["screen"], {"Threshold": Threshold})
        total = total + teachers["n_questions"] * screen.curve()
    assert total.epsilon(delta=record["delta"]) == (teachers["epsilon"] or pytest.approx(epsilon, rel=1e-2))
    blocks.hold(RECORD, "of 400 rows", blocks.normal_form(out), models=True)


def test_people_have_no_rounds_and_the_command_asks_whose_rows_they_are():
    _, out, _ = plan("--rows", 3000, "--classes", 2, "--epsilon", 2, "--people", *FEW)
    blocks.hold(RECORD, "of 3000 people", blocks.normal_form(out), models=True)


def test_a_target_is_met_or_refused(monkeypatch):
    monkeypatch.setattr("ostraka.learn.cli_plan._EPSILONS", (0.5, 10.0))
    numbers = ("--rows", 2000, "--classes", 2, *FEW, "--json")
    code, out, _ = plan(*numbers, "--target-accuracy", 0.7)
    assert code == 0
    record = json.loads(out)
    assert max(way["accuracy"]["best"] for way in record["ways"] if way["accuracy"]) >= 0.7
    blocks.hold(RECORD, "to a target", blocks.normal_form(out), models=True)
    code, _, err = plan(*numbers, "--target-accuracy", 0.99)
    assert code == 2
    assert "no epsilon up to 10" in err


@pytest.mark.parametrize(
    ("least", "budget"),
    [(0.0, 0.2), (0.2, 0.2), (0.21, 0.3), (0.9, 1.0), (7.0, 8.0), (9.5, 10.0), (10.1, None)],
)
def test_a_target_takes_the_least_budget_at_which_it_is_met(least, budget, monkeypatch):
    """Twelve budgets from 0.2 to 10, each about a third more than the one before: none is left out."""
    accuracy = {}

    def tried(_given, facts, _worlds, **_):
        accuracy[facts.epsilon] = 0.9 if facts.epsilon >= least else 0.5
        share = Estimate(accuracy[facts.epsilon], accuracy[facts.epsilon], accuracy[facts.epsilon])
        chance = Forecast(plan=Plan(epsilon=facts.epsilon), accuracy=share)
        return {"filter": cli_plan._Choice("--typed", chance)}

    class Plan(NamedTuple):
        epsilon: float
        n_answers: int = 1

    monkeypatch.setattr(cli_plan, "_choices", tried)
    code, out, err = plan("--rows", 900, "--classes", 2, "--target-accuracy", 0.9, "--json")
    if budget is None:
        assert (code, "reaches 0.500" in " ".join(err.split())) == (2, True)
        assert list(accuracy) == [10.0]
        return
    record = json.loads(out)
    assert (record["epsilon"], record["ways"][0]["epsilon"]) == (budget, budget)
    assert all(epsilon < budget for epsilon, share in accuracy.items() if share < 0.9)
    near = max((epsilon for epsilon in accuracy if epsilon < budget), default=budget / 1.5)
    assert budget / near <= 1.51  # so that it is the least: the next smaller one was tried


def test_where_no_way_has_hope_the_default_says_why():
    code, out, err = plan("--rows", 16, "--classes", 2, "--epsilon", 0.02, *FEW)
    assert (code, out) == (2, "")
    assert "noise would drown all their ballots" in err
    for wrong, words in (
        (("--epsilon", 1, "--proxy", "x.csv"), "--proxy FILE and --label COLUMN need each other"),
        (("--epsilon", 1, "--label", "y"), "--proxy FILE and --label COLUMN need each other"),
        ((), "type --epsilon or --target-accuracy, one of them"),
        (("--epsilon", 1, "--target-accuracy", 0.5), "type --epsilon or --target-accuracy, one of them"),
        (("--target-accuracy", 0), "--target-accuracy must be above 0 and below 1, got 0"),
        (("--target-accuracy", 1), "--target-accuracy must be above 0 and below 1, got 1"),
    ):
        code, out, err = plan("--rows", 16, "--classes", 2, *wrong)
        assert (code, out) == (2, "")
        assert words in " ".join(err.split())


def test_a_public_proxy_narrows_the_ranges(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + 0.4 * rng.normal(size=600) > 0).astype(int)
    path = tmp_path / "proxy.csv"
    lines = [",".join(f"{value:.4f}" for value in row) + f",{label}" for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *lines]))
    common = ("--rows", 20_000, "--classes", 2, "--epsilon", 1, *FEW, "--json")
    assumed, measured = (plan(*common, *proxy)[1] for proxy in ((), ("--proxy", path, "--label", "y")))
    blocks.hold(
        RECORD,
        "of 20000 rows like these",
        blocks.normal_form(measured.replace(str(path), "proxy.csv")),
        models=True,
    )
    ranges = [json.loads(record)["ways"][0]["accuracy"] for record in (measured, assumed)]
    widths = [accuracy["high"] - accuracy["low"] for accuracy in ranges]
    assert widths[0] < widths[1]
    code, _, err = plan("--rows", 20_000, "--classes", 3, "--epsilon", 1, "--proxy", path, "--label", "y")
    assert code == 1
    assert "holds 2 classes" in err


def test_the_best_of_real_rows_is_found_on_a_proxy(tmp_path):
    """A class inside a ring is no line of the columns, so that linear models of them say nothing."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(900, 2))
    ring = np.where((X**2).sum(axis=1) > 1.4, "out", "in")
    np.savez(tmp_path / "proxy.npz", X=X, y=ring)
    code, out, err = plan(
        *("--rows", 20_000, "--classes", 2, "--epsilon", 1, "--public-rows", 300),
        *("--proxy", tmp_path / "proxy.npz", "--label", "y", "--json"),
    )
    assert code == 0, err
    record = json.loads(out)
    best = next(way for way in record["ways"] if way["way"] == record["recommended"])
    assert best["accuracy"]["best"] > 0.85
