"""What an older version has stored loads in this one, goes on, and is not paid for again.

``python -m tests.golden.write`` wrote the archive, at the commit that ``facts.json`` names.
"""

import contextlib
import json
import pickle
import re
import zipfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from ostraka.voters.shards import Manifest
from sklearn.base import clone

from ostraka import Adjacency, Budget, Ledger, PATEClassifier
from ostraka.pate import _keys
from ostraka.result import Result
from ostraka.scores import Scores
from ostraka.voters import SavedTeachers
from tests.golden import blocks, surface, write

ARCHIVE = zipfile.ZipFile(Path(__file__).parent / "artefacts.zip")
FACTS = json.loads(ARCHIVE.read("facts.json"))
OF_TORCH = {"patefm", "networks"}
SAME_SKLEARN = FACTS["versions"]["scikit-learn"] == version("scikit-learn")


def needs(name):
    if name in OF_TORCH:
        pytest.importorskip("torch", exc_type=ImportError)


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """The files, which only their owner may read."""
    folder = tmp_path_factory.mktemp("golden")
    ARCHIVE.extractall(folder)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


@pytest.fixture(scope="session")
def data(golden):
    with np.load(golden / "data.npz") as arrays:
        return dict(arrays)


def uses(entries):
    return Counter(mechanism for _, mechanism, times, _ in entries for _ in range(times))


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("name", FACTS["fits"])
@pytest.mark.parametrize(
    "moved", [pytest.param(False, marks=pytest.mark.slow), True], ids=["in its place", "moved"]
)
def test_an_interrupted_fit_goes_on_and_nothing_is_paid_twice(
    golden, data, tmp_path, monkeypatch, *, name, moved
):
    needs(name)
    if name in {"argmax", "screened"} and not SAME_SKLEARN:
        pytest.skip("keys of version 1 name the version of scikit-learn that the teachers are from")
    for file in (golden / name).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / file.name).chmod(0o600)
    monkeypatch.chdir(tmp_path)
    if moved:  # as if their classes were elsewhere by now
        for kind in moved_kinds():
            monkeypatch.setattr(kind, "__module__", "ostraka.elsewhere")
    before = FACTS["fits"][name]
    assert write.charges("fit.ledger") == before
    model = write.fitted(name, data, **write.ON_DISK)
    after = write.charges("fit.ledger")
    assert after["entries"][: len(before["entries"])] == before["entries"]
    assert {key.partition("/")[0] for key, *_ in after["entries"]} == {
        key.partition("/")[0] for key, *_ in before["entries"]
    }
    assert after["epsilon"] <= model.epsilon
    paid = uses(after["entries"])
    if name in {"counts", "rounds"}:
        assert paid == {repr(model.plan_.mechanism): model.plan_.n_answers}
    elif name == "argmax":
        assert paid == {repr(model.plan_.mechanism): 12}
    else:
        screen, argmax = model.plan_.mechanism.screen, model.plan_.mechanism.argmax
        assert paid[repr(screen)] <= getattr(model.plan_, "n_queries", model.plan_.n_answers)
        assert paid[repr(argmax)] <= model.plan_.n_answers
    write.fitted(name, data, **write.ON_DISK)
    assert write.charges("fit.ledger") == after


def moved_kinds():
    from ostraka.pate._data import Seeds

    from ostraka.students import Distilled

    kinds = [Seeds, Distilled]
    with contextlib.suppress(ImportError):
        from ostraka.pate.pate_fm import _Shared

        from ostraka.networks import TorchClassifier
        from ostraka.students import FixMatch

        kinds += [TorchClassifier, _Shared, FixMatch]
    return kinds


def test_classes_are_where_version_1_found_them_or_have_a_line_in_its_table():
    for kind in moved_kinds():
        assert kind.__qualname__ in _keys.HOMES_OF_VERSION_1


@pytest.mark.parametrize("name", FACTS["ledgers"])
def test_a_ledger_opens_with_its_charges_and_gives_its_answers_again(golden, tmp_path, name):
    path = tmp_path / "ledger"
    path.write_bytes((golden / f"{name}.ledger").read_bytes())
    charges, then = write.charges(path), dict(FACTS["ledgers"][name])
    assert charges.pop("epsilon") == pytest.approx(then.pop("epsilon"), rel=1e-11)
    assert charges == then
    with Ledger(path) as ledger:
        for key, mechanism, times, account in FACTS["ledgers"][name]["entries"]:
            if account or not times:
                continue
            place = int(key.split()[1])
            assert repr(write.MECHANISMS[place]) == mechanism
            entry = ledger.charge(
                write.MECHANISMS[place], uses=times, unit=ledger.unit, simulation=False, key=key
            )
            assert ledger.answer(entry).tolist() == [place, 1]
        assert ledger.head == FACTS["ledgers"][name]["head"]


@pytest.mark.parametrize("name", FACTS["pickles"])
def test_a_pickled_estimator_predicts_as_before(golden, data, name):
    needs(name)
    facts = FACTS["pickles"][name]
    model = pickle.loads((golden / f"{name}.pickle").read_bytes())
    assert model.predict(data["X_new"]).tolist() == facts["predictions"]
    settings = clone(model)
    if getattr(model, "way", "") == "argmax":  # the default of then, which no repr shows
        settings.set_params(way=PATEClassifier().way)
    assert (repr(model.plan_), repr(settings)) == (facts["plan"], facts["model"])
    assert model.result_ == Result.from_json((golden / f"{name}.result.json").read_text()).public()
    assert type(pickle.loads(pickle.dumps(model))) is type(model)


@pytest.mark.parametrize("name", FACTS["teachers"])
def test_saved_teachers_vote_as_before(golden, data, name):
    needs(name)
    facts = FACTS["teachers"][name]
    saved = SavedTeachers.load(golden / f"teachers-{name}")
    assert (saved.sha256, saved.kind, repr(saved.mechanism)) == (
        facts["sha256"],
        facts["kind"],
        facts["mechanism"],
    )
    if "predictions" in facts:
        assert saved.ensemble.predictions(data["X_new"]).tolist() == facts["predictions"]


def test_values_are_written_and_read_as_before(golden):
    facts = FACTS["values"]
    assert [repr(mechanism) for mechanism in write.MECHANISMS] == facts["mechanisms"]
    epsilons = [mechanism.curve().epsilon(delta=1e-5) for mechanism in write.MECHANISMS]
    exact = {"TreeMarginals(": 0.935, "Subsampled(mechanism=GNMax": 0.972}  # these compose exactly now
    for mechanism, epsilon, before in zip(write.MECHANISMS, epsilons, facts["epsilons"], strict=True):
        less = next((share for name, share in exact.items() if repr(mechanism).startswith(name)), 1)
        assert epsilon == pytest.approx(before * less, rel=1e-6 if less == 1 else 5e-3)
    *mechanisms, curve, scores, adjacency = pickle.loads((golden / "values.pickle").read_bytes())
    assert mechanisms == write.MECHANISMS
    assert curve == write.MECHANISMS[0].curve()
    assert adjacency == Adjacency.one_ballot()
    assert facts["others"] == [
        repr(Budget(epsilon=2.0, delta=1e-5, adaptive=False)),
        repr(adjacency),
        repr(scores),
    ]
    with np.load(golden / "scores.npz") as arrays:
        assert repr(Scores(**arrays)) == repr(scores)
    for name, sha256 in facts["manifests"].items():
        assert Manifest.from_json((golden / f"{name}.manifest.json").read_text()).sha256 == sha256
    for path in golden.glob("*.result.json"):
        assert json.loads(Result.from_json(path.read_text()).to_json()) == json.loads(path.read_text())


def test_no_file_names_a_folder_of_a_machine():
    rooted = re.compile(rb"(?<![\w:/.])/(work|home|root|tmp|usr|opt|mnt|var|Users)/|[A-Z]:\\\\")
    assert [name for name in ARCHIVE.namelist() if rooted.search(ARCHIVE.read(name))] == []


def test_defaults_and_limits_are_those_that_users_rely_on():
    """A change stands in CHANGELOG.md."""
    if blocks.RECORDING:
        surface.RECORD.write_text(surface.surface(), encoding="utf-8")
    recorded, present = (
        set(text.splitlines()) for text in (surface.RECORD.read_text("utf-8"), surface.surface())
    )
    assert (recorded - present, present - recorded) == (set(), set())
