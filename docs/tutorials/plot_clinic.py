"""
A clinic's table, protected by person
=====================================

A clinic has visits of patients, several for each patient, and wants a model of readmission that anybody may
use. One **patient** is to be protected, with all visits. The rows here are generated.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ostraka import PATEClassifier


def visits(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows, whether the patient came back, and whose row it is."""
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, n // 3, n))
    age = rng.integers(20, 90, n // 3)[patient]
    ward = rng.choice(["surgery", "heart", "children"], n)
    days = rng.poisson(4, n)
    again = age / 20 + days / 3 + 1.5 * (ward == "heart") + rng.normal(0, 1, n) > 5
    return pd.DataFrame({"age": age, "ward": ward, "days": days}), np.where(again, "yes", "no"), patient


# %%
# The clinic's own rows are private. Rows that anybody may know, of the same columns, are public; they need
# no labels. Here we know their labels, to measure with.

rows, came_back, patient = visits(6000, seed=0)
public, _, _ = visits(800, seed=1)
new, truth, _ = visits(2000, seed=2)

# %%
# ``way="counts"`` lets each patient cast one ballot in all, whatever the number of visits. One noisy table
# leaves. ``groups`` says whose row it is, so that the unit is a person.

accuracy = {}
for epsilon in (0.25, 0.5, 1.0, 2.0):
    model = PATEClassifier(way="counts", epsilon=epsilon, delta=1e-5, classes=["no", "yes"])
    model.fit(rows, came_back, X_public=public, groups=patient)
    accuracy[epsilon] = model.score(new, truth)
print(model.result_)

# %%
# The record names the unit, and states both bounds: what is proved to leak at most, and what a simulated
# adversary learned at least.

result = model.audit()
print(result.settings["unit"], round(result.upper["epsilon"], 2), round(result.lower["epsilon"], 2))

# %%
# More privacy (a smaller ε) costs accuracy. The grey line is a model that always says the commonest answer.

majority = max((truth == "yes").mean(), (truth == "no").mean())
figure, axes = plt.subplots(figsize=(6, 3.5))
axes.plot(list(accuracy), list(accuracy.values()), marker="o")
axes.axhline(majority, color="grey", linestyle=":")
axes.set(xlabel="ε for one patient, δ = 1e-5", ylabel="accuracy on new visits", ylim=(0.5, 1), xscale="log")
plt.show()
