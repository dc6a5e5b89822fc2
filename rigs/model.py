"""The ledger against a plain model of what was promised, by random walks (hypothesis).

The model keeps lists and counts, and asks the curves' own arithmetic whether something fits. The control is a
ledger that now and then charges a client's question twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ostraka import Budget, BudgetExceeded, GNMax, Ledger
from ostraka.core.ledger.budget import KeyConflict
from ostraka.core.ledger.chain import Receipt
from ostraka.ledger import ChargeRequest, LedgerError
from rigs import charging
from rigs.finding import Finding, apart

__all__ = ["find"]

MECHANISMS = [GNMax(sigma=sigma) for sigma in (60.0, 90.0, 200.0)]
CURVES = [mechanism.curve() for mechanism in MECHANISMS]
BUDGET = Budget(epsilon=1.0, delta=1e-6, adaptive=False)  # the rule that the model knows
ACCOUNTS, KEYS, QUESTIONS = ("a", "b", "c"), tuple("klmnop"), range(12)
Spent = tuple[int, ...]


def epsilon(spent: Spent) -> float:
    curves = [n * curve for n, curve in zip(spent, CURVES, strict=True) if n]
    return sum(curves[1:], curves[0]).epsilon(BUDGET.delta) if curves else 0.0


def more(spent: Spent, mechanism: int) -> Spent:
    return tuple(n + (i == mechanism) for i, n in enumerate(spent))


@dataclass
class Model:
    """The state that a ledger has to remember."""

    spent: Spent = (0, 0, 0)
    caps: dict[str, float] = field(default_factory=dict)
    clients: dict[str, Spent] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, (0, 0, 0)))
    keyed: dict[tuple[str, str], tuple[str, int, int]] = field(default_factory=dict)  # digest, seq, answer
    first: dict[str, int] = field(default_factory=dict)  # digest: answer
    entries: int = 0

    def ask(self, request: ChargeRequest, cost: int, reserve: int) -> tuple[str, int, int]:
        """Return the reply that the ledger must give: kind, number, answer."""
        if entry := self.keyed.get((request.account, request.key)):
            return ("receipt", entry[1], entry[2]) if entry[0] == request.digest else ("conflict", 0, 0)
        new, client = request.digest not in self.first, self.clients[request.account]
        fits = request.account in self.caps and epsilon(more(client, reserve)) <= self.caps[request.account]
        if not fits or epsilon(more(self.spent, reserve)) > BUDGET.epsilon:  # a known question as a new one
            return "refused", 0, 0
        self.spent = more(self.spent, cost) if new else self.spent
        self.clients[request.account] = more(client, cost)
        self.entries += 1
        answer = self.first.setdefault(request.digest, request.answer)
        self.keyed[request.account, request.key] = (request.digest, self.entries, answer)
        return "receipt", self.entries, answer


class Walk(RuleBasedStateMachine):
    """One ledger, in a file, by random steps."""

    steps = 0
    granted = 0

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.model = Model()
        self.heads: list[str] = []
        self.ledger = self.opened()
        self.heads.append(self.ledger.head)

    def opened(self) -> Ledger:
        where = Path(self.folder.name) / charging.NAME
        return Ledger(where, budget=BUDGET, secret=charging.SECRET, owner=True)

    @rule(account=st.sampled_from(ACCOUNTS), cap=st.sampled_from([0.05, 0.2, 0.5, 3.0]))
    def grant(self, account: str, cap: float) -> None:
        seq = self.ledger.grant(account, budget_epsilon=cap)
        self.model.caps[account] = min(cap, BUDGET.epsilon)  # nobody has more than there is
        self.model.entries += 1
        assert seq == self.model.entries
        self.agree()

    @rule(
        questions=st.lists(
            st.tuples(
                st.sampled_from(ACCOUNTS),
                st.sampled_from(KEYS),
                st.sampled_from(QUESTIONS),
                st.integers(0, 2),
                st.integers(0, 2),
                st.integers(-1, 9),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def ask(self, questions: list[tuple[str, str, int, int, int, int]]) -> None:
        requests, expected = [], []
        for account, key, question, mechanism, other, answer in questions:
            reserve, cost = sorted((mechanism, other))  # the smaller sigma costs more
            request = ChargeRequest(
                account=account,
                key=key,
                digest=f"{question:02x}",
                cost=MECHANISMS[cost],
                reserve=MECHANISMS[reserve],
                answer=answer,
            )
            requests.append(request)
            expected.append(self.model.ask(request, cost, reserve))
        got = self.charged(requests)
        assert [outcome(reply) for reply in got] == expected
        Walk.granted += sum(kind == "receipt" for kind, *_ in expected)
        self.agree()

    def charged(self, requests: list[ChargeRequest]) -> list[Any]:
        return self.ledger.charge_each(requests)

    @rule(mechanism=st.integers(0, 2), uses=st.integers(0, 3))
    def charge(self, mechanism: int, uses: int) -> None:
        after = self.model.spent
        for _ in range(uses):
            after = more(after, mechanism)
        try:
            seq = self.ledger.charge(MECHANISMS[mechanism], uses=uses, unit="row", simulation=False)
        except BudgetExceeded:
            assert epsilon(after) > BUDGET.epsilon
        else:
            assert epsilon(after) <= BUDGET.epsilon
            self.model.spent, self.model.entries = after, self.model.entries + 1
            assert seq == self.model.entries
        self.agree()

    @rule()
    def reopen(self) -> None:
        head = self.ledger.head
        self.ledger.close()
        self.ledger = self.opened()
        assert self.ledger.head == head

    @rule()
    def verify(self) -> None:
        self.ledger.verify()
        entries = self.ledger.entries()
        assert [entry.seq for entry in entries] == list(range(1, self.model.entries + 1))

    @precondition(lambda self: self.model.keyed)
    @rule(data=st.data())
    def receipt(self, data: st.DataObject) -> None:
        (account, _), (_, seq, answer) = data.draw(st.sampled_from(sorted(self.model.keyed.items())))
        receipt = self.ledger.receipt(seq)
        assert (receipt.seq, receipt.answer) == (seq, answer)
        assert near(receipt.left, max(0.0, self.model.caps[account] - epsilon(self.model.clients[account])))

    def agree(self) -> None:
        Walk.steps += 1
        assert near(self.ledger.epsilon(), epsilon(self.model.spent))
        assert self.ledger.epsilon() <= BUDGET.epsilon
        accounts = {account.name: account for account in self.ledger.accounts()}
        assert {name: account.cap for name, account in accounts.items()} == self.model.caps
        for name, account in accounts.items():
            assert near(account.spent, epsilon(self.model.clients[name]))

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            with contextlib.suppress(LedgerError):
                self.ledger.close()
            self.folder.cleanup()


class Doubling(Walk):
    """The control: the first question of a list is charged twice, under another key."""

    def charged(self, requests: list[ChargeRequest]) -> list[Any]:
        got = super().charged(requests)
        if isinstance(got[0], Receipt) and len(requests) > 2:
            first = requests[0]
            self.ledger.charge_each(
                [
                    ChargeRequest(
                        account=first.account,
                        key=first.key + "+",
                        digest=first.digest,
                        cost=first.cost,
                        reserve=first.reserve,
                        answer=first.answer,
                    )
                ]
            )
        return got


def outcome(got: object) -> tuple[str, int, int]:
    match got:
        case Receipt(seq=seq, answer=answer):
            return "receipt", seq, answer
        case KeyConflict():
            return "conflict", 0, 0
        case BudgetExceeded():
            return "refused", 0, 0
    raise AssertionError(got)


def near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9


def find(*, steps: int) -> Finding:
    """Walks of the ledger and of the control."""
    facts = apart("model", "--steps", steps)
    noticed = apart("model", "--steps", 500, "--doubling")["wrong"]
    return Finding(
        tried=f"{facts['steps']:,} steps, {facts['granted']:,} questions granted",
        wrong=Counter(facts["wrong"]),
        control="a ledger that charges twice is noticed"
        if noticed
        else "a ledger that charges twice is not noticed",
        blind=not noticed,
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--doubling", action="store_true")
    chosen = options.parse_args(arguments)
    length = min(50, max(20, chosen.steps // 6))
    how = settings(
        max_examples=max(6, chosen.steps // length),  # fewer may all be empty walks, and are so each time
        stateful_step_count=length,
        deadline=None,
        database=None,
        derandomize=chosen.steps < 10_000,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    wrong = Counter[str]()
    machine = Doubling if chosen.doubling else Walk
    while machine.steps < chosen.steps and not wrong:
        try:
            run_state_machine_as_test(machine, settings=how)
        except AssertionError as error:
            traceback.print_exc()
            wrong[str(error).splitlines()[0] if str(error) else "the model and the ledger differ"] += 1
    print(json.dumps({"steps": Walk.steps, "granted": Walk.granted, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1:])
