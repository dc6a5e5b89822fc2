"""Audits of private text: what a document that was planted changes in the law of each token."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.text.models import Token
    from ostraka.text.writer import Plan, Writer


class CanaryLeak(NamedTuple):
    """What a text tells of one document: exact divergences of the draws' laws, no sampling. For the owner.

    Attributes
    ----------
    divergence : float
        Rényi divergence of the given order, the larger direction, summed along the text, nats.
    price : float
        What the curve of these draws allows at this order.
    losses : array of shape (n_tokens,)
        The range of the loss of each draw: at most the range that is paid for.
    """

    divergence: float
    price: float
    losses: np.ndarray


def audit_canary(
    writer: Writer, canary: str, tokens: Sequence[Token], *, plan: Plan, code: int = 0, order: float = 8.0
) -> CanaryLeak:
    """Plant a document in the first batch of a class, and compare the law of each token with and without it.

    Parameters
    ----------
    writer : Writer
        With its documents.
    canary : str
        The document, such as a rare string many times. It takes the first place of the batch.
    tokens : sequence of Token
        A text along which the laws are compared: one that was written, or the canary itself.
    plan : Plan
        Of :meth:`Writer.plan`: says how tokens are drawn.
    code : int
        The class.
    order : float > 1
        Of the divergence.

    Guarantees
    ----------
    Exact for this document, these others and this text: a lower bound on what the mechanism may leak, and at
    most its price. A number above the price is a defect.

    Examples
    --------
    >>> from ostraka.text import WordModel, Writer
    >>> model = WordModel(["zebra", "quartz", "tea"])
    >>> writer = Writer(model, classes=["note"], n_documents=8, n_tokens=4, clip=1.0)
    >>> writer = writer.fit(["tea"] * 8, ["note"] * 8)
    >>> leak = audit_canary(writer, "zebra quartz " * 9, model.tokens("zebra quartz"), plan=writer.plan(1))
    >>> 0 < leak.divergence <= leak.price
    True
    """
    check.positive(order=order - 1)
    divergence, losses = np.zeros(2), []
    for t in range(len(tokens)):
        place = writer.position(tokens[:t], code=code)
        silent = plan.draw.contributions(place.differences)
        silent[0] = 0
        planted = silent.copy()
        planted[0] = plan.draw.contributions(writer.differences(canary, tokens[:t], code=code)[None])[0]
        draw = plan.draw.at(place.public)
        p, q = (draw.log_outcomes(contributions.sum(axis=0)) for contributions in (planted, silent))
        for direction, (a, b) in enumerate(((p, q), (q, p))):
            divergence[direction] += logsumexp(order * a + (1 - order) * b) / (order - 1)
        losses.append(float(np.ptp(p - q)))
    curve = plan.draw.curve()
    price = len(tokens) * float(np.interp(order, curve.orders[:-1], curve.rdp[:-1]))
    return CanaryLeak(float(divergence.max()), price, np.array(losses))
