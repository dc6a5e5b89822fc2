"""
Statistics from browsers
========================

Six hundred people each hold one number, how many minutes they spent on a page. A *tally* wants the
distribution. Each browser sends one masked message; keepers hold the masks and add noise. Nobody sees one
person's number.

In reality each role is a process of its own: ``ostraka
collect`` starts them, and a page for browsers comes with it.
"""

import matplotlib.pyplot as plt
import numpy as np

from ostraka import Budget, Ledger, release
from ostraka.collect import Client, Histogram, Keeper, Tally, Task
from ostraka.secure.keys import Identity

rng = np.random.default_rng(0)
minutes = np.clip(rng.gamma(2.0, 14.0, 600), 0, 119)

# %%
# The task is public: what is asked, how much noise, who the keepers are. Any two of three keepers add
# enough noise.

me, others = Identity.fresh(), [Identity.fresh() for _ in range(3)]
task = Task(
    Histogram(0, 120, cells=12),
    sigma=12.0,
    tally=me.public_key,
    keepers=[Keeper.key(one) for one in others],
    honest=2,
    least=300,
)

# %%
# One message from each browser. The tally closes the round, and the keepers answer for the set of
# survivors.

tally = Tally(task, me, keepers=[Keeper(task, one) for one in others])
for value in minutes:
    tally.receive(Client(task).report(float(value)))
sums = tally.close()
print(sums)

# %%
# The noisy sums are released through the same door as everything else.

with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-6)) as ledger:
    answer = release(task.mechanism, sums, ledger=ledger)
    spent = ledger.epsilon()
print("epsilon", round(spent, 2), "for one client; estimated from", tally.n_survivors, "reports")

# %%
# Bars are what the tally learned, dots are the truth, which nobody knew.

truth = np.histogram(minutes, bins=12, range=(0, 120))[0]
figure, axes = plt.subplots(figsize=(6, 3.5))
middles = np.arange(5, 120, 10)
axes.bar(middles, answer, width=9, color="tab:blue", alpha=0.6, label="released")
axes.plot(middles, truth, "k.", label="truth")
axes.set(xlabel="minutes", ylabel="people", title=f"ε = {spent:.2f}, δ = 1e-6")
axes.legend()
plt.show()
