"""ostraka audit: a sentence, a table or JSON, and an exit code for CI."""

import json
import random
from functools import partial

import pytest

from ostraka.audit import library
from ostraka.audit.cli import _rounded
from tests.cli.terminal import typed

VOTES = ["--votes", "14,12,10,8,6", "--neighbour", "13,13,10,8,6"]
CLAIM = ["--claimed-epsilon", "3", "--delta", "1e-5"]

pytestmark = pytest.mark.usefixtures("same_draws")  # an audit errs as often as its confidence says


ostraka_audit = partial(typed, "audit")


@pytest.fixture
def answers(tmp_path):
    """Two files of answers, and how often they say "cat"."""

    def write(with_target: float, without: float, n: int = 2000) -> list:
        rng, files = random.Random(1), []
        for name, rate in (("a.csv", with_target), ("b.csv", without)):
            labels = rng.choices(["cat", "dog"], [rate, 1 - rate], k=n)
            (tmp_path / name).write_text("answer\n" + "\n".join(labels) + "\n")
            files.append(tmp_path / name)
        return ["answers", files[0], files[1]]

    return write


def test_a_mechanism_shows_upper_exact_and_lower():
    code, out, err = ostraka_audit(
        "mechanism", "gnmax", "--sigma", "2", *VOTES, "--trials", "4e5", "--confidence", "0.9999"
    )
    assert (code, err) == (0, "")
    assert "CONSISTENT  GNMax(sigma=2.0)" in out
    assert "at least (seen)  exactly  at most (promised)" in out
    assert "400,000 trials a world" in out


def test_json_holds_the_same():
    code, out, _ = ostraka_audit("mechanism", "lnmax", "--scale", "2", *VOTES, "--trials", "1000", "--json")
    record = json.loads(out)
    assert code == 5
    assert record["verdict"] == record["findings"][0]["verdict"] == "inconclusive"
    assert record["findings"][0]["trials"] == 1000


@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        ((0.99, 0.02, 2000), 4, "The claim is false"),
        ((0.6, 0.4, 2000), 0, "That is no proof"),
        ((0.6, 0.4, 30), 5, "Take more"),
    ],
)
def test_files_of_answers_are_held_to_a_claim(answers, claim, code, words):
    got, out, _ = ostraka_audit(*answers(*claim), *CLAIM)
    assert (got, words in out) == (code, True)


def test_the_library_is_audited_and_the_defects_counted(monkeypatch):
    builds = {"half the noise": library.DEFECTS["half the noise"], "no defect at all": library.System()}
    monkeypatch.setattr(library, "DEFECTS", builds)
    code, out, _ = ostraka_audit("library", "--planted", "--trials", "2e5")
    assert code == 5, "an audit that misses a defect proves nothing"
    assert "CONSISTENT  budget" in out
    assert "MISSED  no defect at all" in out
    assert "mutation score: 1 of 2 planted defects detected" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--library"], "No such option '--library'"),
        (["librari"], "No such command"),
        (["mechanism", "gnmax", *VOTES], "also needs --sigma"),
        (["mechanism", "threshold", "--sigma", "2", *VOTES], "also needs --at"),
        (["mechanism", "gmax", *VOTES], "must be one of gnmax, lnmax, threshold, confident"),
        (["mechanism", "gnmax", "--sigma", "-2", *VOTES], "sigma must be"),
        (["mechanism", "gnmax", "--sigma", "2", "--votes", "14,12"], "Missing option '--neighbour'"),
        (["mechanism", "gnmax", "--sigma", "2", "--votes", "14;12", "--neighbour", "13,13"], "commas"),
        (["mechanism", "gnmax", "--sigma", "2", *VOTES[:2], *VOTES[2:3], "9,9,9,9,9"], "one ballot moved"),
        (["mechanism", "gnmax", "--sigma", "2", *VOTES, "--trials", "1.5"], "whole number"),
        (["mechanism", "gnmax", "--sigma", "2", *VOTES, "--method", "3-cut"], "--method must be"),
        (["mechanism", "confident", "--sigma", "2", *VOTES], "--screen AT SIGMA"),
        (["answers", "a.csv"], "Missing argument 'WITHOUT'"),
        (["answers", "a.csv", "b.csv"], "Missing option '--claimed-epsilon'"),
    ],
)
def test_what_is_typed_wrongly_is_said(arguments, words):
    code, out, err = ostraka_audit(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_file_of_several_columns_needs_a_name(tmp_path, answers):
    files = answers(0.9, 0.1)
    files[1].write_text("query,answer\n" + "1,cat\n2,dog\n" * 300)
    assert "say --column" in ostraka_audit(*files, *CLAIM)[2]
    assert ostraka_audit(*files, *CLAIM, "--column", "answer")[0] in {0, 4, 5}


def test_files_with_one_answer_only_tell_nothing(answers):
    code, _, err = ostraka_audit(*answers(1.0, 1.0), *CLAIM)
    assert code == 1
    assert "one and the same answer" in err


def test_until_stops_early_and_still_shows_what_is_exact():
    votes = ["--votes", "5,4", "--neighbour", "4,5"]
    code, out, err = ostraka_audit("mechanism", "gnmax", "--sigma", "2", *votes, "--until", "0.8", "--json")
    record = json.loads(out)["findings"][0]
    assert code == 0
    assert "answers in each world" in err
    assert record["trials"] < 10**6
    assert record["method"] == "2-cut-anytime"
    assert max(m["lower"] / m["upper"] for m in record["measures"]) >= 0.8
    assert all(m["lower"] <= m["exact"] <= m["upper"] for m in record["measures"])


@pytest.mark.parametrize("until", [[], ["--until", "0.7"]], ids=["once", "until"])
def test_an_epsilon_is_an_illustration_and_says_so(until):
    votes = ["--votes", "5,4", "--neighbour", "4,5", "--delta", "1e-5", "--trials", "4e5", *until]
    code, out, _ = ostraka_audit("mechanism", "gnmax", "--sigma", "2", *votes, "--json")
    line = json.loads(out)["findings"][0]["measures"][-1]
    assert code == 0
    assert line["what"] == "epsilon at delta 1e-05 (illustration, no lower bound)"
    assert 0 < line["lower"] <= line["exact"]


def test_a_group_of_units_counts_for_one(answers):
    lower = []
    for group in (1, 3):
        _, out, _ = ostraka_audit(*answers(0.99, 0.02), *CLAIM, "--group", group, "--json")
        lower.append(json.loads(out)["findings"][0]["measures"][0]["lower"])
    assert lower[1] == pytest.approx(lower[0] / 3, rel=1e-3)


def test_a_figure_is_drawn_on_request_if_there_is_something_to_draw(tmp_path, monkeypatch):
    command = ["mechanism", "gnmax", "--sigma", "2", *VOTES, "--trials", "1000", "--figure"]
    assert ostraka_audit(*command, tmp_path / "a.svg")[0] == 5
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    monkeypatch.setattr("ostraka.plots.figures", lambda _: ())
    code, _, err = ostraka_audit(*command, tmp_path / "b.svg")
    assert (code, "nothing to draw" in err) == (1, True)


def test_a_screen_and_an_argmax_are_one_mechanism():
    settings = ["confident", "--sigma", "2", "--screen", "13", "3", *VOTES, "--trials", "2e5"]
    code, out, _ = ostraka_audit("mechanism", *settings)
    assert code in {0, 5}
    assert "Confident(screen=Threshold(" in out


def test_every_subcommand_has_a_page_of_its_own():
    code, out, _ = ostraka_audit("--help")
    assert code == 0
    for name in ("mechanism", "answers", "deployment", "adversaries", "canaries", "library"):
        assert name in out
        code, page, _ = ostraka_audit(name, "--help")
        assert (code, "--json" in page) == (0, True)
        assert page.count("  --") <= 18


@pytest.fixture
def rows(tmp_path):
    rng = random.Random(3)
    lines = [f"{rng.gauss(side, 1.5):.3f},{rng.gauss(0, 1):.3f},{side}" for side in (0, 1) * 100]
    (tmp_path / "private.csv").write_text("\n".join(["a,b,side", *lines]) + "\n")
    return ["adversaries", tmp_path / "private.csv", "--label", "side"]


@pytest.mark.parametrize("sizes", [(6, 2, 2), pytest.param((10, 4, 3), marks=pytest.mark.slow)])
def test_every_adversary_is_played_against_both_kinds_of_teachers(rows, tmp_path, sizes):
    names = ("--teachers", "--trainings", "--questions")
    options = [word for pair in zip(names, sizes, strict=True) for word in pair]
    options += ["--teacher", "neighbour", "--sigma", "2"]
    code, out, err = ostraka_audit(
        *rows, *options, "--delta", "1e-5", "--json", "--figure", tmp_path / "a.svg"
    )
    assert code in {0, 5}, err
    record = json.loads(out)
    assert [finding["name"] for finding in record["findings"]] == [
        f"{system} × {adversary}"
        for system in ("PATE", "CaPC")
        for adversary in ("Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ", "Pois-PairQ")
    ]
    for found in record["findings"]:
        dealt_anew = found["name"].startswith("PATE")
        assert all(("anew_lower" in measure) == dealt_anew for measure in found["measures"])
    poisoned = record["findings"][5]["measures"]
    assert all(m["lower"] <= m["upper"] for m in poisoned)
    assert poisoned[0]["lower"] > 0 or sizes[0] == 6
    assert "illustration" in poisoned[-1]["what"]
    assert "adversaries played: 8" in err
    assert (tmp_path / "a.svg").exists()


def test_adversaries_need_rows_noise_and_a_label(rows):
    for options in (["--sigma", "2", "--teachers", "0"], ["--sigma", "2", "--teachers", "500"], []):
        assert ostraka_audit(*rows, *options)[0] == 2, options
    code, _, err = ostraka_audit(*rows[:2], "--sigma", "2")
    assert (code, "--label" in err) == (2, True)


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (1234.56789, "1234.5678", "1234.5679"),
        (0.123456, "0.1234", "0.1235"),
        (0.0000123, "0.000012", "0.000013"),
        (0.0, "0.0000", "0.0000"),
        (float("inf"), "inf", "inf"),
    ],
)
def test_a_bound_is_printed_on_its_safe_side(value, down, up):
    assert (_rounded(value, "down"), _rounded(value, "up")) == (down, up)
