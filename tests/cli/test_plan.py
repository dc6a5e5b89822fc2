"""ostraka plan: a proposal from public numbers, the command that carries it out, and nothing private read."""

import json
import re

import numpy as np
import pytest

import ostraka.cli
from ostraka import GNMax, Threshold


def plan(capfd, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        ostraka.cli.main(["plan", *map(str, arguments)])
    return left.value.code, *capfd.readouterr()


def test_the_proposal_fits_its_budget_and_says_what_to_type(capfd):
    code, out, err = plan(capfd, "--rows", 30_000, "--classes", 2, "--epsilon", 2)
    assert (code, err) == (0, "")
    typed = re.search(r"ostraka learn .*--sigma ([\d.]+).*--epsilon ([\d.]+)", out)
    assert typed
    assert float(typed[2]) <= 2.0001
    assert "forecasts" in out
    assert "nothing is known" in out


def test_json_holds_the_plan_in_full(capfd):
    code, out, err = plan(capfd, "--rows", 30_000, "--classes", 3, "--epsilon", 1, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    total = told["n_questions"] * eval(told["mechanism"], {"GNMax": GNMax}).curve()
    if told["screen"]:
        total = total + told["n_questions"] * eval(told["screen"], {"Threshold": Threshold}).curve()
    assert total.epsilon(delta=told["delta"]) == told["epsilon"] <= 1.0
    assert told["student"]["low"] <= told["student"]["best"] <= told["student"]["high"]


def test_a_target_is_met_or_refused(capfd):
    code, out, _ = plan(capfd, "--rows", 30_000, "--classes", 2, "--target-accuracy", 0.82, "--json")
    assert code == 0
    assert json.loads(out)["student"]["best"] >= 0.815
    code, _, err = plan(capfd, "--rows", 300, "--classes", 2, "--target-accuracy", 0.99)
    assert code == 2
    assert "no epsilon up to 10" in err


def test_a_public_proxy_narrows_the_ranges(tmp_path, capfd):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + 0.4 * rng.normal(size=600) > 0).astype(int)
    path = tmp_path / "proxy.csv"
    lines = [",".join(f"{value:.4f}" for value in row) + f",{label}" for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *lines]))
    common = ("--rows", 20_000, "--classes", 2, "--epsilon", 1, "--json")
    blind = json.loads(plan(capfd, *common)[1])
    told = json.loads(plan(capfd, *common, "--proxy", path, "--label", "y")[1])
    assert "resamplings" in told["basis"]
    width = [each["student"]["high"] - each["student"]["low"] for each in (told, blind)]
    assert width[0] < width[1]
    code, _, err = plan(
        capfd, "--rows", 20_000, "--classes", 3, "--epsilon", 1, "--proxy", path, "--label", "y"
    )
    assert code == 1
    assert "holds 2 classes" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rows", "30000", "--classes", "2"], "one of them"),
        (["--rows", "0", "--classes", "2", "--epsilon", "1"], "--rows"),
        (["--rows", "30000", "--classes", "1", "--epsilon", "1"], "--classes"),
        (["--rows", "30000", "--classes", "2", "--epsilon", "1", "--delta", "0.5"], "delta must be below"),
        (["--rows", "30000", "--classes", "2", "--epsilon", "1", "--label", "y"], "--proxy"),
        (["--classes", "2", "--epsilon", "1"], "--rows"),
    ],
)
def test_what_is_typed_wrongly_is_said(options, says, capfd):
    code, out, err = plan(capfd, *options)
    assert (code, out) == (2, "")
    assert says in err
