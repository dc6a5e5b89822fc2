"""The check of reports by keepers and tally: what is no answer is refused, and nothing else is seen."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from ostraka.collect import Client, Grid, Histogram, Histograms, Sum, Task, Tree, Vector
from ostraka.collect import client as _client
from ostraka.collect.encodings import PRIME
from ostraka.collect.messages import Closing
from ostraka.collect.validity import TIMES, Check, Weights, form_of, packed, proved, residues, signed
from ostraka.secure.keys import exchange_key, new_secret
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from tests.collect.test_page_among_clients import node
from tests.false_alarm import FALSE_ALARM

FORMS = {
    "histogram": (Histogram(0, 12, cells=12), lambda k: k % 12),
    "histograms": (Histograms(((0, 3, 3), (0, 4, 4))), lambda k: [k % 3, k % 4]),
    "tree": (Tree(0, 12, fanout=3), lambda k: k % 12),
    "grid": (Grid(x=(0, 3), y=(0, 4), shape=(3, 4)), lambda k: [] if k % 7 == 0 else [(k % 3, k % 4)]),
    "sum": (Sum(0, 15, bits=4), lambda k: k % 16),
    "vector": (Vector(cells=3, clip=1.0, grid=16), lambda k: [(k % 9 - 4) / 16, 0.5, -0.25]),  # whole steps
}
FORGERIES = {
    "two marks": lambda x: with_cells(x, {0: 1, 1: 1}),
    "one of two": lambda x: with_cells(x, {0: 2}),
    "2^30": lambda x: with_cells(x, {0: 2**30}),
    "minus one": lambda x: with_cells(x, {0: PRIME - 1}),
    "two halves": lambda x: with_cells(x, {0: (PRIME + 1) // 2, 1: (PRIME + 1) // 2}),
    "one and minus one": lambda x: with_cells(x, {0: 1, 1: PRIME - 1}),
    "2^29 each": lambda x: np.full_like(x, 2**29),
}


def of_entries(form, *entries):
    """The cells of a vector: entries, bits, and the low bits of what its square lacks, even below zero."""
    return form.answer(np.array(entries).astype(np.uint32))


# of vectors of 3 entries with a norm of at most 17; each but the last two breaks one rule only
OF_VECTORS = {
    "too long": lambda form: of_entries(form, 17, 1, 0),
    "much too long": lambda form: of_entries(form, -32, 31, -32),
    "too long, and a rest below zero": lambda form: changed(
        of_entries(form, 17, 17, 0),
        {**dict.fromkeys(range(-form.rest_bits, 0), 0), -1: -289 * pow(256, -1, PRIME)},
    ),
    "an entry is not its bits": lambda form: changed(of_entries(form, 4, 0, 0), {1: 4, 0: 0}),
    "a bit of two": lambda form: changed(of_entries(form, 2, 0, 0), {4: 0, 3: 2}),
    "2^30 in one entry": lambda form: changed(of_entries(form, 0, 0, 0), {0: 2**30}),
    "nothing at all": lambda form: np.zeros(form.cells, dtype=np.uint64),
}


def changed(x: np.ndarray, cells: dict[int, int]) -> np.ndarray:
    for cell, value in cells.items():
        x[cell] = value % PRIME
    return x


def with_cells(x: np.ndarray, cells: dict[int, int]) -> np.ndarray:
    x = x.copy()
    x[:2] = 0
    return changed(x, cells)


def outcome(form, payload, rng, *, shift=0, digest=None):
    """The opened verdict of one report that three parties share, in whole numbers; ``shift``: of a cheat."""
    weights = Weights(form, rng.bytes(32) if digest is None else digest)
    masks = rng.integers(0, PRIME, (2, form.length)).astype(np.uint64)
    shares = [*masks, (payload + 2 * np.uint64(PRIME) - masks.sum(axis=0)) % PRIME]
    parts = [weights.shares(share) for share in shares]
    openings = (sum(opening for opening, _ in parts) + np.uint64(shift)) % PRIME
    verdict = sum(weights.verdicts(terms[None], openings[None]).astype(object) for _, terms in parts)
    return (verdict + weights.public(openings[None]).astype(object))[0] % PRIME, openings


def forged(form, marks, rng):
    """A payload with other marks; the rest is what would prove it if it could be proved."""
    k = len(form.sizes)
    size = form.entries or (1 if form.binary else form.cells)
    payload = proved(form, np.zeros(size, dtype=np.uint32), rng.bytes(32))
    multiples = payload[(1 + TIMES) * form.cells :][: TIMES * k].reshape(TIMES, k)
    payload[: form.cells] = marks
    payload[form.cells : (1 + TIMES) * form.cells] = (
        np.repeat(multiples, form.sizes, axis=1) * marks % PRIME
    ).ravel()
    square = (1 + TIMES) * form.cells + 2 * TIMES * k  # where squares of masks begin
    help_of = rng.integers(3)  # nothing more, or wrong constants, which may help
    if help_of == 1:
        payload[-1] = (payload[-1] + rng.integers(1, PRIME)) % PRIME
    elif help_of == 2 and not form.entries:
        payload[square] = (payload[square] + 1) % PRIME
    elif help_of == 2:  # they make up for what the norm is too long
        entries, bits = signed(marks[: form.entries]), marks[-form.rest_bits :]
        missing = form.bound**2 - sum(int(digit) ** 2 for digit in entries)
        missing -= sum(int(digit) << bit for bit, digit in enumerate(bits))
        for time in range(TIMES):
            payload[square + time * k] = (int(payload[square + time * k]) + missing) % PRIME
    return payload


def changed_marks(case: str, form, k: int) -> np.ndarray:
    """What is no answer: the k-th way."""
    if case == "vector":
        return list(OF_VECTORS.values())[k % len(OF_VECTORS)](form)
    change = list(FORGERIES.values())[k % len(FORGERIES)]
    if case in {"grid", "sum"} and k % len(FORGERIES) == 0:
        change = FORGERIES["2^30"]  # in blocks of one cell two marks are an answer; a grid has one block
    return change(np.zeros(form.cells, dtype=np.uint64))


def refusals(n: int) -> tuple[int, int, int, int]:
    """Honest reports refused, of how many; forged ones taken, of how many."""
    rng, refused, accepted_reports, honest, false = np.random.default_rng(5), 0, 0, 0, 0
    for case, k in itertools.product(FORMS, range(n)):
        encoding, value = FORMS[case]
        form = form_of(encoding)
        verdict, _ = outcome(form, proved(form, encoding.encode(value(k)), rng.bytes(32)), rng)
        refused, honest = refused + bool(verdict.any()), honest + 1
        verdict, _ = outcome(form, forged(form, changed_marks(case, form, k), rng), rng)
        accepted_reports, false = accepted_reports + (not verdict.any()), false + 1
    return refused, honest, accepted_reports, false


def test_what_is_no_answer_is_refused_and_every_answer_is_taken():
    assert refusals(14) == (0, 84, 0, 84)


@pytest.mark.slow
def test_of_ten_thousand_reports_of_each_kind_the_check_is_right():
    assert refusals(2_000) == (0, 12_000, 0, 12_000)


def test_the_mark_of_a_tree_that_is_not_the_parent_of_its_leaf_is_refused():
    form, rng = form_of(Tree(0, 9, fanout=3)), np.random.default_rng(1)
    for parent, leaf in itertools.product(range(3), range(9)):
        payload = proved(form, with_cells(np.zeros(12, np.uint32), {parent: 1, 3 + leaf: 1}), rng.bytes(32))
        assert bool(outcome(form, payload, rng)[0].any()) is (parent != leaf // 3)


@pytest.mark.statistical
def test_what_is_opened_and_what_a_cheat_causes_are_uniform_whatever_the_answer():
    """16 bins of 400 draws; a correct check fails with probability FALSE_ALARM each."""
    form, rng = form_of(Histogram(0, 3, cells=3)), np.random.default_rng(2)
    weights = bytes(32)
    for value, shift in ((0, 0), (2, 0), (0, 5), (2, 5)):
        vector, draws = Histogram(0, 3, cells=3).encode(value), []
        for _ in range(200):
            verdict, openings = outcome(
                form, proved(form, vector, rng.bytes(32)), rng, shift=shift, digest=weights
            )
            assert bool(verdict.any()) is (shift != 0)
            draws += [int(digit) for digit in (verdict if shift else openings.ravel())]
        counts = np.bincount(np.array(draws) >> 27, minlength=16)
        assert chisquare(counts).pvalue > FALSE_ALARM
    # without the secret multiple, the outcome of a shift is 2 d <r, x> + d^2 by a weight: one value an answer
    plain = set()
    for _ in range(3):
        payload = proved(form, Histogram(0, 3, cells=3).encode(2), rng.bytes(32))
        payload[3:11] = payload[15:17] = 0
        plain.add(tuple(outcome(form, payload, rng, shift=5, digest=weights)[0]))
    assert len(plain) == 1


def test_numbers_of_a_stream_leave_out_the_prime_itself():
    words = np.array([2 * PRIME, 2 * PRIME + 1, 7, 6, 2 * PRIME - 1], dtype=np.uint32)
    assert residues(words, 3).tolist() == [3, 3, PRIME - 1]


def liar(form, vector, key):
    return proved(form, with_cells(vector, {0: 5}), key)


@pytest.mark.parametrize("case", FORMS)
def test_a_round_refuses_liars_sums_the_others_and_survives_restarts(
    case, keeper_round, tmp_path, monkeypatch
):
    encoding, value = FORMS[case]
    collection = keeper_round(encoding, folder=tmp_path, checked=True, sigma=2.0)
    collection.send(*map(value, range(1, 6)))
    with monkeypatch.context() as context:
        context.setattr(
            _client, "proved", lambda form, vector, key: forged(form, changed_marks(case, form, 2), RNG)
        )
        collection.send(value(1), value(2))
    collection.restart()
    with monkeypatch.context() as context:  # a tally that is stopped between the check and the sum
        context.setattr(type(collection.tally), "_answers", stopped)
        with pytest.raises(InterruptedError):
            collection.tally.close()
    collection.restart()
    sums = collection.tally.close()
    assert (collection.tally.n_refused, collection.tally.n_survivors) == (2, 5)
    np.testing.assert_array_equal(sums.open(), collection.plain(map(value, range(1, 6))))
    collection.restart()
    assert collection.tally.n_survivors == 5
    np.testing.assert_array_equal(collection.tally.close().open(), sums.open())
    with pytest.raises(PartyError, match="the round is closed"):
        collection.send(value(1))


RNG = np.random.default_rng(0)


def stopped(*_):
    raise InterruptedError


def test_noise_of_keepers_is_in_a_checked_sum(keeper_round):
    collection = keeper_round(Histogram(0, 4, cells=4), checked=True, noise="keepers", sigma=30.0)
    collection.send(0, 1, 2, 2)
    noise = collection.tally.close().open() - collection.plain([0, 1, 2, 2])
    assert 0 < np.abs(noise).max() < 14 * collection.tally.variance**0.5


def test_a_keeper_checks_one_set_once_and_sums_nothing_unchecked(keeper_round):
    collection = keeper_round(Histogram(0, 4, cells=4), checked=True)
    collection.send(0, 1, 2, 3)
    keys = sorted(collection.tally._state.reports)
    first, second = (Closing(0, exchange_key(new_secret()), b"".join(subset)) for subset in (keys, keys[:3]))
    with pytest.raises(PartyError, match="no reports of this round"):
        collection.ask(first.write(collection.task))
    answer = collection.ask(first.write(collection.task), verb="sketch")
    assert collection.ask(first.write(collection.task), verb="sketch") == answer
    for again in (second.write(collection.task), collection.closing()):
        with pytest.raises(PartyError, match="another request"):
            collection.ask(again, verb="sketch")
    with pytest.raises(PartyError, match="not checked"):
        collection.ask(first.write(collection.task))

    def verdict(closing, value):
        collection.ask(
            bytes(4) + closing.digest(collection.task) + packed(np.full((4, TIMES, 1), value)), verb="verdict"
        )

    verdict(first, 0.0)
    with pytest.raises(PartyError, match="another request"):  # a second opening would give <r, x> away
        verdict(first, 1.0)
    with pytest.raises(PartyError, match="other reports"):
        verdict(second, 0.0)


def test_only_what_can_be_checked_is_promised(keeper_round):
    for encoding in (
        Vector(cells=3_000, clip=1.0, grid=512),
        Grid(x=(0, 1), y=(0, 1), shape=(2, 2), at_most=2),
    ):
        with pytest.raises(ValueError, match="nothing else can be checked"):
            keeper_round(encoding, checked=True)
    with pytest.raises(ValueError, match="nothing else can be checked"):
        Task(Histogram(0, 2, cells=2), sigma=2.0, tally="ab" * 32, checked=True)
    with pytest.raises(ValueError, match="smaller most"):
        keeper_round(Sum(0, 1, bits=14), checked=True)
    assert "can spoil a sum" in keeper_round(Histogram(0, 2, cells=2)).task.checks
    assert "refuse reports" in keeper_round(Histogram(0, 2, cells=2), checked=True).task.checks
    with pytest.raises(ValueError, match="cannot be checked"):
        Check.of(keeper_round(Vector(cells=3_000, clip=1.0, grid=512)).task, bytes(32), [], n=0)


@pytest.mark.parametrize(
    ("encoding", "values"),
    [
        pytest.param(Tree(0, 20, fanout=5), [3, 4, 17], id="tree"),
        pytest.param(FORMS["vector"][0], [[0.25, 0, 0], [0, -0.5, 0], [-0.5, 0.25, -0.75]], id="vector"),
    ],
)
def test_the_page_sends_a_checked_report(keeper_round, encoding, values):
    collection = keeper_round(encoding, checked=True)
    script = "const main = ({ url, value }) => collect.send(url, value);\n"
    with PartyServer(collection.tally, pages=collection.tally.pages) as server:
        assert node(script, {"url": server.url, "value": values[-1]}) == collection.task.sha256
    collection.send(*values[:-1])
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(values))
    assert len(Client(collection.task).report(values[0])) == 48 + 4 * collection.task.report_size


def test_a_vector_of_thousands_of_entries_is_checked_where_squares_cannot_exceed_the_prime():
    for cells, grid in ((2_047, 512), (2_048, 512), (11_000, 64), (11_200, 64)):
        form = form_of(Vector(cells=cells, clip=1.0, grid=grid))
        assert (form is not None) is (cells in {2_047, 11_000})
        if form is not None:
            largest = cells * (1 << (form.bits - 1)) ** 2 + (1 << form.rest_bits) - 1 - form.bound**2
            assert largest < PRIME
            assert form.bound < 1 << (form.bits - 1)
            assert form.bound**2 < 1 << form.rest_bits
    encoding, rng = Vector(cells=300, clip=1.0, grid=64), np.random.default_rng(3)
    form = form_of(encoding)
    payload = proved(form, encoding.encode(rng.normal(size=300)), rng.bytes(32))
    assert not outcome(form, payload, rng)[0].any()
