"""A refusal follows from public costs alone: the fourth promise of docs/service.md."""

from ostraka import GNMax
from ostraka.voters.kinds import LinearTeachers
from tests.serve.conftest import ONE, deploy, rows, serving


def spent(tmp_path, saved, *, epsilon) -> object:
    """A service whose budget pays for so many answers."""
    return deploy(tmp_path, saved, epsilon=epsilon * saved.mechanism.curve().epsilon(1e-6))


def constant_headers(reply) -> list[tuple[str, str]]:
    """The headers, without the time of day and without the random name of the request."""
    return sorted(header for header in reply.headers.items() if header[0] not in {"date", "ostraka-request"})


def test_refusals_depend_on_public_costs_alone(tmp_path, saved, monkeypatch):
    worked = []
    for kind, name in ((LinearTeachers, "counts"), (GNMax, "release")):
        plain = getattr(kind, name)

        def noted(self, *arguments, plain=plain, name=name, **how):
            worked.append(name)
            return plain(self, *arguments, **how)

        monkeypatch.setattr(kind, name, noted)
    X = rows(200, seed=5)
    strength = saved.ensemble.vote(X).open().max(axis=1)
    clear, close = X[strength.argmax()], X[strength.argmin()]
    with serving(spent(tmp_path, saved, epsilon=1.05)) as service:
        answered = service.label(key="first")
        once = list(worked)
        head = service.there.ledger.head
        replies = []
        for number, row in enumerate([clear, close, [8.0, 8.0, 8.0]]):
            worked.clear()
            replies.append(service.label(row, key=f"k{number}"))
            assert worked == once, "as much work as for an answer"
        assert answered.status_code == 200
        assert {reply.status_code for reply in replies} == {402}
        assert len({(reply.content, *constant_headers(reply)) for reply in replies}) == 1
        assert service.there.ledger.head == head, "a refusal costs nothing"


def test_a_spent_client_and_a_spent_dataset_are_refused_in_the_same_words(tmp_path, saved):
    refusals = set()
    price = saved.mechanism.curve().epsilon(1e-6)
    for name, epsilon, cap in (("dataset", 1.05 * price, 20.0), ("client", 50.0, 1.05 * price)):
        folder = tmp_path / name
        folder.mkdir()
        with serving(deploy(folder, saved, epsilon=epsilon, clients={"alice": cap})) as service:
            service.label(key="first")
            refusals.add(service.label([5.0, 5.0, 5.0], key="second").content)
    assert len(refusals) == 1


def test_a_question_asked_before_is_no_more_granted_than_a_new_one(tmp_path, saved):
    with serving(spent(tmp_path, saved, epsilon=1.05)) as service:
        first = service.label(key="k")
        assert first.status_code == 200
        repeat, new = (service.label(row, key=f"k{row[0]}", who="bob") for row in (ONE, [7.0, 7.0, 7.0]))
        assert repeat.status_code == new.status_code == 402
        assert repeat.content == new.content
        assert service.label(key="k").json() == first.json(), (
            "what is paid is given again though nothing is left"
        )
