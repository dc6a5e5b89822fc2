"""Canary documents, in and out: exact divergences along a text stay within the price, and come near."""

import numpy as np
import pytest

from ostraka.text import audit_canary

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


def test_a_canary_that_says_what_all_say_leaks_less(written):
    writer = written(clip=3.0, n_documents=12)
    tokens = writer.model.tokens("zebra quartz")
    rare, common = (
        audit_canary(writer, text, tokens, plan=writer.plan(2), code=1)
        for text in (CANARY, "the acting is warm")
    )
    assert common.divergence < rare.divergence
    assert np.isfinite(rare.divergence)
