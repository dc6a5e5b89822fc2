"""``ostraka learn`` whose teachers are prompts, answered by a small real classifier behind an endpoint."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest

from ostraka.core.imports import skops_io
from ostraka.text.models import END, Token, greedy
from tests.cli.learning import charges, learn
from tests.voters.reviews import BAD, GOOD, PUBLIC


def reviews(n: int, *, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    good = rng.random(n) < 0.5
    words = [rng.permutation(GOOD if kind else BAD)[:4].tolist() for kind in good]
    return pd.DataFrame(
        {
            "review": [f"a {', '.join(chosen)} film" for chosen in words],
            "minutes": rng.integers(60, 200, n),
            "mood": np.where(good, "good", "bad"),
        }
    )


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reviews(60, seed=0).to_csv("private.csv", index=False)
    reviews(60, seed=1).to_csv("public.csv", index=False)
    language = importlib.import_module("bench._language")
    matcher = language.Matcher(PUBLIC, (["good"] * 10 + ["bad"] * 10) * 2)
    with language.LocalEndpoint(matcher.answer) as server:
        yield server


def prompts(server, *options: object) -> tuple[int, str, str]:
    size = ("--teachers", "6", "--answers", "4", "--epsilon", "30")
    model = ("--teacher", "prompts", "--model", f"{server.url}#matcher")
    return learn("private.csv", "--label", "mood", "--public", "public.csv", *model, *size, *options)


def test_prompts_vote_and_the_student_learns_from_the_columns(endpoint, tmp_path):
    code, _, err = prompts(endpoint)
    assert code in {0, 4}, err
    assert "reads private rows; epsilon says nothing about that" in err
    assert "4 of 48 public rows" in err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["settings"]["teacher"] == "Prompts(model='matcher', n_shots=3)"
    assert record["utility"]["answered"] == 4
    assert len(charges(tmp_path)) == 1
    assert "6 prompts show at most 3 private rows each." in record["upper"]["not_protected"]
    assert skops_io().load("run/student.skops").predict(reviews(5, seed=2)).shape == (5,)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--shots", "3"), "--shots and --key-env are for --teacher prompts"),
        (("--teacher", "prompts"), "--teacher prompts and --model NAME need each other"),
        (("--model", "smollm2"), "--teacher prompts and --model NAME need each other"),
        (("--teacher", "prompts", "--model", "none.gguf"), "a GGUF file or a URL, got 'none.gguf'"),
        (("--teacher", "prompts", "--model", "http://models.example/v1"), "url must be https"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_spent(tmp_path, monkeypatch, typed, words):
    monkeypatch.chdir(tmp_path)
    reviews(60, seed=0).to_csv("private.csv", index=False)
    code, _, err = learn("private.csv", "--label", "mood", "--holdout", "0.3", *typed)
    assert (code, words in err, (tmp_path / "run").exists()) == (2, True, False), err


def test_greedy_answers_follow_the_likeliest_tokens_of_each_prompt():
    class Parrot:
        name = "parrot"

        def next_tokens(self, prompts, tokens, *, shown):
            assert len(prompts) == shown == 1
            if prompts == ["refused"]:
                return [None]
            continuation = prompts[0].encode()[len(tokens) : len(tokens) + 1]
            return [{Token(continuation) if continuation else END: -0.1, Token(b"?"): -3.0}]

    assert greedy(Parrot())(["good", "a", "refused", "longer"]) == ["good", "a", "", "long"]
