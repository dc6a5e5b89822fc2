"""ostraka audit canaries: a file of probabilities, a verdict, and an exit code."""

import json
from functools import partial

import numpy as np
import pytest

from ostraka.attacks import Canaries
from ostraka.audits import one_run_lower_bound
from tests.cli.terminal import typed

audited = partial(typed, "audit")


@pytest.fixture
def model(tmp_path):
    """A file of what a model says that knows some labels by heart, mostly right ones; and the scores."""

    def write(share: float = 0.5, *, n_decoys: int | None = None, n: int = 500, **changes):
        rng = np.random.default_rng(2)
        planted = Canaries.draw(np.arange(n) % 10, n_classes=10, n=n, rng=rng, n_decoys=n_decoys)
        learned = np.where(rng.random(n) < 0.95, planted.labels, planted.decoys[:, 0])
        probabilities = np.where(
            (rng.random(n) < share)[:, None], np.eye(10)[learned], rng.dirichlet(np.ones(10), n)
        )
        arrays = {
            "probabilities": probabilities,
            "trained": planted.labels,
            "decoys": planted.decoys,
            **changes,
        }
        np.savez(tmp_path / "model.npz", **{k: v for k, v in arrays.items() if v is not None})
        return tmp_path / "model.npz", planted.scores(probabilities)

    return write


@pytest.mark.parametrize(("claimed", "code", "verdict"), [(1, 4, "violated"), (6, 0, "consistent")])
def test_a_claim_gets_its_verdict_in_words_and_as_json(model, claimed, code, verdict):
    file, scores = model()
    got, out, err = audited("canaries", file, "--claimed-epsilon", claimed)
    assert (got, err) == (code, "")
    assert f"{verdict.upper()}  labels of 500 canaries, each one of 9" in out
    assert "500 canaries, any-dependence" in out
    got, out, err = audited("canaries", file, "--claimed-epsilon", claimed, "--json")
    record = json.loads(out)
    assert (got, err, record["verdict"]) == (code, "", verdict)
    want = one_run_lower_bound(scores, game="labels", delta=0.0).epsilon
    assert record["findings"][0]["measures"][0]["lower"] == want > 1


def test_delta_confidence_and_threshold_reach_the_bound_and_one_decoy_may_be_a_plain_row(model):
    file, scores = model(n_decoys=1)
    flat, _ = model(n_decoys=1, decoys=np.load(file)["decoys"][:, 0])
    options = ["--delta", "1e-4", "--confidence", "0.9", "--at", "0.99"]
    _, out, _ = audited("canaries", flat, "--claimed-epsilon", 3, *options, "--json")
    want = one_run_lower_bound(scores, game="labels", delta=1e-4, confidence=0.9, at=0.99)
    assert json.loads(out)["findings"][0]["measures"][0]["lower"] == want.epsilon


def test_few_canaries_cannot_tell(model):
    file, _ = model(n=20)
    assert audited("canaries", file, "--claimed-epsilon", 8)[0] == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"decoys": None}, "no array named decoys"),
        ({"decoys": None, "trained": None}, "no array named trained and none named decoys"),
        ({"probabilities": np.ones(500)}, "of shape (n_canaries, n_classes)"),
        ({"probabilities": np.full((500, 10), 3.0)}, "logits need a softmax"),
        ({"trained": np.zeros(500)}, "labels must be integers"),
        ({"trained": np.array([{}] * 500)}, "numpy.savez"),
        ({"probabilities": None, "trained": None, "decoys": None, "members": [1.0]}, "no array named others"),
    ],
)
def test_a_file_that_is_no_game_is_told_what_is_missing(model, changes, says):
    file, _ = model(**changes)
    code, out, err = audited("canaries", file, "--claimed-epsilon", 3)
    assert (code, out) == (1, "")
    assert says in " ".join(err.split())


def test_something_else_than_an_npz_file_is_refused(tmp_path):
    file = tmp_path / "model.npz"
    for content in (b"", b"not a zip", b"PK\x03\x04 cut off"):
        file.write_bytes(content)
        code, _, err = audited("canaries", file, "--claimed-epsilon", 3)
        assert code == 1
        assert "numpy.savez" in err
    np.save(tmp_path / "one.npy", np.zeros(3))
    code, _, err = audited("canaries", tmp_path / "one.npy", "--claimed-epsilon", 3)
    assert (code, "numpy.savez" in err) == (1, True)
    code, _, err = audited("canaries", tmp_path / "none.npz", "--claimed-epsilon", 3)
    assert (code, "No such file" in err) == (1, True)


def test_canaries_that_were_in_or_out_are_scores_of_members_and_others(tmp_path):
    rng = np.random.default_rng(3)
    included = rng.random(2000) < 0.5
    scores = 2 * included + rng.normal(size=2000)  # mu = 2
    np.savez(tmp_path / "scores.npz", members=scores[included], others=scores[~included])
    file = tmp_path / "scores.npz"
    lower = []
    for claim, code in (
        (["--claimed-mu", "1"], 4),
        (["--claimed-mu", "2"], 0),
        (["--claimed-epsilon", "5"], 0),
    ):
        got, out, _ = audited("canaries", file, *claim, "--delta", "1e-5", "--guesses", "800", "--json")
        finding = json.loads(out)["findings"][0]
        assert (got, finding["name"]) == (code, "inclusion of 2,000 canaries, each one of 2")
        lower.append((finding["method"], finding["measures"][0]["lower"]))
    assert [method for method, _ in lower] == ["gaussian", "gaussian", "steinke"]
    assert lower[1][1] > lower[2][1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "either --claimed-epsilon or --claimed-mu"),
        (["--claimed-epsilon", "3", "--claimed-mu", "1"], "either --claimed-epsilon or --claimed-mu"),
        (["--claimed-mu", "-1", "--delta", "1e-5"], "sensitivity must be"),
        (["--claimed-mu", "1", "--delta", "1e-5"], "two candidates"),
        (["--claimed-epsilon", "3", "--delta", "1"], "delta must be"),
        (["--claimed-epsilon", "3", "--at", "0"], "at must be"),
        (["--claimed-epsilon", "3", "--library"], "No such option"),
    ],
)
def test_wrong_usage_is_told(model, options, says):
    file, _ = model()
    code, out, err = audited("canaries", file, *options)
    assert (code, out) == (2, "")
    assert says in err
