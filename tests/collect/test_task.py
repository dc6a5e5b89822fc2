"""The task: one way to write it, and nothing in it that would weaken a round."""

import json
import math

import numpy as np
import pytest

from ostraka.collect import Grid, Histogram, Keeper, Pairs, Task, Tree
from ostraka.core.mechanisms.skellam import SkellamSum
from ostraka.secure.keys import Identity

TALLY, OFFICE = Identity.fresh().public_key, Identity.fresh().public_key
KEEPERS = [Keeper.key(Identity.fresh()) for _ in range(3)]


def task(encoding=None, **changes) -> Task:
    fields = {"sigma": 24.0, "tally": TALLY, "keepers": KEEPERS, "least": 10}
    return Task(encoding or Tree(0, 64), **{**fields, **changes})


def keys(n):
    return [f"{2 * number:064x}{2 * number + 1:064x}" for number in range(n)]


def by_clients(**changes) -> Task:
    return task(**{"keepers": (), "most": 40, **changes})


def test_it_comes_back_from_its_json():
    for original in (
        task(),
        by_clients(lying=True, enrolment=OFFICE),
        task(Grid(x=(0, 1), y=(0, 1), shape=(4, 4))),
    ):
        again = Task.from_json(original.to_json())
        assert again == original
        assert (again.sha256, hash(again)) == (original.sha256, hash(original))
        assert again.mechanism == SkellamSum(sigma=24.0, l1=original.encoding.l1, l2=original.encoding.l2)


def test_a_round_may_have_the_stated_number_of_clients():
    cells = Histogram(0, 64, cells=64)
    assert [task(cells, checked=checked).most for checked in (False, True)] == [1_000_000, 100_000]
    assert task(Pairs(items=20, at_most=5), sigma=1000.0, most=10**8).most == 10**8


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"encoding": encoding}
            for encoding in (Tree(0, 65), Tree(0, 64, fanout=2), Histogram(0, 64, cells=64))
        ),
        *({"keepers": keepers} for keepers in (KEEPERS[:2], KEEPERS[::-1])),
        *({name: OFFICE} for name in ("tally", "enrolment")),
        *({name: 2} for name in ("rounds", "honest")),
        *({name: 0.2} for name in ("colluding", "missing")),
        *({"sigma": 24.5}, {"noise": "tally"}, {"least": 11}, {"most": 5000}),
    ],
)
def test_every_field_is_in_the_fingerprint(change):
    assert task(**change).sha256 != task().sha256
    assert task(**change).transcript("report", round=0) != task().transcript("report", round=0)


def test_transcripts_differ_by_round_and_kind():
    round_task = task(rounds=3)
    transcripts = {
        round_task.transcript(kind, round=number) for kind in ("report", "enrolment") for number in range(3)
    }
    assert len(transcripts) == 6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": 9000.0}, "sigma"),
        ({"keepers": [KEEPERS[0]] * 2}, "keys of their own"),
        ({"keepers": [KEEPERS[0], TALLY * 2]}, "keys of their own"),
        ({"keepers": [KEEPERS[0], TALLY]}, "128"),
        ({"keepers": "abc"}, "sequence"),
        ({"enrolment": TALLY}, "keys of their own"),
        ({"trust": "clients"}, "no keepers"),
        ({"keepers": (), "trust": "keepers"}, "2 to 100"),
        ({"trust": "nobody"}, "trust"),
        ({"noise": "clients"}, "noise"),
        ({"lying": True}, "lying"),
        ({"encoding": Pairs(items=20, at_most=20_000)}, "at most 16,384"),
        ({"encoding": "Tree"}, "encoding"),
    ],
)
def test_what_would_not_hold_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        task(**change)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("least", [3, 1_000_000], [2, 1_000_001, 3.0, True, "3"]),
        ("most", [10, 10_000_000], [9, 10**8 + 1, True]),
        ("rounds", [1, 1000], [0, True, 1.5]),
        ("honest", [1, 3], [0, 4, True]),
        ("colluding", [0, 0.999], [-1e-9, 1.0, math.nan]),
        ("missing", [0, 0.999], [-1e-9, 1.0, math.nan]),
        ("lying", [False], [1, None]),
        ("checked", [False, True], [1, None]),
        ("keepers", [keys(2), keys(100)], [keys(1), keys(101)]),
        ("tally", ["0" * 64, "f" * 64], ["0" * 63, "g" * 64, "F" * 64, None]),
        ("enrolment", [None, "f" * 64], ["0" * 63, "", 7]),
    ],
)
def test_the_least_and_the_largest_value_of_a_field(name, inside, outside):
    cells = Histogram(0, 2, cells=2)
    for value in inside:
        assert list(np.ravel(getattr(task(cells, **{name: value}), name))) == list(np.ravel(value))
    for value in outside:
        with pytest.raises((ValueError, TypeError)):
            task(cells, **{name: value})


def test_who_is_trusted_adds_the_noise_unless_the_tally_does():
    for keepers, trust in ((KEEPERS, "keepers"), ((), "clients")):
        assert (task(keepers=keepers).trust, task(keepers=keepers).noise) == (trust, trust)
        assert task(keepers=keepers, noise="tally").noise == "tally"
    assert (task(noise="tally").mechanism.adds, task().mechanism.adds) == (True, False)
    assert (task().report_size, task(checked=True).report_size > task().encoding.cells) == (68, True)


def test_so_few_clients_may_come_that_those_who_collude_are_not_the_least():
    for colluding, most in ((0.1, 90), (0.5, 18), (0.0009, 10_000), (0, 10_000)):
        by_default = task(keepers=(), colluding=colluding)
        assert by_default.most == by_default.limit == most
        assert by_default.n_colluding(most) <= 9
    assert task(keepers=(), least=20_000, colluding=0).most == 20_000
    assert [task().n_colluding(n) for n in (0, 1, 10, 11, 30)] == [0, 1, 1, 2, 3]
    assert task(keepers=(), most=None, least=10, colluding=0.1).n_colluding(91) == 10


def test_the_room_for_noise_is_forty_deviations_of_every_share():
    assert task(noise="tally").noise_room(50) == 0
    assert task().noise_room(50) == math.ceil(3 * (24.0**2 / 2 + 40 * 24.0 + 100))
    share = 24.0**2 / (10 - 4)
    assert by_clients().noise_room(40) == math.ceil(40 * (share / 2 + 40 * math.sqrt(share) + 100))
    cells = Histogram(0, 2, cells=2)
    room = task(cells).noise_room(1)
    for checked, bits in ((False, 31), (True, 30)):
        ends = {"checked": checked, "keepers": KEEPERS, "sigma": 24.0}
        largest = min(2**bits - 2 - room, 10**8)
        assert task(cells, most=largest, **ends).most == largest


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"lying": True}, "enrolment"),
        ({"most": 101}, "least must be above"),
        ({"colluding": 0.3}, "least must be above"),
        ({"noise": "keepers"}, "noise"),
        ({"honest": 2}, "honest must be at most the number of keepers"),
        ({"sigma": 1000.0, "least": 1_001, "most": 10_000}, r"2\^31"),  # sums that do not fit
    ],
)
def test_what_would_not_hold_among_clients_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        by_clients(**change)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: [],
        lambda fields: fields | {"ostraka_task": 2},
        lambda fields: fields | {"more": 1},
        lambda fields: {name: value for name, value in fields.items() if name != "sigma"},
        lambda fields: fields | {"keepers": 7},
        lambda fields: fields | {"sigma": None},
        lambda fields: fields | {"encoding": {"kind": "Tree"}},
        lambda fields: fields | {"least": "10"},
    ],
)
def test_other_files_are_no_tasks(change):
    text = json.dumps(change(json.loads(task().to_json())))
    with pytest.raises(ValueError, match=r"task|sigma|keepers|Tree|least"):
        Task.from_json(text)
    with pytest.raises(ValueError, match="task"):
        Task.from_json("{" * 10_000)


def test_shares_of_noise_are_sized_for_the_fewest_who_may_be_honest():
    assert task().share(0) == 24.0**2  # one honest keeper is enough
    assert task(honest=2, sigma=25.0).share(0) == 312.5  # no part of the noise is rounded away
    assert task().variance(n_survivors=50) == 3 * 24.0**2
    assert task(noise="tally").share(0) == 0.0
    round_task = by_clients(colluding=0.1)
    assert round_task.share(40) == 24.0**2 / (10 - 4)
    assert round_task.share(20) == 24.0**2 / (10 - 2)
    assert round_task.variance(n_survivors=20) == pytest.approx(20 * 24.0**2 / 8)


def test_numbers_that_are_equal_have_one_fingerprint():
    me = Identity.fresh().public_key
    tasks = [
        Task(Histogram(low, high, cells=5), sigma=sigma, tally=me)
        for low, high, sigma in ((0, 6, 9), (0.0, 6.0, 9.0), (-0.0, 6, 9.0))
    ]
    assert len({task.sha256 for task in tasks}) == 1
    assert Task.from_json(tasks[1].to_json()) == tasks[0]
    assert Task(Histogram(0, 6.5, cells=5), sigma=9, tally=me).sha256 != tasks[0].sha256
