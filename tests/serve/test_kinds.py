"""Every kind of voter behind HTTP, after it was written to a folder and read again."""

import contextlib
import hashlib
import json
import threading

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB

from bench._language import LocalEndpoint
from ostraka import Budget, GNMax, TeacherEnsemble, Threshold
from ostraka.cli import main
from ostraka.consistent import Consistent
from ostraka.mechanisms import Subsampled
from ostraka.voters import (
    Agreement,
    Endpoint,
    Identity,
    NeighbourVoter,
    Party,
    PartyEnsemble,
    PartyServer,
    PromptEnsemble,
    SavedTeachers,
    partition,
)
from tests.serve.conftest import CLASSES, COLUMNS, PEPPER, deploy, rows, serving

X = rows(600, seed=0)
Y = np.array(CLASSES)[X.argmax(axis=1)]
ASKED = rows(6, seed=5)
NUMBERS = {"columns": COLUMNS, "numeric": (True,) * 3, "grid": Consistent.grid_of(X)}
TEXT = {"columns": ("text",), "numeric": (False,), "grid": {}}
GENEROUS = Budget(epsilon=500.0, delta=1e-6)
RICH = {"alice": 200.0, "bob": 200.0}


def kept(tmp_path, voter, mechanism, **how) -> SavedTeachers:
    """The voter after it was written and read."""
    SavedTeachers(ensemble=voter, mechanism=mechanism, **how).save(tmp_path / "teachers")
    return SavedTeachers.load(tmp_path / "teachers")


def neighbours(**how) -> NeighbourVoter:
    return NeighbourVoter(k=20, **{"sampling_rate": 0.5, **how}).fit(X, Y, classes=CLASSES)


def answers(service, questions, *, key="q", who="alice") -> list[dict]:
    """Labels with receipts, one request a question."""
    replies = [service.label(question, key=f"{key}{n}", who=who) for n, question in enumerate(questions)]
    assert [reply.status_code for reply in replies] == [200] * len(replies), replies[0].text
    return [reply.json() for reply in replies]


def labels(replies) -> list:
    return [reply["label"] for reply in replies]


def test_networks_are_served_from_plain_arrays(tmp_path):
    pytest.importorskip("torch")
    from ostraka.networks import TorchClassifier

    network = TorchClassifier("perceptron", epochs=8, batch_size=16, learning_rate=0.02, n_threads=1)
    manifest = partition(len(X), n_teachers=12, key=b"a key of thirty-two bytes, or so")
    before = TeacherEnsemble(network, n_teachers=12, n_jobs=1, random_state=5)
    before.fit(X, Y, classes=CLASSES, manifest=manifest)
    saved = kept(tmp_path, before, GNMax(sigma=1.0), **NUMBERS)
    assert (saved.kind, saved.n_ballots) == ("networks", 12)
    np.testing.assert_array_equal(saved.ensemble.predictions(X), before.predictions(X))
    assert {path.suffix for path in (tmp_path / "teachers").iterdir()} == {".npz", ".json"}
    with serving(deploy(tmp_path, saved, budget=GENEROUS, clients=RICH)) as service:
        replies = answers(service, ASKED.tolist())
        assert labels(replies) == labels(answers(service, ASKED.tolist(), key="again", who="bob"))
        assert len(service.entries()) == 12
    assert np.mean(np.array(labels(replies)) == np.array(CLASSES)[ASKED.argmax(axis=1)]) > 0.5


def test_networks_of_a_module_of_ones_own_need_it_to_be_read(tmp_path):
    torch = pytest.importorskip("torch")
    from ostraka.networks import TorchClassifier

    network = TorchClassifier(torch.nn.Linear(3, 3), epochs=2, batch_size=16, n_threads=1)
    before = TeacherEnsemble(network, n_teachers=4, n_jobs=1, random_state=5).fit(X, Y, classes=CLASSES)
    SavedTeachers(ensemble=before, mechanism=GNMax(sigma=1.0), **NUMBERS).save(tmp_path / "teachers")
    with pytest.raises(ValueError, match=r"network=TorchClassifier\(module\)"):
        SavedTeachers.load(tmp_path / "teachers")
    again = SavedTeachers.load(tmp_path / "teachers", network=network)
    np.testing.assert_array_equal(again.ensemble.predictions(X), before.predictions(X))
    other = TorchClassifier(torch.nn.Linear(3, 3, bias=False), batch_size=16, n_threads=1)
    with pytest.raises(ValueError, match="do not fit the network"):
        SavedTeachers.load(tmp_path / "teachers", network=other)


@pytest.mark.parametrize("transformer", [None, PCA(2).fit(X)], ids=["plain", "transformed"])
def test_nearest_rows_of_a_sample_are_served_at_its_price(tmp_path, transformer):
    sampled = Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.5)
    screen = Subsampled(mechanism=Threshold(at=8.0, sigma=2.0), sampling_rate=0.5)
    voter = neighbours(transformer=transformer, metric="cosine")
    saved = kept(tmp_path, voter, sampled, screen=screen, **NUMBERS)
    assert (saved.kind, saved.n_ballots, saved.adjacency.sampling_rate) == ("neighbours", 20, 0.5)
    adaptive = Budget(epsilon=500.0, delta=1e-6, adaptive=True)
    with serving(deploy(tmp_path, saved, budget=adaptive, clients=RICH)) as service:
        first = labels(answers(service, ASKED.tolist()))
        assert set(first) <= {*CLASSES, None}
        assert labels(answers(service, ASKED.tolist(), key="again", who="bob")) == first
        charged = {entry.mechanism.partition("(")[0] for entry in service.entries()}
        assert charged <= {"Subsampled", "Confident"}


def test_people_keep_one_ballot_after_a_round_trip(tmp_path):
    people = np.arange(len(X)) // 3
    before = NeighbourVoter(k=20, sampling_rate=1.0, relation="replace-one")
    before.fit(X, Y, people, classes=CLASSES)
    saved = kept(tmp_path, before, GNMax(sigma=2.0), **NUMBERS)
    assert saved.adjacency.unit == "person"
    first, second = (voter.sampled_votes(ASKED, n_trials=1) for voter in (before, saved.ensemble))
    np.testing.assert_array_equal(first, second)


def test_a_mechanism_that_hides_less_than_the_votes_tell_is_refused():
    with pytest.raises(ValueError, match="mechanism must hide"):
        SavedTeachers(ensemble=neighbours(), mechanism=GNMax(sigma=2.0), **NUMBERS)
    lower = Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.4)
    with pytest.raises(ValueError, match="mechanism must hide"):
        SavedTeachers(ensemble=neighbours(), mechanism=lower, **NUMBERS)


def test_other_noise_is_sampled_as_the_votes_are_and_parties_keep_theirs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OSTRAKA_PEPPER", PEPPER.hex())
    budget = ("--epsilon", "500", "--delta", "1e-6", "--check", "--json")
    kept(tmp_path, neighbours(), Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.5), **NUMBERS)
    with pytest.raises(SystemExit) as ending:
        main(["serve", str(tmp_path), "--sigma", "3", "--screen", "8", "2", *budget])
    assert ending.value.code == 0
    record = json.loads(capsys.readouterr().out)
    assert record["mechanism"] == repr(Subsampled(mechanism=GNMax(sigma=3.0), sampling_rate=0.5))
    screen = Threshold(at=8.0, sigma=2.0)
    assert record["screen"] == repr(Subsampled(mechanism=screen, sampling_rate=0.5))
    local_parties = PartyEnsemble.in_process(GaussianNB(), [(X, Y)] * 3, classes=CLASSES, sigma=1.0)
    agreed = SavedTeachers(ensemble=local_parties, mechanism=local_parties.agreement.mechanism, **NUMBERS)
    monkeypatch.setattr(SavedTeachers, "load", lambda *_, **__: agreed)
    with pytest.raises(SystemExit) as ending:
        main(["serve", str(tmp_path), "--sigma", "3", *budget])
    assert (ending.value.code, "they agreed on the noise" in capsys.readouterr().err) == (2, True)


@contextlib.contextmanager
def parties(noise="aggregator"):
    """Three parties behind HTTP; what asks them."""
    names, me = ("north", "south", "west"), Identity.fresh()
    identities = {name: Identity.fresh() for name in names}
    agreement = Agreement(
        members={name: identity.public_key for name, identity in identities.items()},
        aggregator=me.public_key,
        classes=tuple(CLASSES),
        n_features=3,
        sigma=0.4,
        noise=noise,
    )
    servers = []
    for place, name in enumerate(names):
        mine = slice(200 * place, 200 * (place + 1))
        party = Party(GaussianNB(), X[mine], Y[mine], agreement=agreement, identity=identities[name])
        servers.append(PartyServer(party))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    addresses = {name: server.url for name, server in zip(names, servers, strict=True)}
    try:
        yield PartyEnsemble(addresses, agreement=agreement, identity=me, timeout=20), servers
    finally:
        for server in servers:
            server.close()


def test_parties_are_asked_by_the_service_and_one_that_is_away_costs_nothing(tmp_path):
    with parties() as (voter, servers):
        saved = kept(tmp_path, voter, voter.agreement.mechanism, **NUMBERS)
        assert (saved.kind, saved.n_ballots, saved.adjacency.unit) == ("parties", 3, "party")
        with serving(deploy(tmp_path, saved, budget=GENEROUS, clients=RICH)) as service:
            first = labels(answers(service, ASKED.tolist()))
            assert labels(answers(service, ASKED.tolist(), key="again", who="bob")) == first
            charged = len(service.entries())
            servers[0].close()
            reply = service.label([0.1, 0.2, 0.3], key="away")
            assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
            assert "north" not in reply.text
            assert len(service.entries()) == charged


def test_parties_that_spend_with_each_round_are_not_served(tmp_path):
    with parties(noise="parties") as (voter, _):
        saved = SavedTeachers(ensemble=voter, mechanism=voter.agreement.mechanism, **NUMBERS)
        with pytest.raises(ValueError, match="spend with every round"):
            deploy(tmp_path, saved, budget=GENEROUS)


def test_parties_in_this_process_and_prompts_of_a_function_are_not_saved(tmp_path):
    local_parties = PartyEnsemble.in_process(GaussianNB(), [(X, Y)] * 3, classes=CLASSES, sigma=1.0)
    with pytest.raises(ValueError, match="run each with PartyServer"):
        kept(tmp_path, local_parties, local_parties.agreement.mechanism, **NUMBERS)
    made_up = PromptEnsemble(lambda prompts: prompts, model="m", classes=["bad", "good"], n_teachers=2)
    made_up.fit(["a", "b"], ["bad", "good"])
    with pytest.raises(ValueError, match="a function cannot be"):
        kept(tmp_path, made_up, GNMax(sigma=1.0), **TEXT)
    for wrong in ({"numeric": (True,)}, {"encoder": PCA(2)}, {"grid": {"0": 1.0}}):
        with pytest.raises(ValueError, match="prompts take one column of text"):
            kept(tmp_path, made_up, GNMax(sigma=1.0), **TEXT | wrong)
    assert list(tmp_path.iterdir()) == []


def test_prompts_answer_texts_and_every_question_takes_as_many_requests(tmp_path):
    def word(prompt: str) -> str:
        return "good" if "joy" in prompt.rpartition("Text:")[2] else "bad"

    with LocalEndpoint(word) as model:
        endpoint = Endpoint(model.url, retries=0, concurrency=4)
        voter = PromptEnsemble(endpoint, model="tiny", classes=["bad", "good"], n_teachers=8)
        voter.fit([f"private text {n}" for n in range(8)], ["bad", "good"] * 4)
        saved = kept(tmp_path, voter, GNMax(sigma=1.0), **TEXT)
        assert (saved.kind, saved.n_ballots) == ("prompts", 8)
        with serving(deploy(tmp_path, saved, budget=GENEROUS, clients=RICH)) as service:
            assert labels(answers(service, [["a caf\u00e9 of joy"], ["so dull"]])) == ["good", "bad"]
            n_requests = len(model.seen)
            assert n_requests == 2 * (8 + 1)
            again = answers(service, [["a cafe\u0301 of joy"]], key="again", who="bob")  # decomposed
            assert labels(again) == ["good"]
            assert len(model.seen) == n_requests + 9
            assert [entry.uses for entry in service.entries()] == [1, 1, 0]
            assert service.label([3.0], key="number").json()["code"] == "bad_schema"
    written = json.loads((tmp_path / "teachers" / "manifest.json").read_text())
    assert "private text" not in json.dumps(written)


def test_a_changed_file_of_any_kind_is_refused_and_rows_that_do_not_fit_are(tmp_path):
    kept(tmp_path, neighbours(), Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.5), **NUMBERS)
    folder = tmp_path / "teachers"
    path = folder / "rows.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.npz is not the file that was saved"):
        SavedTeachers.load(folder)
    listed = json.loads((folder / "manifest.json").read_text())
    rows, sound = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 2], np.uint16)

    def load(**arrays):
        np.savez(path, **{"features": rows, "codes": sound} | arrays)
        listed["files"]["rows.npz"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(listed))
        return SavedTeachers.load(folder)

    assert load().ensemble.unit_ == load(starts=np.array([0, 1, 3])).ensemble.unit_ == "row"
    named = listed["classes"]
    listed["classes"] = list(range(2**16))  # as many as 16 bits tell apart
    assert len(load().classes) == 2**16
    listed["classes"] = list(range(2**16 + 1))
    with pytest.raises(ValueError, match="must hold rows, a class of each"):
        load()
    listed["classes"] = named
    for arrays in (
        {"codes": np.full(4, 3, np.uint16)},
        {"codes": np.zeros(3, np.uint16)},
        {"codes": np.zeros(4, np.int64)},
        {"features": np.zeros((4, 3))},
        {"features": np.zeros((4, 3, 1), np.float32)},
        {"features": np.full((4, 3), np.nan, np.float32)},
        {"features": np.zeros((0, 3), np.float32), "codes": np.zeros(0, np.uint16)},
        *({"starts": np.array(starts)} for starts in ([1, 2], [0, 2, 2], [0, 4], [0.0, 2.0], [[0, 1]])),
        {"starts": np.zeros(0, np.int64)},
    ):
        with pytest.raises(ValueError, match="must hold rows, a class of each"):
            load(**arrays)
