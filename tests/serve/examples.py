"""Example pages of the owner: one of a busy service, and those that are hard to draw."""

from ostraka import GNMax
from ostraka.serve.counts import AnswerView, QuestionView
from ostraka.serve.owner import (
    ClientView,
    CostView,
    LedgerView,
    Overview,
    RefusalView,
)

AT = 1_795_000_000  # 2026-11-18
HEAD = "5f" * 32
HARMFUL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
DIGEST = "0123456789abcdef" * 4
LABEL = {
    "claim": "What was released multiplies odds by at most 7.39.",
    "epsilon": 2.0,
    "delta": 1e-5,
    "unit": "person",
    "relation": "replace-one",
    "n_units": 1297,
    "mechanism": "GNMax(sigma=40.0)",
    "screen": None,
    "accountant": "tight Rényi curves",
    "noise": "ChaCha20",
    "simulation": False,
    "lower": None,
    "not_protected": ["the number of rows"],
}


def client(name: str = "alice", *, spent: float = 1.5, cap: float = 2.0, **changes) -> ClientView:
    fields = {"answers": 1_200, "abstained": 133, "repeats": 60, "valid_keys": 1, "answers_left": 400}
    fields |= {"in_a_day": 300, "seconds_to_empty": 115_200.0, **changes}
    return ClientView(name=name, cap=cap, spent=spent, left=cap - spent, **fields)


def answer(seq: int, name: str = "alice", **changes) -> AnswerView:
    fields = {"digest": DIGEST, "mechanism": "GNMax(sigma=30.0)", "epsilon": 0.08123, "abstained": False}
    fields |= {"repeated": False, "epsilon_after": 3.41231, "at": AT - 60, **changes}
    return AnswerView(seq=seq, client=name, **fields)


def refusal(name: str, code: str, times: int) -> RefusalView:
    return RefusalView(client=name, code=code, times=times, at=AT - 600)


def overview(**changes) -> Overview:
    """A service that has been asked a lot."""
    ledger = {"entries": 5_000, "head": HEAD, "verified": True, "simulation": False}
    ledger |= changes.pop("ledger", {})
    ledger.setdefault("counted", ledger["entries"])
    fields = {
        "mechanism": "GNMax(sigma=30.0)",
        "screen": None,
        "unit": "person",
        "relation": "replace-one",
        "epsilon": 5.0,
        "delta": 1e-6,
        "spent": 3.41231,
        "left": 1.58769,
        "answers_left": 1_400,
        "in_a_day": 350,
        "seconds_to_empty": 345_600.0 * 3,
        "at": AT,
        "since": AT - 400_000,
        "problems": (),
        "history": tuple((10 * n, 3.41231 * (n / 500) ** 0.5, AT - 8_000 * (500 - n)) for n in range(1, 501)),
        "clients": (
            client(latest=(answer(5_000), answer(4_998, abstained=True))),
            client("bob", spent=1.9, answers=17),
        ),
        "costs": (CostView(mechanism="GNMax(sigma=30.0)", epsilon=0.08123, answers=1_217),),
        "repeated": (
            QuestionView(digest=DIGEST, times=400, repeaters=2, abstained=False),
            QuestionView(digest="ff" * 32, times=2, repeaters=1, abstained=True),
        ),
        "refusals": (refusal("", "unauthorized", 3), refusal("alice", "budget_exceeded", 12)),
        "latest": tuple(answer(5_000 - n) for n in range(20)),
        "n_teachers": 100,
        "n_classes": 3,
        "ballot": GNMax(sigma=30.0),
        "ledger": LedgerView(**ledger),
        "label": LABEL,
    }
    return Overview(**{**fields, **changes})


def nothing_yet() -> Overview:
    return overview(
        spent=0.0, left=5.0, history=(), clients=(), costs=(), repeated=(), refusals=(), latest=(),
        label=None, ledger={"entries": 1}, answers_left=5_000, in_a_day=0, seconds_to_empty=None,
    )  # fmt: skip


def spent() -> Overview:
    history = tuple((10 * n, 4.9999 * (n / 500) ** 0.5, AT - 8_000 * (500 - n)) for n in range(1, 501))
    nobody = tuple(
        client(name, spent=cap, cap=cap, answers_left=0) for name, cap in (("alice", 2.0), ("bob", 3.0))
    )
    return overview(
        spent=4.9999, left=0.0001, history=history, answers_left=0, seconds_to_empty=0.0, clients=nobody,
        problems=("the disk of the ledger is almost full",),
    )  # fmt: skip


def alarming() -> Overview:
    names = (client(HARMFUL), client("w" * 5_000, spent=0.1), client("\u202egnorw", spent=0.2))
    history = tuple((10 * n, 3.41231 * (n / 400) ** 0.5, None) for n in range(1, 401))
    label = {**LABEL, "claim": HARMFUL, "simulation": True, "not_protected": [HARMFUL]}
    return overview(
        history=history,
        clients=names,
        latest=(answer(7, HARMFUL, digest=HARMFUL, mechanism=HARMFUL),),
        refusals=(refusal(HARMFUL, HARMFUL, 1),),
        problems=(HARMFUL,),
        costs=(CostView(mechanism=HARMFUL, epsilon=0.1, answers=1),),
        mechanism=HARMFUL,
        screen=HARMFUL,
        unit=HARMFUL,
        label=label,
        ledger={"head": HARMFUL, "verified": False, "simulation": True, "counted": 4_000},
    )


PAGES = {"busy": overview, "empty": nothing_yet, "spent": spent, "alarming": alarming}
