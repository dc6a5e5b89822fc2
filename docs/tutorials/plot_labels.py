"""
Only the labels are private
===========================

Who saw an advertisement is known; whether they bought is not. Then neither teachers nor public rows are
needed: each label answers once for itself, with noise, and a model learns from the answers. The protected
unit is one label. Features are **not** protected here.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.mechanisms import RandomizedResponse

rng = np.random.default_rng(0)
seen = rng.normal(size=(20_000, 4))
bought = (seen @ [1.5, -1.0, 0.5, 0.0] + rng.normal(0, 0.7, 20_000) > 0).astype(int)
rows, new = slice(0, 15_000), slice(15_000, None)

# %%
# All labels together are one use of the mechanism: each of them is asked once. That is a plan made in
# advance, so the ledger need not allow for questions chosen by earlier answers: ``adaptive=False``.


def learned(epsilon: float) -> float:
    """Accuracy of a logistic regression that saw noisy labels only."""
    labels = Private(bought[rows], Adjacency.one_label())
    mechanism = RandomizedResponse(n_classes=2, epsilon=epsilon)
    budget = Budget(epsilon=epsilon, delta=1e-6, adaptive=False)
    with Ledger(":memory:", budget=budget) as ledger:
        answers = release(mechanism, labels, ledger=ledger)
    soft = mechanism.posterior(answers, np.full((len(answers), 2), 0.5))
    doubled = np.vstack([seen[rows], seen[rows]])
    each = np.repeat([0, 1], len(answers))
    model = LogisticRegression().fit(doubled, each, sample_weight=soft.T.ravel())
    return model.score(seen[new], bought[new])


epsilons = (0.1, 0.25, 0.5, 1.0, 2.0)
accuracy = [learned(epsilon) for epsilon in epsilons]
print(dict(zip(epsilons, accuracy, strict=True)))

# %%
# Networks learn more from the same answers, by ALIBI or LP-MST (see *Learning from private labels*). Beside
# accuracy stands how often one answer is the true label.

honest = [np.exp(epsilon) / (1 + np.exp(epsilon)) for epsilon in epsilons]
figure, axes = plt.subplots(figsize=(6, 3.5))
axes.plot(epsilons, accuracy, marker="o", label="model that learned from the answers")
axes.plot(epsilons, honest, marker="s", linestyle=":", label="one answer is the true label")
axes.axhline(LogisticRegression().fit(seen[rows], bought[rows]).score(seen[new], bought[new]), color="grey")
axes.set(xlabel="ε for one label (δ = 0)", ylabel="share", xscale="log", ylim=(0.45, 1))
axes.legend()
plt.show()
