"""Meters: each document pays for its own part, a greedy one stops at its limit, and no other is the wiser."""

import numpy as np
import pytest
from scipy.special import logsumexp

from ostraka import Ledger
from ostraka.text import MeteredDraws, TokenDraw
from tests.text.conftest import documents
from tests.text.test_writer import budget, rng

METERED = MeteredDraws(draw=TokenDraw(clip=1.0, n_documents=8), paid=5)


def numbers(shape, scale, seed=0):
    return METERED.draw.contributions(rng(seed).normal(size=shape) * scale)


def test_a_greedy_document_stops_at_its_limit_and_quiet_ones_go_on():
    spent, silent = np.zeros(8), np.zeros(8, dtype=int)
    for t in range(40):
        rows = numbers((8, 30), 0.05, seed=t)
        rows[2] = METERED.draw.contributions(np.where(np.arange(30) % 2, 9.0, -9.0)[None])[0]
        counted, spent = METERED.admit(rows, spent)
        silent += ~counted.any(axis=1)
    assert (spent <= METERED.limit).all()
    assert spent[2] > 0.79 * METERED.limit
    assert silent[2] >= 35
    assert (np.delete(silent, 2) == 0).all()


def test_what_one_document_may_say_does_not_depend_on_the_others():
    rows, spent = numbers((8, 30), 2.0), rng(3).uniform(0, METERED.limit, 8)
    counted, after = METERED.admit(rows, spent)
    for k in range(8):
        mine, mine_after = METERED.admit(rows[k : k + 1], spent[k : k + 1])
        assert (mine[0] == counted[k]).all()
        assert mine_after[0] == after[k]


def test_no_document_tells_more_than_its_limit_along_any_text_and_a_greedy_one_nearly_so():
    draw, order = METERED.draw.at(np.log(rng(1).dirichlet(np.ones(30)))), 4.0
    for scale, least in ((0.3, 0.0), (50.0, 0.2)):
        spent, leak = np.zeros(8), 0.0
        for t in range(30):
            rows = numbers((8, 30), 0.1, seed=t)
            rows[0] = METERED.draw.contributions(rng(t).choice([-scale, scale], size=(1, 30)))[0]
            counted, spent = METERED.admit(rows, spent)
            p, q = draw.log_outcomes(counted.sum(axis=0)), draw.log_outcomes(counted[1:].sum(axis=0))
            leak += max(logsumexp(order * a + (1 - order) * b) / (order - 1) for a, b in ((p, q), (q, p)))
        price = dict(zip(METERED.curve().orders, METERED.curve().rdp, strict=True))[order]
        assert least * price < leak <= price


def test_the_price_is_that_of_the_paid_draws_by_concentrated_privacy():
    five = 5 * METERED.draw.curve()
    assert METERED.curve().rdp[0] == pytest.approx(five.rdp[0], rel=1e-9)
    assert five.epsilon(1e-5) < METERED.curve().epsilon(1e-5)  # exact composition is for draws in full


def test_texts_that_are_metered_are_longer_at_the_same_price_and_survive_a_crash(written, asked, tmp_path):
    store, where = tmp_path / "store", tmp_path / "ledger"
    texts, labels = documents()
    settings = {"texts": texts, "labels": labels, "paid": 3, "n_tokens": 9, "epsilon": 8.0, "store": store}
    plan = written(**settings | {"store": None}).plan(4)
    assert plan.metered.paid == 3
    assert 7.9 < plan.epsilon <= 8.0
    assert plan.draw.clip > written(**settings | {"store": None, "paid": None}).plan(4).draw.clip
    with Ledger(where, budget=budget(8.0)) as ledger:
        with pytest.raises(KeyboardInterrupt):
            written(asked(fails_after=12), **settings).write(4, ledger=ledger, rng=rng())
        spent = meters(store)
        assert spent
        assert written(asked(), **settings).write(4, ledger=ledger, rng=rng(1))
        assert len(ledger.entries()) == 1
    for name, numbers_spent in meters(store).items():
        assert (numbers_spent <= plan.metered.limit).all()
        assert (numbers_spent >= spent.get(name, 0.0)).all()


def meters(store):
    """What each document of each batch has spent, as the store has it."""
    from ostraka.secure.log import Log
    from ostraka.text import writer

    log, meters_by_text = Log(store, name=writer._LOG), {}
    for key, body in log.entries():
        if key.startswith("spent "):
            meters_by_text[key.split(" texts ")[0]] = np.frombuffer(body)
    log.close()
    return meters_by_text


def test_what_documents_have_spent_is_read_from_the_store(tmp_path):
    from ostraka.secure.log import Log
    from ostraka.text import writer

    log, spent = Log(tmp_path / "store", name=writer._LOG), np.linspace(0.0, 0.5, 8)
    log.once_each(writer._Meter(METERED, log, "a 0 1", 8).entries("texts 3", spent))
    for batch, before in (("a 0 1", spent), ("a 0 2", np.zeros(8))):
        _, now = writer._Meter(METERED, log, batch, 8).admit(np.zeros((8, 2)))
        np.testing.assert_array_equal(now, before)
    log.close()
