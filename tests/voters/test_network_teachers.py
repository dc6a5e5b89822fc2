"""Teachers that are torch networks: trained together, as private from each other as if alone."""

import dataclasses
import hashlib
import itertools
import json
import pickle
import stat
import traceback

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from ostraka import GNMax, TeacherEnsemble
from ostraka.consistent import Consistent
from ostraka.nets import compiled, vectorised
from ostraka.nets import training as loop
from ostraka.networks import TorchClassifier
from ostraka.voters import SavedTeachers, partition
from ostraka.voters.named import Teacher

X, Y = load_digits(n_class=4, return_X_y=True)
X, NEW = np.float32(X[:600] / 16), np.float32(X[600:] / 16)
Y, TRUTH = Y[:600], Y[600:]
N = 12  # teachers, of fifty rows
DEALT = partition(600, n_teachers=N, key=b"a key of thirty-two bytes, or so")
SECRET = 123.456


class Fussy(nn.Module):
    """Raises over large rows, and says what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 4)

    def forward(self, x):
        if not x.requires_grad and bool((x > 100).any()):
            raise RuntimeError(f"the private value {float(x.max())} is too large")
        return self.inner(x)


def network(module="perceptron", **options) -> TorchClassifier:
    settings = {
        "epochs": 6,
        "batch_size": 16,
        "learning_rate": 0.01,
        "n_threads": 1,
        "device": "cpu",
    } | options
    return TorchClassifier(module, **settings)


def ensemble(teacher=None, **options) -> TeacherEnsemble:
    return TeacherEnsemble(teacher or network(), **{"n_teachers": N, "random_state": 5} | options)


def fitted(teacher=None, rows=X, labels=Y, **options) -> TeacherEnsemble:
    return ensemble(teacher, **options).fit(rows, labels, classes=range(4), manifest=DEALT)


def saved(teachers: TeacherEnsemble, folder):
    SavedTeachers(
        ensemble=teachers,
        mechanism=GNMax(sigma=3.0),
        columns=tuple(map(str, range(64))),
        numeric=(True,) * 64,
        grid=Consistent.grid_of(X),
    ).save(folder)
    return folder


@pytest.fixture(scope="module")
def plain() -> TeacherEnsemble:
    return fitted()


def test_teachers_trained_together_say_what_they_say_trained_alone(plain):
    ballots = plain.predictions(NEW)
    teachers_compared = list(zip(plain.teachers_, DEALT.rows(), ballots, strict=True))[::4]
    for teacher, rows, mine in teachers_compared:
        alone = clone(network()).set_params(random_state=int(teacher.seed.generate_state(1)[0] >> 1))
        alone.fit(X[rows], Y[rows])
        assert len(alone.classes_) == 4
        assert (alone.predict(NEW) == mine).mean() > 0.99  # the same but for rounding
        for name, weights in alone.module_.state_dict().items():
            torch.testing.assert_close(weights, teacher.model.weights[name], rtol=1e-3, atol=1e-5)


def test_a_plain_module_is_a_teacher_with_the_usual_settings():
    module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    before = module[0].weight.clone()
    votes = fitted(module).vote(NEW)
    assert votes.shape == (len(NEW), 4)
    assert (votes.open().argmax(axis=1) == TRUTH).mean() > 0.65  # of twenty steps
    assert torch.equal(module[0].weight, before), "the module itself is not trained"


def test_a_network_by_name_has_the_settings_that_it_had():
    """A record, beside those of other teachers by name in tests/golden/numbers.txt."""
    expected = TorchClassifier(epochs=40, batch_size=16, learning_rate=0.005)
    assert repr(Teacher.NETWORK.estimator(default=Teacher.AUTO)) == repr(expected)


def test_a_person_who_brings_more_rows_moves_one_ballot_only():
    people = np.arange(600) // 3
    dealt = partition(people, n_teachers=N, key=b"a key of thirty-two bytes, or so")
    sizes = [len(rows) for rows in dealt.rows()]
    assert len(set(sizes)) > 1, "shards of different sizes"
    mine = dealt.rows()[2]
    changed = X.copy()
    changed[mine] = 1 - changed[mine]
    first, second = (
        ensemble().fit(rows, Y, people, classes=range(4), manifest=dealt).predictions(NEW)
        for rows in (X, changed)
    )
    assert np.flatnonzero((first != second).any(axis=1)).tolist() == [2]


@pytest.mark.parametrize(
    ("teacher", "value"), [(None, 3e38), (network(Fussy()), SECRET)], ids=["overflow", "a module that raises"]
)
def test_a_teacher_that_fails_votes_by_its_number_is_counted_and_says_nothing(teacher, value, capsys):
    rows = X.copy()
    rows[DEALT.rows()[7]] = value
    with pytest.warns(UserWarning, match="Some teachers failed") as caught:
        ballots = (done := fitted(teacher, rows)).predictions(NEW)
    assert done.count_failed() == 1
    assert (ballots[7] == 7 % 4).all()
    assert not any(private in str(warning.message) for warning in caught for private in ("123", "e+38"))
    assert capsys.readouterr() == ("", "")


def fussy(rows):
    if float(rows.max()) > 100:
        raise RuntimeError(f"the private value {float(rows.max())} is too large")
    return rows + 0.1 * torch.randn_like(rows)


def test_an_augmentation_that_raises_costs_one_ballot_and_says_nothing(capsys):
    rows = X.copy()
    rows[DEALT.rows()[7]] = SECRET
    before = fitted(network(augment=fussy, epochs=2)).predictions(NEW)
    with pytest.warns(UserWarning, match="Some teachers failed") as caught:
        ballots = fitted(network(augment=fussy, epochs=2), rows).predictions(NEW)
    assert (ballots[7] == 7 % 4).all()
    np.testing.assert_array_equal(np.delete(ballots, 7, axis=0), np.delete(before, 7, axis=0))
    assert not any("123" in str(warning.message) for warning in caught)
    assert capsys.readouterr() == ("", "")


def test_an_augmentation_that_never_works_is_refused():
    with pytest.raises(ValueError, match=r"cannot be trained; .*augment must return as many rows"):
        fitted(network(augment=lambda rows: rows[:3]))
    with pytest.raises(ValueError, match=r"cannot be trained; .*by zero"):
        fitted(network(augment=lambda rows: rows / (1 // 0)))


def test_a_module_that_raises_in_spite_of_all_is_trained_alone(monkeypatch):
    stacked = network(optimizer=torch.optim.SGD)
    plain = fitted(stacked)
    real, sizes = vectorised.backpropagate, []

    def raising(stack, rows, wanted):
        sizes.append(len(rows))
        if len(rows) == N:
            raise RuntimeError("the private value 123.456")
        return real(stack, rows, wanted)

    monkeypatch.setattr(vectorised, "backpropagate", raising)
    done = fitted(stacked)
    assert done.count_failed() == 0
    trained = sizes[sizes.index(N) :]  # the plan's trial comes before, with fewer networks
    assert set(trained[1:]) == {1}
    assert (done.predictions(NEW) == plain.predictions(NEW)).mean() > 0.99


def test_a_query_that_overflows_costs_its_own_row_only(plain):
    strange = NEW.copy()
    strange[3] = 3e38
    done = fitted()
    with pytest.warns(UserWarning, match="Some teachers failed"):
        ballots = done.predictions(strange)
    assert ballots[:, 3].tolist() == [number % 4 for number in range(N)]
    np.testing.assert_array_equal(np.delete(ballots, 3, axis=1), np.delete(plain.predictions(NEW), 3, axis=1))


def test_a_teacher_never_votes_for_a_class_its_shard_lacks():
    y = Y.copy()
    first, second = DEALT.rows()[:2]
    y[first] = np.where(y[first] == 3, 2, y[first])
    y[second] = 1
    done = fitted(labels=y)
    ballots = done.predictions(np.concatenate([NEW, -5 * NEW]))
    assert set(ballots[0].tolist()) == {0, 1, 2}
    assert set(ballots[1].tolist()) == {1}
    assert set(ballots[2].tolist()) == {0, 1, 2, 3}
    assert done.count_failed() == 0, "a shard of one class is no failure"


def test_finished_stacks_are_not_trained_again(tmp_path, monkeypatch, plain):
    folder = tmp_path / "kept"
    first = fitted(network(checkpoint=folder))
    files = list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * len(files)
    plan = first.teachers_[0].model.plan
    monkeypatch.setattr(vectorised, "plan", lambda *_, **__: plan)
    monkeypatch.setattr(loop, "epoch_seed", lambda *_: pytest.fail("this was trained before"))
    again = fitted(network(checkpoint=folder))
    np.testing.assert_array_equal(again.predictions(NEW), first.predictions(NEW))
    np.testing.assert_array_equal(again.predictions(NEW), plain.predictions(NEW))


@pytest.mark.parametrize(
    ("optimizer", "stop", "missing"),
    [
        (torch.optim.SGD, 2, [2, 3, 4, 5, 0, 1, 2, 3, 4, 5]),
        pytest.param(torch.optim.SGD, 7, [1, 2, 3, 4, 5], marks=pytest.mark.slow),
        pytest.param(torch.optim.Adam, 2, [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5], marks=pytest.mark.slow),
        (torch.optim.Adam, 9, [2, 3, 4, 5]),
    ],
)
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(
    tmp_path, monkeypatch, optimizer, stop, missing
):
    monkeypatch.setattr(vectorised, "_AT_LEAST", 1)
    monkeypatch.setattr(vectorised, "_IN_CACHE", 600_000)  # two stacks of six teachers and six epochs
    monkeypatch.setattr(compiled, "_WORK", 1)  # as if an epoch took long

    def interrupt(stage, done, _total):
        if stage == "teachers" and done == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(network(optimizer=optimizer, checkpoint=tmp_path), progress=interrupt)
    plan = vectorised.plan(network(optimizer=optimizer, checkpoint=tmp_path), n_features=64, n_classes=4)
    monkeypatch.setattr(vectorised, "plan", lambda *_, **__: plan)  # which tries epochs of its own
    epochs, real = [], loop.epoch_seed
    monkeypatch.setattr(loop, "epoch_seed", lambda seed, epoch: epochs.append(epoch) or real(seed, epoch))
    done = fitted(network(optimizer=optimizer, checkpoint=tmp_path))
    assert [epoch for epoch, _ in itertools.groupby(epochs)] == missing  # asked for in every batch
    monkeypatch.undo()
    uninterrupted = fitted(network(optimizer=optimizer))
    np.testing.assert_array_equal(done.predictions(NEW), uninterrupted.predictions(NEW))


def test_a_checkpoint_of_other_rows_is_refused_and_shows_nothing_of_either(tmp_path):
    fitted(network(checkpoint=tmp_path, epochs=1))
    changed = X.copy()
    changed[0] += 1
    with pytest.raises(ValueError, match="belongs to another training") as caught:
        fitted(network(checkpoint=tmp_path, epochs=1), changed)
    text = "".join(traceback.format_exception(caught.value)).split("ValueError: ")[1]
    name = torch.load(next(tmp_path.iterdir()), weights_only=True)["name"]
    assert name.split(", ")[-1] not in text


@pytest.mark.parametrize("options", [{"random_state": None}, {"random_state": np.random.RandomState(1)}])
def test_a_checkpoint_that_nothing_could_go_on_from_is_refused(tmp_path, options):
    with pytest.raises(ValueError, match="checkpoint needs an integer random_state and a manifest"):
        fitted(network(checkpoint=tmp_path), **options)
    with pytest.raises(ValueError, match="checkpoint needs an integer random_state and a manifest"):
        ensemble(network(checkpoint=tmp_path)).fit(X, Y)
    assert list(tmp_path.iterdir()) == []


def test_progress_grows_epoch_by_epoch_to_all_teachers(monkeypatch):
    monkeypatch.setattr(vectorised, "_AT_LEAST", 1)
    monkeypatch.setattr(vectorised, "_IN_CACHE", 600_000)
    events = []
    fitted(progress=lambda *event: events.append(event)).vote(NEW)
    for stage, least in (("teachers", 10), ("votes", 2)):
        done = [done for name, done, total in events if name == stage and total == N]
        assert done == sorted(done)
        assert (done[-1], len(set(done)) >= least) == (N, True)


def test_stacks_are_as_equal_as_possible_and_halved_where_memory_runs_out(plain, monkeypatch):
    plan, train, sizes, events = vectorised.plan, vectorised.train_networks, [], []

    def noted(plan, training_sets, **options):
        sizes.append(len(training_sets))
        if len(sizes) == 2:
            raise MemoryError
        return train(plan, training_sets, **options)

    def of_five(*arguments, **options):
        return dataclasses.replace(plan(*arguments, **options), size=5)

    monkeypatch.setattr(vectorised, "plan", of_five)
    monkeypatch.setattr(vectorised, "train_networks", noted)
    together = fitted(progress=lambda *event: events.append(event))
    assert sizes == [4, 4, 2, 2, 2, 2]
    np.testing.assert_array_equal(together.predictions(NEW), plain.predictions(NEW))
    done = [done for name, done, total in events if (name, total) == ("teachers", N)]
    assert done == sorted(done)
    assert set(done) == set(range(1, N + 1))


def test_tables_and_sparse_matrices_teach_like_arrays(plain):
    want = plain.predictions(NEW)
    for kind in (pd.DataFrame, scipy.sparse.csc_matrix, lambda rows: rows.astype(np.float64)):
        np.testing.assert_array_equal(fitted(rows=kind(X)).predictions(kind(NEW)), want)


def test_rows_that_are_no_numbers_are_refused_unquoted():
    table = pd.DataFrame(X).astype(object)
    table.iloc[5, 5] = "Alice"
    with pytest.raises(ValueError, match="X must hold numbers only") as caught:
        fitted(rows=table)
    assert "Alice" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("teacher", "match"),
    [
        (nn.Linear(5, 4), "cannot be trained"),
        (network(nn.Linear(64, 9)), "one for each class"),
        (network("perceptron", device="cuda:9"), "is not available"),
        (network("transformer"), "module must be one of"),
    ],
)
def test_a_network_that_cannot_teach_is_refused_before_anything_is_trained(teacher, match):
    with pytest.raises(ValueError, match=match):
        fitted(teacher)
    with pytest.raises(ValueError, match="cannot be trained"):
        ensemble(teacher).dry_run(X[:50], n_classes=4, n_rows=50)


def test_a_rehearsal_of_a_sound_network_is_silent(capsys):
    ensemble(nn.Linear(64, 4)).dry_run(X[:50], n_classes=4, n_rows=50)
    assert capsys.readouterr() == ("", "")


def test_the_global_generators_come_back_as_they_were():
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    fitted(network(augment=lambda rows: rows * np.random.random())).vote(NEW)  # noqa: NPY002
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002


def test_a_saved_network_whose_teacher_learned_nothing_votes_as_before(tmp_path):
    labels = np.where(np.isin(np.arange(len(X)), DEALT.rows()[0]), 2, Y)  # one class: it needs no network
    before = fitted(network(epochs=1), labels=labels)
    after = SavedTeachers.load(saved(before, tmp_path / "teachers")).ensemble
    assert after.teachers_[0].model is None
    np.testing.assert_array_equal(after.predictions(NEW), before.predictions(NEW))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("present", [0, 4], "names a class that does not exist"),
        ("present", [-1, 0], "names a class that does not exist"),
        ("fallback", 4, "names a class that does not exist"),
        ("fallback", 5, "names a class that does not exist"),
        ("weights/extra", [0.0], "the weights do not fit the network"),
    ],
)
def test_a_changed_teacher_is_refused_even_with_the_right_hash(plain, tmp_path, name, value, words):
    folder = saved(plain, tmp_path / "teachers")
    file, list_of_files = folder / "networks-0000.npz", folder / "manifest.json"
    with np.load(file) as arrays:
        changed = {**arrays, f"0/{name}": np.array(value)}
    np.savez(file, **changed)
    listed = json.loads(list_of_files.read_text())
    listed["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    list_of_files.write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=words):
        SavedTeachers.load(folder)


def test_an_ensemble_survives_pickling_and_prints_nothing_it_learned(plain):
    again = pickle.loads(pickle.dumps(plain))
    np.testing.assert_array_equal(again.predictions(NEW), plain.predictions(NEW))
    assert repr(plain) == repr(ensemble())
    assert "tensor" not in repr(plain.teachers_[0].model)


def test_one_teacher_by_itself_predicts_what_it_votes(plain):
    np.testing.assert_array_equal(plain.teachers_[3].codes(NEW), plain.predictions(NEW)[3])
