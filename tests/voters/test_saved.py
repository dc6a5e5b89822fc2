"""Saved teachers vote as they did; a changed file, an unknown type or a stranger's list is refused."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import shutil
import stat
import warnings
import zipfile
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ostraka import Adjacency, GNMax, LNMax, TeacherEnsemble, Threshold, count_votes
from ostraka.consistent import Consistent
from ostraka.core.imports import skops_io
from ostraka.voters import SavedTeachers
from ostraka.voters import saved as saved_module
from ostraka.voters.saved import READY, SplitTeachers, VotersAwayError, _is_index, _Part, serve
from tests.threads import at_once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = np.array(["no", "yes"])[(X.sum(axis=1) > 0).astype(int)]
ASKED = RNG.normal(size=(50, 3))


LOGISTIC = LogisticRegression()


def saved(estimator=LOGISTIC, **changes) -> SavedTeachers:
    ensemble = TeacherEnsemble(estimator, n_teachers=30, n_jobs=1, random_state=3)
    ensemble.fit(X, Y, classes=["no", "yes"])
    settings = {"mechanism": GNMax(sigma=4.0), "columns": ("a", "b", "c"), "numeric": (True,) * 3}
    return SavedTeachers(ensemble=ensemble, **{**settings, "grid": Consistent.grid_of(ASKED), **changes})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("written") / "teachers"
    saved().save(place)
    return place


@pytest.fixture
def folder(written, tmp_path):
    """A copy of a test's own."""
    return shutil.copytree(written, tmp_path / "teachers")


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        KNeighborsClassifier(1),
        DecisionTreeClassifier(splitter="random"),
        pytest.param(RandomForestClassifier(n_estimators=3), marks=pytest.mark.slow),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_teachers_vote_after_a_round_trip_as_before(tmp_path, estimator):
    before = saved(estimator, screen=Threshold(at=20.0, sigma=3.0), mechanism=LNMax(scale=2.5))
    name = before.save(tmp_path / "teachers")
    after = SavedTeachers.load(tmp_path / "teachers")
    np.testing.assert_array_equal(before.ensemble.predictions(ASKED), after.ensemble.predictions(ASKED))
    assert after.ensemble.vote(ASKED).adjacency == before.ensemble.vote(ASKED).adjacency
    assert after.ensemble.classes_.tolist() == ["no", "yes"]
    assert (after.mechanism, after.screen, after.grid) == (before.mechanism, before.screen, before.grid)
    assert after.sha256 == name


def test_failed_and_one_class_teachers_keep_their_ballots(tmp_path):
    one = saved()
    teachers = one.ensemble.teachers_
    teachers[3] = teachers[3]._replace(model=None, present=np.array([0, 1]))
    teachers[4] = teachers[4]._replace(model=None, present=np.array([1]))
    one.save(tmp_path / "teachers")
    after = SavedTeachers.load(tmp_path / "teachers").ensemble
    assert (after.predictions(ASKED)[3] == teachers[3].fallback).all()
    assert (after.predictions(ASKED)[4] == 1).all()


def test_rows_of_a_table_go_through_the_encoder_they_came_with(tmp_path):
    encoder = ColumnTransformer(
        [("numbers", StandardScaler(), [0]), ("kinds", OneHotEncoder(sparse_output=False), [1])]
    )
    cells = np.array([[1.0, "x"], [3.0, "y"]] * 60, dtype=object)
    ensemble = TeacherEnsemble(LogisticRegression(), n_teachers=5, n_jobs=1, random_state=0)
    ensemble.fit(encoder.fit_transform(cells), Y[:120], classes=["no", "yes"])
    shape = {"columns": ("size", "kind"), "numeric": (True, False)}
    table = SavedTeachers(
        ensemble=ensemble,
        mechanism=GNMax(sigma=1.0),
        grid=Consistent.grid_of(encoder.transform(cells)),
        encoder=encoder,
        **shape,
    )
    table.save(tmp_path / "teachers")
    after = SavedTeachers.load(tmp_path / "teachers")
    assert {name: getattr(after, name) for name in shape} == shape
    np.testing.assert_array_equal(after.encoder.transform(cells), encoder.transform(cells))


@pytest.mark.parametrize(("word", "error"), [(READY, None), (b"", ValueError), (None, VotersAwayError)])
def test_a_process_of_teachers_is_waited_for_until_it_says_that_it_is_ready(word, error):
    mine, its = Pipe()
    with mine, its:
        if word is not None:
            its.send_bytes(word)
        its.close()
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            _Part(None, mine).wait()


@pytest.mark.parametrize("estimator", [LOGISTIC, KNeighborsClassifier(1)], ids=str)
def test_a_part_of_the_teachers_counts_their_ballots_until_nobody_asks(tmp_path, estimator):
    whole, place = saved(estimator), tmp_path / "teachers"
    name, ballots = whole.save(place), whole.ensemble.predictions(ASKED)
    for number, mine_alone in enumerate((ballots[:25], ballots[25:])):
        mine, its = Pipe()
        task = {"folder": os.fspath(place), "trusted": [], "part": [number, 2], "sha256": name}
        with mine, its, warnings.catch_warnings(), at_once(partial(serve, its)):
            mine.send_bytes(json.dumps(task).encode())
            assert mine.recv_bytes() == READY
            for rows in (ASKED, ASKED[:1]):
                mine.send_bytes(rows.astype("<f8").tobytes())
                counts = np.frombuffer(mine.recv_bytes(), dtype="<i8").reshape(len(rows), 2)
                np.testing.assert_array_equal(counts, count_votes(mine_alone, n_classes=2)[: len(rows)])
                if estimator is not LOGISTIC:  # what cannot be asked costs this answer alone
                    mine.send_bytes(np.full((1, 3), np.nan).tobytes())
                    assert mine.recv_bytes() == b""
            mine.close()


class Worker:
    """In place of a process of teachers and of the connection to it: what it says, and what is done to it."""

    def __init__(self, *says, ended=None):
        self.says, self.ended, self.done = list(says), ended, []
        self.process = self.connection = self

    def poll(self, seconds=None):
        return self.ended if seconds is None else bool(self.says)

    def recv_bytes(self):
        said = self.says.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said

    def send_bytes(self, content):
        if self.ended is not None:
            raise OSError
        self.done.append(content)

    def kill(self):
        self.done.append("kill")

    def wait(self):
        self.done.append("wait")

    def close(self):
        self.done.append("close")


ENDED = ["kill", "wait", "close"]
SPLIT = {
    "files": dict.fromkeys(("estimator.skops", "teachers-0000.skops", "teachers-0001.skops"), ""),
    "classes": ["no", "yes"],
    "unit": "person",
    "n_features": 3,
    "n_teachers": 30,
}


@pytest.fixture
def split(monkeypatch):
    """Teachers in two processes, which are started in this order."""

    def started(*workers):
        waiting = list(workers)
        monkeypatch.setattr(SplitTeachers, "_started", lambda *_: _Part(*[waiting.pop(0)] * 2))
        return SplitTeachers(Path(), SPLIT, sha256="", processes=2)

    return started


def counts(*rows):
    return np.array(rows, dtype="<i8").tobytes()


def test_counts_of_processes_are_added_and_one_that_has_ended_is_started_again(split):
    first, second, third = Worker(READY, counts([3, 22], [25, 0])), Worker(READY), Worker(READY)
    together = split(first, second, third)
    assert (together.n_teachers, together.n_features_in_, together.n_processes) == (30, 3, 2)
    second.ended = 1
    third.says.append(counts([5, 0], [1, 4]))
    votes = together.vote(ASKED[:2])
    assert votes.open().tolist() == [[8, 22], [26, 4]]
    assert votes.adjacency == Adjacency.one_ballot(unit="person")
    assert first.done == third.done == [ASKED[:2].tobytes()]
    assert second.done == []


@pytest.mark.parametrize(
    ("said", "error"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (b"", ValueError), (EOFError(), VotersAwayError)],
)
def test_where_a_process_does_not_start_all_end(split, said, error):
    workers = Worker(READY), Worker(said)
    with pytest.raises(error):
        split(*workers)
    assert [worker.done for worker in workers] == [ENDED, ENDED]


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ([KeyboardInterrupt("stop")], KeyboardInterrupt, "stop"),
        ([OSError()], VotersAwayError, "has ended or does not answer"),
        ([], VotersAwayError, "has ended or does not answer"),
        ([b""], VotersAwayError, "could not vote"),
        ([counts([3, 2, 1])], VotersAwayError, "could not vote"),
    ],
)
def test_a_late_answer_is_never_that_of_the_next_question(split, said, error, words):
    workers = Worker(READY, counts([3, 22])), Worker(READY, *said)
    with pytest.raises(error, match=words):
        split(*workers).vote(ASKED[:1])
    assert [worker.done[1:] for worker in workers] == [ENDED, ENDED]


@pytest.mark.parametrize("began_with", ["0" * 64, "f" * 64])
def test_a_part_of_teachers_that_were_changed_meanwhile_counts_no_ballots(folder, began_with):
    """Beside the other parts' teachers, a unit could have two ballots."""
    mine, its = Pipe()
    with mine, its, warnings.catch_warnings():
        task = {"folder": os.fspath(folder), "trusted": [], "part": [0, 2], "sha256": began_with}
        mine.send_bytes(json.dumps(task).encode())
        mine.close()
        with pytest.raises(ValueError, match="was changed since these teachers began to vote"):
            serve(its)


def test_only_the_owner_may_read_the_files(folder):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_saved_teachers_are_not_overwritten(folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="are not overwritten"):
        saved().save(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_of_two_that_are_saved_into_one_place_at_once_the_first_counts(tmp_path, monkeypatch):
    place, one, written = tmp_path / "teachers", saved(), saved_module.digests
    first = []

    def digests(folder):
        if not first:
            first.append(folder)
            first.append(one.save(place))
        return written(folder)

    monkeypatch.setattr(saved_module, "digests", digests)
    with pytest.raises(FileExistsError, match="are not overwritten"):
        one.save(place)
    assert SavedTeachers.load(place).sha256 == first[1]
    assert [path.name for path in tmp_path.iterdir()] == ["teachers"]


@pytest.mark.parametrize("name", ["teachers-0001.skops", "estimator.skops"])
def test_a_changed_file_is_refused_before_it_is_parsed(folder, monkeypatch, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    read = []
    parse = skops_io().loads
    monkeypatch.setattr(
        skops_io(), "loads", lambda data, **options: (read.append(data), parse(data, **options))[1]
    )
    with pytest.raises(ValueError, match=f"{name} is not the file that was saved"):
        SavedTeachers.load(folder)
    assert bytes(content) not in read


def planted(folder, model, name: str = "estimator.skops") -> None:
    """Put another model in place, with its right hash in the list."""
    skops_io().dump(model, folder / name)
    listed_again(folder, name)


def replaced(folder, content: bytes, name: str = "estimator.skops") -> None:
    """The same with any bytes."""
    (folder / name).write_bytes(content)
    listed_again(folder, name)


def listed_again(folder, name: str) -> None:
    listed = json.loads((folder / "manifest.json").read_text())
    listed["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(listed))


def test_a_type_that_nobody_trusts_is_refused_even_with_the_right_hash(folder):
    planted(folder, FunctionTransformer(os.getcwd))
    with pytest.raises(ValueError, match=r"holds types that are not trusted: .*getcwd"):
        SavedTeachers.load(folder)


def test_a_type_is_trusted_by_name_on_request(folder):
    planted(folder, FunctionTransformer(os.getcwd))
    strange = skops_io().get_untrusted_types(file=folder / "estimator.skops")
    assert isinstance(SavedTeachers.load(folder, trusted=strange).ensemble.estimator, FunctionTransformer)


def test_a_file_that_grows_when_it_is_read_is_refused(folder):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * 30_000_000)
    replaced(folder, packed.getvalue())
    with pytest.raises(ValueError, match="must be a plain, uncompressed archive"):
        SavedTeachers.load(folder)
    replaced(folder, b"no archive")
    with pytest.raises(ValueError, match="must be a plain, uncompressed archive"):
        SavedTeachers.load(folder)


def test_a_file_may_grow_to_twice_its_size_and_a_mebibyte(folder):
    """So do headers of plain archives; what is beyond was compressed."""

    def packed(n_bytes):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", b" " * (n_bytes - 5))
            archive.writestr("b", b"other")
        return content.getvalue()

    size = 2**20
    for _ in range(9):  # until the content is as long as it was thought to be
        size = 2**20 + 2 * len(packed(size))
    saved_module.validate_archive(packed(size), where="a file")
    with pytest.raises(ValueError, match="a file is not a file that was saved"):
        saved_module.validate_archive(packed(size + 1), where="a file")


@pytest.mark.parametrize(
    "member", ["kind", "classes", "columns", "numeric", "grid", "mechanism", "screen", "files"]
)
def test_a_list_without_a_member_is_refused_or_what_it_was_before_there_was_one(folder, member):
    listed = json.loads((folder / "manifest.json").read_text())
    del listed[member]
    (folder / "manifest.json").write_text(json.dumps(listed))
    if member == "kind":  # of the first version, which had teachers alone
        assert SavedTeachers.load(folder).kind == "teachers"
        return
    with pytest.raises(ValueError, match=f"manifest.json is damaged, without {member}: take the folder from"):
        SavedTeachers.load(folder)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "is damaged: take the folder from a backup"),
        (
            b'{"version": 1, "kind": "spirits"}',
            "is damaged, without classes, columns, files, grid, mechanism",
        ),
    ],
)
def test_what_is_no_list_is_refused(folder, content, words):
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        SavedTeachers.load(folder)


def test_processes_are_at_least_one_and_as_many_as_files_at_most(folder):
    for processes in (0, 3):
        with pytest.raises(
            ValueError, match=f"processes must be 1 to 2, the number of files, got {processes}"
        ):
            SavedTeachers.load(folder, processes=processes)
    listed = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(listed | {"kind": "neighbours"}))
    with pytest.raises(ValueError, match="processes are for teachers, and for networks"):
        SavedTeachers.load(folder, processes=1)
    (folder / "manifest.json").write_text(json.dumps(listed | {"kind": "spirits"}))
    with pytest.raises(ValueError, match="must name one of teachers, networks, neighbours, parties, prompts"):
        SavedTeachers.load(folder)


def crooked(column: str, value: int) -> DecisionTreeClassifier:
    """A tree whose first node says something that no training says."""
    model = DecisionTreeClassifier(random_state=0).fit(X, Y)
    state = model.tree_.__getstate__()
    nodes = state["nodes"].copy()
    nodes[column][0] = value
    model.tree_.__setstate__({**state, "nodes": nodes})
    return model


@pytest.mark.parametrize(
    ("column", "value"),
    [("left_child", 2**40), ("left_child", 0), ("right_child", -1), ("feature", 3), ("feature", -5)],
)
def test_a_tree_that_leads_out_of_bounds_is_refused(folder, column, value):
    planted(folder, make_pipeline(StandardScaler(), crooked(column, value)))
    with pytest.raises(ValueError, match="index out of bounds"):
        SavedTeachers.load(folder)


def test_children_of_a_tree_are_nodes_after_it_and_features_are_columns():
    sound = {
        "children_left": np.array([1, -1, 3, -1, -1]),
        "children_right": np.array([2, -1, 4, -1, -1]),
        "feature": np.array([0, -2, 2, -2, -2]),
        "threshold": np.zeros(5),
        "value": np.zeros((5, 1, 2)),
    }

    def is_sound(n=5, **changes):
        return saved_module._is_tree(SimpleNamespace(node_count=n, **{**sound, **changes}), 3)

    assert is_sound()
    assert not is_sound(0, **{name: array[:0] for name, array in sound.items()})
    assert not any(is_sound(n) for n in (4, 6))
    for name, array in sound.items():
        assert not is_sound(**{name: array[:-1]}), "of every node each says something"
    changes = [("children_left", node, child) for node, child in ((0, 0), (0, -1), (1, 2), (2, 1), (2, 5))]
    changes += [("children_right", node, child) for node, child in ((0, 0), (1, 2), (2, -1), (2, 2), (2, 5))]
    for name, node, value in [*changes, ("feature", 0, -1), ("feature", 2, 3)]:
        array = sound[name].copy()
        array[node] = value
        assert not is_sound(**{name: array}), (name, node, value)


def test_an_index_has_every_row_once_ranges_of_rows_and_leaves_on_its_last_level():
    for kind in ("kd_tree", "ball_tree"):
        tree = KNeighborsClassifier(1, algorithm=kind, leaf_size=9).fit(X, Y)._tree
        sound = dict(zip(("data", "order", "nodes", "bounds"), map(np.array, tree.get_arrays()), strict=True))
        n_rows, n_nodes = len(X), len(sound["nodes"])

        def is_sound(arrays=sound, **changes):
            return _is_index(SimpleNamespace(get_arrays=lambda: list({**arrays, **changes}.values())))

        def with_node(place, column, value, arrays=sound):
            nodes = arrays["nodes"].copy()
            nodes[column][place] = value
            return {"nodes": nodes}

        assert is_sound()
        for place, row in ((0, n_rows), (-1, -1), (0, sound["order"][1])):
            order = sound["order"].copy()
            order[place] = row
            assert not is_sound(order=order)
        for bounds in (sound["bounds"][:, 1:], sound["bounds"][:, :, 1:]):
            assert not is_sound(bounds=bounds)
        for place in range(n_nodes):  # whose children are the nodes 2 k + 1 and 2 k + 2
            assert is_sound(**with_node(place, "is_leaf", 0)) == (2 * place + 2 < n_nodes)
        for column, value, is_it in (
            *(("idx_start", 0, True), ("idx_start", -1, False), ("idx_start", n_rows + 1, False)),
            *(("idx_end", n_rows, True), ("idx_end", n_rows + 1, False), ("idx_end", -1, False)),
        ):
            assert is_sound(**with_node(1, column, value)) == is_it, (column, value)


def test_what_leads_out_of_bounds_is_noticed_wherever_a_model_holds_it():
    tree, index = crooked("feature", 3), KNeighborsClassifier(1, algorithm="kd_tree").fit(X, Y)
    shared = DecisionTreeClassifier()  # which is looked at once, and not the last
    state = list(index._tree.__getstate__())
    place = next(k for k, part in enumerate(state) if getattr(part, "shape", None) == (len(X),))
    state[place] = np.full(len(X), len(X))  # the order of rows
    index._tree.__setstate__(tuple(state))
    for bad in (tree, index):
        array = np.empty(2, dtype=object)
        array[1] = bad
        for model in ({"a": bad}, [bad, shared, shared], (bad,), {bad}, array, SimpleNamespace(deep=[bad])):
            with pytest.raises(ValueError, match="a file holds a tree with an index out of bounds"):
                saved_module.validate_model(model, n_features=3, where="a file")
    ring = [DecisionTreeClassifier().fit(X, Y), np.zeros(3)]
    ring.append(ring)
    saved_module.validate_model(ring, n_features=3, where="a file")


def test_other_teachers_have_another_name(folder, tmp_path):
    before = SavedTeachers.load(folder).sha256
    planted(folder, DecisionTreeClassifier())
    assert SavedTeachers.load(folder).sha256 != before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "must be of version 1, got 2"),
        ({"files": {"../../etc/passwd": ""}}, "names an unknown file"),
        ({"files": {"teachers-0009.skops": ""}}, "is missing"),
        ({"mechanism": {"kind": "Exec"}}, "mechanism must be one of Confident, GNMax"),
        ({"n_teachers": 31}, "teachers must be 31, got 30"),
        ({"numeric": [True]}, "columns must name every cell"),
        ({"grid": {"0": 1.0}}, "grid must name a step for each of 3 features"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(folder, change, words):
    listed = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**listed, **change}))
    with pytest.raises(ValueError, match=words):
        SavedTeachers.load(folder)


def test_a_folder_without_teachers_says_how_to_keep_them(tmp_path):
    with pytest.raises(ValueError, match="--keep-teachers"):
        SavedTeachers.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": ("a", "b")}, "columns must name every cell"),
        ({"numeric": (True, True, False)}, "columns must be 3 numbers"),
        ({"grid": {"0": 0.0, "1": 1.0, "2": 1.0}}, r"grid\[0\] must be finite and > 0"),
    ],
)
def test_settings_that_do_not_fit_the_ensemble_are_refused(change, words):
    teachers = saved()
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(teachers, **change)
