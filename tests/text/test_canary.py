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


@pytest.mark.parametrize("order", [1.5, 8.0])
def test_a_leak_is_the_divergence_of_the_laws_with_the_canary_and_without(written, order):
    writer = written(clip=1.0, n_documents=6, temperature=1.1)
    plan, tokens = writer.plan(2), writer.model.tokens("the zebra is")
    directions, losses = [0.0, 0.0], []
    for t in range(3):
        place = writer.position(tokens[:t], code=1)
        rows = plan.draw.contributions(place.differences)
        canary = plan.draw.contributions(writer.differences(CANARY, tokens[:t], code=1)[None])[0]
        law = plan.draw.at(place.public)
        p, q = (np.exp(law.log_outcomes(part + rows[1:].sum(axis=0))) for part in (canary, 0 * canary))
        for number, (a, b) in enumerate(((p, q), (q, p))):
            directions[number] += np.log(np.sum(a**order * b ** (1 - order))) / (order - 1)
        losses.append(np.log(p / q).max() - np.log(p / q).min())
    leak = audit_canary(writer, CANARY, tokens, plan=plan, code=1, order=order)
    assert leak.divergence == pytest.approx(max(directions), rel=1e-9)
    np.testing.assert_allclose(leak.losses, losses, rtol=1e-9)
    curve = plan.draw.curve()
    assert leak.price == pytest.approx(3 * dict(zip(curve.orders, curve.rdp, strict=True))[order], rel=1e-12)
    with pytest.raises(ValueError, match="order"):
        audit_canary(writer, CANARY, tokens, plan=plan, order=1.0)


def test_a_canary_that_nobody_shares_uses_the_whole_range_of_a_draw(written):
    writer = written(clip=0.4, n_documents=6)
    tokens = writer.model.tokens("zebra quartz zebra")
    leak = audit_canary(writer, CANARY, tokens, plan=writer.plan(2), order=2)
    assert leak.losses[1:].max() == pytest.approx(writer.plan(2).draw.range, rel=1e-3)
    assert leak.divergence > 0.05 * leak.price


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
