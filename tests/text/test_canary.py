"""Canary documents, in and out: exact divergences along a text stay within the price, and come near."""

import numpy as np
import pytest

from ostraka.text import TokenDraw, audit_canary

CANARY = "zebra quartz " * 30


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_a_canary_never_leaks_more_than_its_price(written, relation):
    writer = written(clip=1.0, n_documents=6, relation=relation)
    plan = writer.plan(2)
    for text, least in (("zebra quartz zebra quartz", 0.01), ("the acting was fine", -1.0)):
        leak = audit_canary(writer, CANARY, writer.model.tokens(text), plan=plan)
        assert least * leak.price < leak.divergence <= leak.price
        assert (leak.losses <= plan.draw.range * (1 + 1e-12)).all()


def test_a_canary_that_nobody_shares_uses_the_whole_range_of_a_draw(written):
    writer = written(clip=0.4, n_documents=6)
    tokens = writer.model.tokens("zebra quartz zebra")
    leak = audit_canary(writer, CANARY, tokens, plan=writer.plan(2), order=2)
    assert leak.losses[1:].max() == pytest.approx(writer.plan(2).draw.range, rel=1e-3)
    assert leak.divergence > 0.05 * leak.price
    with pytest.raises(ValueError, match="order"):
        audit_canary(writer, CANARY, tokens, plan=writer.plan(2), order=0.5)


def test_a_canary_that_says_what_all_say_leaks_less(written):
    writer = written(clip=3.0, n_documents=12)
    tokens = writer.model.tokens("zebra quartz")
    rare, common = (
        audit_canary(writer, text, tokens, plan=writer.plan(2), code=1)
        for text in (CANARY, "the acting is warm")
    )
    assert common.divergence < rare.divergence
    assert np.isfinite(rare.divergence)


def texts(writer, draw, *, silent, tokens=(), log=0.0, left=3):
    """Every text of so many tokens with its log probability; ``silent``: without the first document."""
    if not left or (tokens and not tokens[-1].piece):
        yield tokens, log
        return
    place = writer.position(list(tokens))
    counted = draw.contributions(place.differences)
    law = draw.at(place.public).log_outcomes(counted[silent:].sum(axis=0))
    for token, log_chance in zip(place.candidates, law, strict=True):
        further = {"tokens": (*tokens, token), "log": log + log_chance, "left": left - 1}
        yield from texts(writer, draw, silent=silent, **further)


def test_no_set_of_whole_texts_tells_more_than_is_paid_for_and_the_best_comes_near(written):
    writer = written(texts=["zebra quartz " * 40] + ["the plot"] * 5, labels=["bad"] * 6, classes=["bad"])
    writer._batches[0][0].sort(reverse=True)  # the canary is the first
    draw, start = TokenDraw(clip=1.5, n_documents=6), writer.model.tokens("zebra quartz")
    p, q = (np.exp([log for _, log in texts(writer, draw, silent=silent, tokens=start)]) for silent in (0, 1))
    assert p.sum() == pytest.approx(1) == q.sum()
    price = 3 * draw.curve()
    for epsilon in (0.0, 0.2, 0.5, 0.9):
        delta = max(np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
        assert delta <= price.delta(epsilon)
    assert np.abs(p - q).sum() / 2 > 0.3 * price.delta(0.0)
