"""
A private service behind a proxy
================================

``ostraka serve`` answers questions over HTTP, each paid for durably before its answer leaves. This tutorial
makes a run, opens the service as a deployment does, writes the proxy's settings and asks questions. A
server would run ``ostraka serve run --behind-proxy --proxy 127.0.0.1``; here everything stays in one
folder.

It needs ``pip install '.[service]'``.
"""

import contextlib
import io
import os
import secrets
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import ostraka.cli
from ostraka import Budget, BudgetExceeded, GNMax, Ledger, release
from ostraka.voters import SavedTeachers

folder = Path(tempfile.mkdtemp())
os.environ["OSTRAKA_PEPPER"] = secrets.token_hex(32)


def ostraka_command(*words: str) -> str:
    """What a command prints."""
    output, code = io.StringIO(), 0
    with contextlib.redirect_stdout(output):
        try:
            ostraka.cli.main(list(words))
        except SystemExit as end:
            code = end.code
    if code:
        raise RuntimeError(f"ostraka {words[0]} ended with exit code {code}")
    return output.getvalue()


# %%
# A run that keeps its teachers, a client's key and the proxy's settings.

run = str(folder / "run")
ostraka_command("learn", "--teachers", "100", "--answers", "40", "--keep-teachers", "--out", run)
print(ostraka_command("serve", run, "--epsilon", "8", "--delta", "1e-5", "--sigma", "25", "--check"))
ostraka_command("keys", "add", run, "alice", "--epsilon", "2")
print(ostraka_command("serve", run, "--nginx", "labels.example.org")[:700])

# %%
# What the service does with a question: the teachers vote, the ledger is charged, the answer leaves. When
# the budget is spent, the next question is refused and nothing leaves.

teachers = SavedTeachers.load(Path(run) / "teachers").ensemble
X, y = load_digits(return_X_y=True)
mechanism, spent, right = GNMax(sigma=25.0), [], []
with Ledger(folder / "service.sqlite", budget=Budget(epsilon=3.0, delta=1e-5)) as ledger:
    try:
        for number in range(400):
            (answer,) = release(mechanism, teachers.vote(X[number : number + 1]), ledger=ledger)
            right.append(answer == y[number])
            spent.append(ledger.epsilon())
    except BudgetExceeded as refused:
        print(len(spent), "answered, then:", refused)

# %%
# The balance over time.

figure, axes = plt.subplots(figsize=(6, 3.5))
axes.step(range(1, len(spent) + 1), spent, where="post")
axes.axhline(3.0, color="grey", linestyle=":")
axes.set(
    xlabel="questions", ylabel="ε spent at δ = 1e-5", title=f"{100 * sum(right) / len(right):.0f} % right"
)
plt.show()
