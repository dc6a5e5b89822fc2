"""
Private texts as examples in prompts
====================================

A language model that sees a private review, with its label, in a prompt is a teacher. Sixty prompts with
other reviews are sixty teachers, who vote on public texts. Here a small function plays the language model,
so that this page needs no network. ``ostraka.voters.Endpoint`` asks a real one.
"""

import zlib

import matplotlib.pyplot as plt
import numpy as np

from ostraka import Budget, GNMax, Ledger, release
from ostraka.voters import PromptEnsemble

GOOD, BAD = ["joy", "delight", "lovely", "bright"], ["dull", "tedious", "stale", "bleak"]


def language_model(prompts: list[str]) -> list[str]:
    """Know the words, but fall for what an example says in one prompt of four."""
    answers = []
    for prompt in prompts:
        *examples, question = prompt.split("Text: ")
        right = "good" if any(word in question for word in GOOD) else "bad"
        fooled = examples and zlib.crc32(prompt.encode()) % 4 == 0
        answers.append(("good" if "Answer: good" in examples[-1] else "bad") if fooled else right)
    return answers


# %%
# Private reviews, dealt to teachers. Each review is in one prompt only, so one review moves one ballot.

rng = np.random.default_rng(0)
labels = np.array(["good", "bad"])[rng.integers(0, 2, 240)]
texts = [f"a {rng.choice(GOOD if label == 'good' else BAD)} evening" for label in labels]
teachers = PromptEnsemble(language_model, model="toy", classes=["bad", "good"], n_teachers=60)
teachers.fit(texts, labels)

# %%
# Public texts, and what it costs to ask about them, before anything is asked.

questions = [f"what a {word} film" for word in GOOD + BAD]
print(teachers.estimate(questions))
votes = teachers.vote(questions)
print(votes)  # votes do not print

# %%
# A mechanism answers, and the ledger is charged first.

with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-5)) as ledger:
    answers = release(GNMax(sigma=8.0), votes, ledger=ledger)
    spent = ledger.epsilon()
print([["bad", "good"][answer] for answer in answers], round(spent, 2))

# %%
# How ε grows with the number of questions, for three amounts of noise.

figure, axes = plt.subplots(figsize=(6, 3.5))
asked = np.arange(1, 41)
for sigma in (5.0, 8.0, 15.0):
    one = GNMax(sigma=sigma).curve()
    axes.plot(asked, [(n * one).epsilon(delta=1e-5) for n in asked.tolist()], label=f"σ = {sigma:g}")
axes.set(xlabel="questions answered", ylabel="ε at δ = 1e-5")
axes.legend()
plt.show()
