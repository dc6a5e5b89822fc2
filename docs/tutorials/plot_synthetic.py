"""
A synthetic table
=================

Rows to hand out which have the columns and the relations of a private table, but nobody's own row. Counts
of combinations of columns are released with noise, and rows are sampled that agree with them.
"""

import matplotlib.pyplot as plt
import numpy as np

from ostraka.synth import Schema, TableGenerator

rng = np.random.default_rng(0)
age = rng.integers(18, 90, 8000)
smokes = rng.random(8000) < np.where(age < 50, 0.4, 0.15)
ill = age / 30 + 1.5 * smokes + rng.normal(0, 0.7, 8000) > 3
table = {"age": age, "smokes": np.where(smokes, "yes", "no"), "ill": np.where(ill, "yes", "no")}

# %%
# The schema is public. It must not be read off the private rows: a category that one person has would tell.

schema = Schema.from_dict(
    {
        "age": {"edges": [18, 30, 40, 50, 60, 70, 90], "whole": True},
        "smokes": {"categories": ["no", "yes"]},
        "ill": {"categories": ["no", "yes"]},
    }
)

# %%
# All counts cost ε = 1 together. Sampling costs nothing, however many rows are sampled.

generator = TableGenerator(schema, target="ill", epsilon=1.0, delta=1e-5).fit(table)
copy = generator.sample(8000, random_state=0)
print("epsilon", round(generator.result_.upper["epsilon"], 3))
print({name: values[:5].tolist() for name, values in copy.items()})

# %%
# How many fall ill, by age and by smoking: in the private rows and in the copy.

edges = np.array([18, 30, 40, 50, 60, 70, 90])
figure, both = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
for axes, habit in zip(both, ("no", "yes"), strict=True):
    for rows, style, name in ((table, "-o", "private"), (copy, "--s", "synthetic")):
        chosen = np.asarray(rows["smokes"]) == habit
        place = np.digitize(np.asarray(rows["age"], dtype=float)[chosen], edges[1:-1])
        sick = np.asarray(rows["ill"])[chosen] == "yes"
        share = [sick[place == k].mean() if (place == k).any() else np.nan for k in range(6)]
        axes.plot(edges[:-1], share, style, label=name)
    axes.set(xlabel="age", title=f"smokes: {habit}")
both[0].set_ylabel("share that is ill")
both[0].legend()
plt.show()
