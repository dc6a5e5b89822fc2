"""ostraka attack: from a log to votes and guesses, and a sentence for every log that cannot be one."""

import csv
import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ostraka import GNMax
from ostraka.attacks import recover_votes
from tests.cli.terminal import typed

NOISY = ("--sigma", "40")
SPLIT, CLEAR = np.array([60, 30, 10]), np.array([98, 1, 1])


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "answers.csv"
    write(path, [(name, label) for name, votes in asked().items() for label in votes])
    return path


def asked():
    """Two questions, each 500 times, by a seeded mechanism."""
    rng = np.random.default_rng(3)
    mechanism = GNMax(sigma=40.0)
    labels = {}
    for name, votes in {"split": SPLIT, "clear": CLEAR}.items():
        q = np.exp(mechanism.log_outcomes(votes[None])[0])
        labels[name] = rng.choice(3, size=500, p=q / q.sum()).tolist()
    return labels


def write(path, rows, header=("query", "label")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


attack = partial(typed, "attack")


def test_votes_are_those_of_the_library(log):
    code, out, _ = attack("votes", log, "--teachers", 100, *NOISY, "--json")
    record = json.loads(out)
    assert code == 0
    counts = np.bincount(asked()["split"], minlength=3)
    want = recover_votes(counts, n_teachers=100, mechanism=GNMax(sigma=40.0))
    assert record["classes"] == ["0", "1", "2"]
    assert [query["query"] for query in record["queries"]] == ["split", "clear"]
    assert record["queries"][0]["answers"] == counts.tolist()
    np.testing.assert_array_equal(record["queries"][0]["mean"], want.mean)


def test_the_table_has_a_line_a_question_and_without_teachers_votes_are_relative(log):
    code, out, err = attack("votes", log, "--teachers", 100, *NOISY)
    assert code == 0
    assert "split" in out
    assert "95 % interval, by posterior" in out
    assert "questions: 2" in err
    _, out, err = attack("votes", log, *NOISY, "--method", "maximum-likelihood")
    assert "relative to the mean count" in out
    assert "do not tell its level" in err


def test_the_papers_method_prints_no_intervals(log):
    _, out, _ = attack("votes", log, "--teachers", 100, *NOISY, "--method", "wang2022")
    assert "(" not in out.splitlines()[1]
    _, out, _ = attack("votes", log, "--teachers", 100, *NOISY, "--method", "wang2022", "--json")
    assert json.loads(out)["queries"][0]["lower"] == [None] * 3


def test_parquet_laplace_and_named_classes(tmp_path):
    path = tmp_path / "answers.parquet"
    parquet.write_table(pa.table({"q": [1, 1, 1], "said": ["no", "yes", "no"]}), path)
    options = ("--query", "q", "--label", "said", "--classes", "no,yes,never", "--mechanism", "lnmax")
    code, out, _ = attack("votes", path, *options, "--scale", 5, "--teachers", 20, "--json")
    assert code == 0
    assert json.loads(out)["queries"][0]["answers"] == [2, 1, 0]


def test_no_answer_counts_where_there_is_a_screen(tmp_path):
    path = write(tmp_path / "a.csv", [("q", 0), ("q", 1), ("q", -1), ("q", "abstain")])
    code, out, _ = attack(
        "votes", path, "--teachers", 100, *NOISY, "--screen", 60, 20, "--classes", 2, "--json"
    )
    assert code == 0
    assert json.loads(out)["queries"][0]["answers"] == [1, 1, 2]


def test_attributes_are_scored(log, tmp_path):
    members = write(tmp_path / "m.csv", [("split", 1), ("clear", 0), ("else", 0)], ("query", "member"))
    options = ("--members", members, "--teachers", 100, *NOISY)
    code, out, _ = attack("attributes", log, *options, "--json")
    record = json.loads(out)
    assert code == 0
    assert record["precision_balanced"] == record["recall"] == 1.0
    assert record["called_member"] == {"split": True, "clear": False}
    code, out, _ = attack("attributes", log, *options)
    assert "with as many members as others: 100.0%" in out
    _, out, _ = attack("attributes", log, *options, "--at", "0.01")
    assert "nobody was called" in out


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([("q", -1), ("q", 0)], (), "data row 1 has no answer, but a mechanism without a screen"),
        ([("q", ""), ("q", 0)], (), "'label' is empty in data row 1: write -1"),
        ([("", 1), ("q", 0)], (), "'query' is empty in data row 1"),
        ([("q", 0), ("q", 0)], (), "from 2 to 1000 classes, got 1"),
        ([("q", 0), ("q", 7)], ("--classes", "3"), "data row 2 has a label that is none of the 3"),
        ([("q", "a"), ("q", "b")], ("--classes", "3"), "names 2 of 3 classes"),
        ([("q", "a"), ("q", "b")], ("--classes", "a,a"), "different names"),
        ([("q", 0), ("q", 2000)], (), "from 2 to 1000 classes"),
        ([("q", 0), ("q", 1)], ("--label", "y"), "no column 'y' (--label)"),
    ],
)
def test_a_log_that_cannot_be_one_is_refused_in_a_sentence(tmp_path, rows, options, words):
    code, out, err = attack("votes", write(tmp_path / "a.csv", rows), *NOISY, *options)
    assert (code, out) == (1, "")
    assert words in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "needs --sigma VOTES"),
        (("--sigma", "0"), "--sigma: sigma must be finite and > 0"),
        (("--mechanism", "lnmax", "--sigma", "3"), "needs --scale VOTES"),
        (("--mechanism", "lnmax", "--scale", "3", "--screen", "5", "2"), "takes no --screen"),
        (("--mechanism", "lnmax", "--scale", "-3"), "--scale: scale must be"),
        ((*NOISY, "--screen", "5", "-2"), "--screen: sigma must be"),
        ((*NOISY, "--teachers", "0"), "teachers"),
    ],
)
def test_what_is_typed_wrongly_is_a_usage_error(log, options, words):
    code, _, err = attack("votes", log, *options)
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("split", 1)], "says nothing about 1 of 2 queries"),
        ([("split", 1), ("clear", "perhaps")], "must hold 1 or 0, not so in data row 2"),
        ([("split", 1), ("split", 0)], "data row 2 contradicts"),
        ([("split", 1), ("clear", 1)], "both members of the group and others"),
    ],
)
def test_a_table_of_members_that_cannot_be_one_is_refused(log, tmp_path, rows, words):
    members = write(tmp_path / "m.csv", rows, ("query", "member"))
    code, _, err = attack("attributes", log, "--members", members, "--teachers", 100, *NOISY)
    assert code == 1
    assert words in err


def test_a_limit_of_agreement_is_a_share(log, tmp_path):
    code, _, err = attack("attributes", log, "--members", log, "--teachers", 100, *NOISY, "--at", "75")
    assert code == 2
    assert "--at must be" in err
