"""Evolution of texts: documents vote for lines of a model that reads none of them."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare

from ostraka import Budget, Ledger
from ostraka.text import models
from ostraka.text.evolution import continued, evolution, features
from ostraka.text.models import Token
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


def test_features_of_a_document_are_its_own():
    """Planted: they are scaled by the longest document."""
    alone = features(["warm plot"])[0]
    assert (features(["warm plot", "the the the the acting is dull"])[0] == alone).all()
    assert np.linalg.norm(alone) == pytest.approx(1.0)
    assert not features([""]).any()


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
    monkeypatch.setattr(models, "open_model", lambda name, n_threads: Asked())
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
