"""
Texts and answers from private notes
====================================

Eighty patients wrote a note about their visit. Nobody may read the notes, but the clinic wants to know what
they complain of. A language model reads each note in a prompt of its own, and the next word is drawn from
what many notes make likely. Here a tiny model of a few words plays the language model, so that this page
needs none. ``ostraka.text.LlamaCpp`` reads a real one from a file.
"""

import matplotlib.pyplot as plt
import numpy as np

from ostraka import Budget, Ledger
from ostraka.text import Prompt, WordModel, Writer, audit_canary

rng = np.random.default_rng(0)
WORDS = ["the", "wait", "was", "long", "phone", "busy", "doctor", "kind", "late", "rude", "zebra"]
ENDINGS = {"complaint": ["wait was long", "phone was busy", "wait was late"], "praise": ["doctor was kind"]}
labels = ["complaint" if row % 4 else "praise" for row in range(80)]
notes = ["the " + str(rng.choice(ENDINGS[label])) for label in labels]

# %%
# A plan says what it costs before anything is asked. Each text takes twenty notes of one class. Other texts
# take other notes while there are some, so that all of them together cost as much as one.

model = WordModel(WORDS, weight=40.0)
prompt = Prompt(ask="{label}:\n", document="{label}:\n{document}\n")
settings = {"classes": ["complaint", "praise"], "n_documents": 20, "n_tokens": 5, "prompt": prompt}
writer = Writer(model, epsilon=8.0, delta=1e-5, **settings).fit(notes, labels)
plan = writer.plan(4)
print(
    f"epsilon {plan.epsilon:.2f} for one note left out; {plan.n_texts} texts, clip {plan.draw.clip:.2f} nats"
)

# %%
# The ledger is charged for whole texts, and then words are drawn. ``rng`` makes this page the same each time,
# and the ledger a simulation. Leave it out for real notes.

with Ledger(":memory:", budget=Budget(epsilon=24.0, delta=1e-5, adaptive=True)) as ledger:
    for written in writer.write(4, ledger=ledger, rng=rng):
        print(f"{written.label}: {written.text}")
    print(f"spent: {ledger.epsilon():.2f}")

    # %%
    # A question is answered from the notes that are near it. Whether a note is near depends on that note and
    # on the question alone, so that one that is left out moves no other. Each question is paid by itself.

    answer = writer.answer("how was the wait", retrieve=20, at=0.4, ledger=ledger, rng=rng)
    print(f"{answer.text!r} for epsilon {answer.epsilon:.2f}; spent: {ledger.epsilon():.2f}")

# %%
# What one note tells, measured: a note with a rare word is planted, and the law of each word with and without
# it is compared with what was paid. Nothing is sampled.

canary, tokens = "the zebra was rude " * 5, model.tokens("the zebra was rude")
epsilons, leaks, prices = (1.0, 2.0, 4.0, 8.0, 16.0), [], []
for epsilon in epsilons:
    tried = Writer(model, epsilon=epsilon, delta=1e-5, **settings).fit(notes, labels)
    leak = audit_canary(tried, canary, tokens, plan=tried.plan(1))
    leaks.append(leak.divergence)
    prices.append(leak.price)
print([f"{100 * leak / price:.0f} %" for leak, price in zip(leaks, prices, strict=True)])

# %%
# No divergence is above its price.

figure, axes = plt.subplots(figsize=(6, 3.5))
axes.loglog(epsilons, prices, "o-", label="price of these draws")
axes.loglog(epsilons, leaks, "s--", label="what the planted note tells")
axes.set(xlabel="ε of a text", ylabel="Rényi divergence of order 8, nats")
axes.legend()
plt.show()
