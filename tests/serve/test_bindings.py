"""A ledger counts for its teachers, noise and secret only, and the same question has the same answer.

The tenth and eleventh promise of docs/service.md.
"""

import dataclasses
import os
import re
import stat

import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, GNMax, LNMax, Threshold
from ostraka.ledger import LedgerError
from tests.serve.conftest import PEPPER, deploy, rows, serving

# 10. Another partition is another account


def test_a_ledger_counts_for_its_teachers_noise_and_secret_only(tmp_path, saved):
    folder, budget = tmp_path / "service", Budget(epsilon=3.0, delta=1e-6, adaptive=True)
    deploy(tmp_path, saved, budget=budget).there.ledger.close()

    def refused(words, *, sha256=saved.sha256, **changes):
        changed = dataclasses.replace(saved, **changes)
        object.__setattr__(changed, "sha256", sha256)
        with pytest.raises(LedgerError, match=words):
            deploy(tmp_path, changed, budget=budget)

    refused("other noise", mechanism=GNMax(sigma=31.0))
    refused("other noise", mechanism=LNMax(scale=30.0))
    refused("other noise", screen=Threshold(at=20.0, sigma=30.0))
    refused("not those that this service began with", sha256="0" * 64)
    deploy(tmp_path, saved, budget=budget).there.ledger.close()
    mac, secret = ((folder / name).read_bytes() for name in ("teachers.mac", "answers.secret"))
    (folder / "teachers.mac").unlink()
    refused("type the --sigma and --screen with which it was begun", sha256="0" * 64)
    (folder / "teachers.mac").write_bytes(mac)
    (folder / "answers.secret").write_bytes(secret[::-1])
    refused("another secret")


def test_a_ledger_that_is_served_is_not_served_again(tmp_path, saved):
    first = deploy(tmp_path, saved)
    with pytest.raises(LedgerError, match="is open for writing elsewhere: stop that"):
        deploy(tmp_path, saved)
    first.there.ledger.close()
    deploy(tmp_path, saved).there.ledger.close()


def test_a_budget_that_does_not_pay_for_one_answer_or_for_a_screen_is_refused_at_the_start(tmp_path, saved):
    price = saved.mechanism.curve().epsilon(1e-6)
    with pytest.raises(BudgetExceeded, match="does not pay for one answer of GNMax"):
        deploy(tmp_path, saved, budget=Budget(epsilon=0.99 * price, delta=1e-6, adaptive=False))
    deploy(tmp_path, saved, epsilon=50.0).there.ledger.close()  # no ledger was begun with the small one
    (tmp_path / "other").mkdir()
    screened = dataclasses.replace(saved, screen=Threshold(at=20.0, sigma=30.0))
    with pytest.raises(LedgerError, match="begun for a service without a screen"):
        deploy(tmp_path / "other", screened, budget=Budget(epsilon=50.0, delta=1e-6, adaptive=False))


def test_a_question_under_other_noise_is_another_question(tmp_path, saved):
    named = set()
    for number, mechanism in enumerate((GNMax(sigma=30.0), GNMax(sigma=31.0))):
        folder = tmp_path / str(number)
        (folder / "service").mkdir(parents=True)
        (folder / "service" / "answers.secret").write_bytes(b"s" * 32)
        with serving(deploy(folder, dataclasses.replace(saved, mechanism=mechanism))) as service:
            service.label(key="k")
            named |= {entry.digest for entry in service.entries()}
    assert len(named) == 2


# 11. Same question, same answer


def test_a_question_has_one_answer_across_clients_keys_spellings_and_restarts(tmp_path, saved):
    row = rows(1, seed=9)[0]
    spelled = [row.tolist(), np.float32(row).tolist(), (row + 1e-9).tolist()]
    answers, spent_after = set(), []
    for _ in range(2):
        with serving(deploy(tmp_path, saved)) as service:
            for number, spelling in enumerate(spelled):
                for who in ("alice", "bob"):
                    key = f"{number}-{os.urandom(4).hex()}"
                    answers.add(service.label(spelling, key=key, who=who).json()["label"])
            spent_after.append(service.there.ledger.epsilon())
            assert len({entry.digest for entry in service.entries()}) == 1
    assert len(answers) == 1
    assert spent_after == [pytest.approx(saved.mechanism.curve().epsilon(1e-6), rel=1e-6)] * 2


def test_a_question_asked_before_cannot_be_distinguished_from_a_new_one(service):
    X = rows(3, seed=11)
    service.label(X[0], key="k", who="bob")
    with service.http() as http:
        spending = [http.get("/v1/budget").json()["spent"]]
        replies = []
        for number, row in enumerate((X[0], X[1])):
            replies.append(service.label(row, key=f"k{number}"))
            spending.append(http.get("/v1/budget").json()["spent"])
    repeat, new = replies
    price = service.there.saved.mechanism.curve()
    assert spending == [pytest.approx((n * price).epsilon(1e-6) if n else 0.0, rel=1e-6) for n in range(3)]
    assert repeat.headers.keys() == new.headers.keys()
    assert re.sub(r'"[0-9a-z]+"|\d+', "…", repeat.text) == re.sub(r'"[0-9a-z]+"|\d+', "…", new.text)
    first, second = (reply.json()["receipt"]["seq"] for reply in replies)
    assert second == first + 1


def test_answers_can_be_drawn_again_only_with_the_secret_of_the_folder(tmp_path, saved):
    deploy(tmp_path, saved).there.ledger.close()
    for name in ("answers.secret", "ledger.secret"):
        path = tmp_path / "service" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.read_bytes()) == 32
    assert stat.S_IMODE((tmp_path / "service").stat().st_mode) == 0o700
    assert PEPPER not in b"".join(path.read_bytes() for path in (tmp_path / "service").iterdir())
