"""Evolution of texts: documents vote for lines of a model that reads none of them."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare

from ostraka import Budget, Ledger
from ostraka.report.page import at_most, of_table
from ostraka.text import models
from ostraka.text.evolution import continued, evolution, features
from ostraka.text.models import END, Token
from ostraka.text.writer import hashed_words
from tests.cli.terminal import typed
from tests.text.conftest import Asked

DOCUMENTS = ["the zebra is warm"] * 400
SETTINGS = {"n_texts": 12, "n_rounds": 6, "n_tokens": 4, "epsilon": 8.0}


def test_lines_come_near_to_the_documents_and_the_model_reads_none_of_them():
    model = Asked()
    population = evolution(model, prompt="A line:", **SETTINGS)
    near = []
    for documents in (DOCUMENTS, ["dull quartz"] * 400):
        lines = population.fit(features(documents), rng=np.random.default_rng(0)).sample(50, random_state=0)
        near.append(float(np.mean(features(lines) @ features(DOCUMENTS[:1])[0])))
    assert near[0] > near[1] + 0.3
    assert {prompt for prompts, _ in model.calls for prompt in prompts} == {"A line:"}
    before = len(model.calls)
    again = evolution(model, prompt="A line:", **SETTINGS)
    assert (
        again.candidates == population.candidates
    ).all()  # nothing of the lines is drawn from private noise
    assert len(model.calls) > before


def test_words_of_a_line_are_drawn_by_the_law_of_the_model():
    """A chi-squared test of level 1e-6; logs that are not tempered, or not exponents, fail it."""
    law = {Token(b"zebra"): np.log(0.6), Token(b"quartz"): np.log(0.3), Token(b"tea"): np.log(0.1)}
    model = SimpleNamespace(next_tokens=lambda *_, **__: [law])
    rng = np.random.default_rng(2)
    lines = [continued(model, "A word:", [], n_tokens=1, temperature=2.0, rng=rng) for _ in range(4000)]
    tempered = np.sqrt([0.6, 0.3, 0.1]) / np.sqrt([0.6, 0.3, 0.1]).sum()
    counts = [lines.count(word) for word in ("zebra", "quartz", "tea")]
    assert chisquare(counts, 4000 * tempered).pvalue > 1e-6


def test_a_line_has_so_many_tokens_ends_where_it_says_and_does_not_begin_with_its_end():
    def line(*laws, tokens=(), n_tokens=4):
        asked = []
        model = SimpleNamespace(
            next_tokens=lambda prompts, line, shown: (
                asked.append((prompts, list(line), shown)) or [laws[len(line)]]
            )
        )
        settings = {"n_tokens": n_tokens, "temperature": 1.0, "rng": np.random.default_rng(0)}
        return continued(model, "A:", list(tokens), **settings), asked

    a, b, ends = Token(b" a"), Token(b" b"), Token(b"c\r")
    for end in (END, ends, Token(b"\nc")):
        text, asked = line({end: -0.01, a: -9.0}, {b: 0.0}, {end: 0.0})
        assert text == "a b"
        assert asked == [(["A:"], [], 40), (["A:"], [a], 40), (["A:"], [a, b], 40)]
    assert line({END: 0.0, ends: -1.0}) == ("", [(["A:"], [], 40)])
    assert line(*[{a: 0.0}] * 9)[0] == "a a a a"
    assert line(*[{a: 0.0}] * 9, tokens=[b, b], n_tokens=3)[0] == "b b a"
    with pytest.raises(ValueError, match=r"does not answer the public prompt 'A:': type another"):
        line(None)


def test_a_winner_is_written_anew_from_a_drawn_place_on():
    model = Asked()
    population = evolution(model, prompt="A line:", **SETTINGS | {"n_tokens": 3, "temperature": 0.7})
    rng, same = (np.random.default_rng(5) for _ in range(2))
    winners, want = ["the plot is dull", "", "zebra", "acting was fine"] * 5, []
    for winner in winners:
        tokens = model.tokens(winner)[:3]
        begin = tokens[: int(same.integers(len(tokens)))] if tokens else []
        want.append(continued(model, "A line:", begin, n_tokens=3, temperature=0.7, rng=same))
    assert population.vary(winners, rng).tolist() == want
    assert any(new.startswith("the plot") for new in want)
    first = [
        continued(model, "A line:", [], n_tokens=3, temperature=0.7, rng=rng)
        for rng in [np.random.default_rng(0)]
        for _ in range(12)
    ]
    assert population.candidates.tolist() == first
    assert json.loads(population.name) == [model.name, "A line:", 3, 0.7]
    settings = ("n_rounds", "epsilon", "delta", "random_state")
    assert [getattr(population, name) for name in settings] == [6, 8.0, 1e-5, 0]


def test_features_of_a_document_are_its_own(monkeypatch):
    """Planted: they are scaled by the longest document."""
    texts = ["warm plot", "the the the the acting is dull", "", "warm", "tea tea"]
    together = features(iter(texts))
    assert (together.dtype, together.shape) == (np.float32, (5, 4096))
    monkeypatch.setattr("ostraka.text.evolution._AT_ONCE", 2)
    np.testing.assert_array_equal(features(texts), together)
    for text, row in zip(texts, together, strict=True):
        counts = hashed_words(text)
        np.testing.assert_allclose(row, counts / max(np.linalg.norm(counts), 1.0), rtol=1e-6)


def test_no_document_votes_for_a_line_without_words():
    """Its features are 0, which is nearer to a document than a line with other words."""
    population = evolution(Asked(), **SETTINGS)
    lines = np.array(["", "dull quartz"])
    distances = np.linalg.norm(population.embed(lines) - features(DOCUMENTS[:1]), axis=1)
    assert distances[1] < distances[0]


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (Asked(refuses="A text"), {}, "does not answer the public prompt"),
        (Asked(), {"n_tokens": 0}, "n_tokens must"),
        (Asked(), {"n_texts": 0}, "n_texts must"),
        (Asked(), {"n_rounds": 0}, "n_rounds must"),
        (Asked(), {"temperature": 0.0}, "temperature must"),
        (Asked(), {"epsilon": 1e-9}, "epsilon must be larger"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(model, settings, words):
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        with pytest.raises(ValueError, match=words):
            evolution(model, **SETTINGS | settings).fit(features(DOCUMENTS), ledger=ledger)
        assert ledger.epsilon() == 0


def test_the_command_writes_texts_with_their_votes_and_charges_once(tmp_path, monkeypatch):
    made, opened = [], []
    monkeypatch.setattr(
        models, "open_model", lambda name, n_threads: opened.append((name, n_threads)) or Asked()
    )
    monkeypatch.setattr(
        "ostraka.text.evolution.evolution",
        lambda model, **settings: made.append(settings) or evolution(model, **settings),
    )
    table, out = tmp_path / "notes.csv", tmp_path / "run"
    table.write_text("body,who\n" + "".join(f"{text},{k // 2}\n" for k, text in enumerate(DOCUMENTS)))
    words = ["evolve", table, "--text", "body", "--model", "tiny", "--person", "who", "--out", out]
    words += ["--texts", "8", "--rounds", "2", "--tokens", "4", "--epsilon", "4"]
    record = json.loads(typed(*words, "--json").out)
    assert (record["n_texts"], record["unit"]) == (8, "person")
    with (out / "texts.csv").open() as file:
        votes = [int(row["votes"]) for row in csv.DictReader(file)]
    assert votes == sorted(votes, reverse=True)
    assert sum(votes) == pytest.approx(200, abs=100)  # persons, with noise
    with Ledger(out / "ledger.sqlite") as ledger:
        assert ledger.epsilon() == pytest.approx(record["epsilon"], rel=1e-6)
    for options, code, refusal in (
        ([], 2, "holds a finished run"),
        (["--out", tmp_path / "b", "--text", "nobody"], 1, "no column 'nobody' (--text)"),
        (["--out", tmp_path / "b", "--person", "nobody"], 1, "no column 'nobody' (--person)"),
        (["--out", tmp_path / "b", "--delta", "0.5"], 2, "--delta: delta must be below 1 /"),
    ):
        got, _, err = typed(*words, *options)
        assert (got, refusal in " ".join(err.split())) == (code, True)
    assert not (tmp_path / "b").exists()
    usual = {"n_texts": 8, "n_rounds": 2, "n_tokens": 4, "epsilon": 4.0}
    assert made == [usual | {"prompt": "A text:", "temperature": 1.0, "delta": 1e-5, "random_state": 0}]
    how = ["--ask", "A line:", "--temperature", "1.5", "--delta", "1e-7", "--seed", "3", "--threads", "2"]
    words = ["evolve", table, "--text", "body", "--model", "tiny", *words[10:], *how, "--out", tmp_path / "b"]
    lines = typed(*words).out.splitlines()
    assert made[1:] == [usual | {"prompt": "A line:", "temperature": 1.5, "delta": 1e-7, "random_state": 3}]
    assert opened == [("tiny", 1), ("tiny", 2)]
    upper = json.loads((tmp_path / "b" / "result.json").read_text())["upper"]
    assert lines == [
        f"8 texts with their noisy votes: {tmp_path / 'b' / 'texts.csv'}",
        f"epsilon at most {at_most(upper['epsilon'])} at delta 1e-07, for one document",
        f"all releases from this table: {of_table(upper['table'])}",
    ]
    with (tmp_path / "b" / "texts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["text", "votes"]
    votes = [(int(row["votes"]), row["text"]) for row in rows]
    assert votes == sorted(votes, reverse=True)
    assert sum(n_votes for n_votes, _ in votes) == pytest.approx(400, abs=100)
    for where in (tmp_path, tmp_path / "nowhere.csv"):
        got, _, err = typed("evolve", where, *words[2:], "--out", tmp_path / "c")
        assert (got, f"{where} is not a file" in "".join(err.split("\n"))) == (2, True)
