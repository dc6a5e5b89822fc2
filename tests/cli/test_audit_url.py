"""ostraka audit deployment: two deployments over HTTP, honest, broken, slow, forgetful and out of budget."""

import contextlib
import json
import time
from collections import Counter

import numpy as np
import pytest

from ostraka import Adjacency, GNMax, Private
from ostraka.audit.answers import Deployment
from tests.cli.terminal import typed
from tests.threads import Handler, http_server

CLAIM = ["--claimed-epsilon", "1", "--delta", "1e-5"]


class Service:
    """Votes behind HTTP, answered by the real mechanism; ``trouble``: statuses to give before answering."""

    def __init__(self, votes, *, sigma=2.0, consistent=False, reply="labels", budget=10**9, key=None):
        self.votes, self.mechanism, self.consistent = votes, GNMax(sigma=sigma), consistent
        self.reply, self.budget, self.key = reply, budget, key
        self.trouble, self.seen, self.keys, self.targets = [], [], [], []
        self.rng = np.random.default_rng(votes)  # of each world its own, and the same in every run
        service = self

        class Labels(Handler):
            protocol_version = "HTTP/1.1"

            def reply(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.keys.append(self.headers["idempotency-key"])
                service.targets.append(self.path)
                status, document = service.answer(body, self.headers.get("authorization"))
                wait = {"retry-after": "0"} if status == 429 else {}
                self.answer(status, json.dumps(document).encode(), wait)

        self.handler = Labels

    def answer(self, body, authorization):
        if self.trouble:
            return self.trouble.pop(0), {"ok": False}
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, {"ok": False}
        n = len(body["rows"])
        if n > self.budget:
            return 402, {"ok": False}
        self.budget -= n
        self.seen += body["rows"]
        rng = np.random.default_rng(7) if self.consistent else self.rng
        votes = Private(np.tile(self.votes, (1 if self.consistent else n, 1)), Adjacency.one_ballot())
        labels = np.broadcast_to(self.mechanism.release(votes, rng=rng), n).tolist()
        if self.reply == "results":
            return 200, {"results": [{"label": label, "abstained": False} for label in labels]}
        return 200, labels if self.reply == "list" else {self.reply: labels}


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start(*arguments, **settings):
            service = Service(*arguments, **settings)
            service.url = (
                f"http://127.0.0.1:{stack.enter_context(http_server(service.handler))}/v1/label?model=1"
            )
            return service

        yield start


@pytest.fixture
def question(tmp_path):
    (tmp_path / "row.json").write_text('[1.5, 2, "blue"]')
    return ["--question", tmp_path / "row.json"]


def audit(output, two, *arguments, partition=("--same-partition",)):
    return typed("audit", "deployment", output.url, two.url, *partition, *arguments)


def test_an_honest_deployment_is_consistent_whatever_the_form_of_its_replies(serve, question):
    worlds = serve([5, 4], reply="results"), serve([4, 5], reply="list")
    code, out, err = audit(*worlds, *question, *CLAIM, "--trials", "4000")
    assert code == 0, err
    assert "CONSISTENT  two deployments, 2 answers seen" in out
    assert "3,600 trials a world" in out
    assert worlds[0].seen[0] == [1.5, 2, "blue"]
    assert [len(world.seen) for world in worlds] == [4000, 4000]


def test_a_broken_deployment_is_found_out_before_the_end(serve, question):
    worlds = serve([5, 4], sigma=0.5), serve([4, 5], sigma=0.5)
    code, out, _ = audit(*worlds, *question, *CLAIM, "--trials", "10000", "--json")
    record = json.loads(out)
    assert (code, record["verdict"]) == (4, "violated")
    assert record["findings"][0]["trials"] < 9000


@pytest.mark.parametrize("votes", [[20, 0], [4, 5]], ids=["far apart", "neighbours"])
def test_deployments_with_partitions_of_their_own_are_never_judged(serve, question, votes):
    """Two honest deployments whose other rows are dealt anew differ by many ballots."""
    worlds = serve([5, 4]), serve(votes)
    code, out, _ = audit(*worlds, *question, *CLAIM, "--trials", "2000", partition=())
    assert code == 5
    assert "INCONCLUSIVE" in out
    assert "Say --same-partition if they did" in out


def test_consistent_answers_are_no_trials(serve, question):
    for votes in ([5, 4], [0, 90]):
        worlds = serve([90, 0], consistent=True), serve(votes, consistent=True)
        code, out, _ = audit(*worlds, *question, *CLAIM, "--trials", "2000")
        assert (code, "one question has one answer" in out) == (5, True)


def test_trouble_passes_and_a_request_sent_again_keeps_its_key(serve, question):
    output, two = serve([5, 4]), serve([4, 5])
    output.trouble = [503, 429]
    code, _, err = audit(output, two, *question, *CLAIM, "--trials", "200")
    assert code in {0, 5}, err
    repeats = Counter(output.keys)
    assert max(repeats.values()) == 3
    assert len(output.seen) == 200


def test_a_spent_budget_ends_the_audit_with_what_there_is(serve, question):
    worlds = serve([5, 4], budget=500), serve([4, 5])
    code, out, _ = audit(*worlds, *question, *CLAIM, "--trials", "4000", "--batch", "50")
    assert code in {0, 5}
    assert "with the target: its budget is spent" in out


def test_the_same_command_goes_on_where_it_was_cut_off(serve, question, tmp_path):
    output, two = serve([5, 4]), serve([4, 5])
    file = tmp_path / "answers.csv"
    command = [*question, *CLAIM, "--trials", "1000", "--record", file]
    two.trouble = [404]
    code, _, err = audit(output, two, *command)
    assert (code, "HTTP 404" in err) == (1, True)
    assert len(output.seen) == 100
    with file.open("a") as end:
        end.write("with,cut sh")
    code, out, err = audit(output, two, *command)
    assert code in {0, 5}, err
    assert (len(output.seen), len(two.seen)) == (1000, 1000)
    before = file.read_text()
    assert audit(output, two, *command)[1] == out
    assert file.read_text() == before
    assert len(output.seen) == 1000
    (tmp_path / "row.json").write_text("[9]")
    code, _, err = audit(output, two, *command)
    assert (code, "answers to another question" in err) == (2, True)


@pytest.mark.parametrize(
    "content",
    [b"{}", b"a,b\n1,2\n3", b"\xff\xfe", b"world,question,answer\nwith,1\nwith", b"world,answer\n1"],
)
def test_a_file_of_something_else_is_no_record_and_stays_as_it_is(tmp_path, content):
    file = tmp_path / "mine"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="something else"):
        asked("http://localhost/v1/label", record=file)
    assert file.read_bytes() == content


@pytest.mark.parametrize("cut", ["", "world,quest"])
def test_a_record_gives_back_what_was_answered_whatever_the_labels_are(serve, tmp_path, monkeypatch, cut):
    service, labels = serve([5, 4]), ["a,b", 'the "c"', "d\u2028e", "", 7]
    monkeypatch.setattr(service, "answer", lambda *_: (200, {"labels": labels}))
    file = tmp_path / "answers.csv"
    file.write_text(cut)
    with asked(service.url, record=file, batch=len(labels)) as deployment:
        answers = deployment.ask(len(labels))
    with asked(service.url, record=file) as deployment:
        assert deployment.ask(len(labels)) == answers == [*labels[:-1], "7"]


def test_the_key_comes_from_the_environment(serve, question, monkeypatch):
    worlds = serve([5, 4], key="s3cret"), serve([4, 5], key="s3cret")
    code, _, err = audit(*worlds, *question, *CLAIM, "--trials", "100")
    assert (code, "HTTP 401" in err) == (1, True)
    monkeypatch.setenv("MY_KEY", "s3cret")
    code, out, err = audit(*worlds, *question, *CLAIM, "--trials", "100", "--key-variable", "MY_KEY")
    assert code in {0, 5}, err
    assert "s3cret" not in out + err


def asked(url, **settings):
    usual = {"world": "with", "key": None, "record": None, "batch": 1, "rate": None}
    return contextlib.closing(Deployment(url, [1], **usual | settings))


def test_no_key_is_sent_in_the_clear():
    with pytest.raises(ValueError, match="https only") as refused:
        asked("http://example.org/v1/label", key="s3cret")
    assert "s3cret" not in str(refused.value)
    with pytest.raises(ValueError, match="must begin with https"):
        asked("ftp://example.org")


def test_an_address_is_asked_with_its_query_if_it_has_one(serve):
    service = serve([5, 4])
    for address in (service.url, service.url.partition("?")[0]):
        with asked(address) as deployment:
            deployment.ask(1)
        assert address.endswith(service.targets[-1])


def test_requests_keep_their_distance(serve):
    with asked(serve([5, 4]).url, rate=20.0) as deployment:
        start = time.monotonic()
        assert len(deployment.ask(5)) == 5
        assert time.monotonic() - start >= 4 / 20


def test_a_deployment_that_is_gone_is_said_so(free_port):
    with (
        asked(f"http://127.0.0.1:{free_port}/v1/label", patience=0.2) as deployment,
        pytest.raises(ValueError, match=r"answered nothing for 0\.2 s"),
    ):
        deployment.ask(1)


@pytest.mark.parametrize(("reply", "label"), [("other", 1), ("labels", [1]), ("labels", "two\nlines")])
def test_replies_of_another_shape_are_refused(serve, monkeypatch, reply, label):
    service = serve([5, 4], reply=reply)
    if reply == "labels":
        monkeypatch.setattr(service, "answer", lambda *_: (200, {"labels": [label]}))
    with asked(service.url) as deployment, pytest.raises(ValueError, match="must reply with"):
        deployment.ask(1)


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("row.json", '{"row": [1, 2]}', [1, 2]),
        ("row.json", '{"age": 30, "job": "baker"}', [30, "baker"]),
        ("row.csv", "age,job\n30,baker\n", [30.0, "baker"]),
        ("row.csv", "1,2\n", [1.0, 2.0]),
        *(
            (name, text, None)
            for name, text in (("row.json", "{"), ("row.json", "[[1]]"), ("row.json", "[]"))
        ),
        ("row.csv", "1\n2\n3\n", None),
    ],
)
def test_the_question_is_a_row_of_json_or_csv(serve, tmp_path, name, text, row):
    (tmp_path / name).write_text(text)
    worlds = serve([5, 4]), serve([4, 5])
    code, *_ = audit(*worlds, "--question", tmp_path / name, *CLAIM, "--trials", "40")
    assert worlds[0].seen[:1] == ([] if row is None else [row])
    assert (code == 1) is (row is None)


def test_what_is_missing_or_wrong_is_a_matter_of_usage(serve, question):
    worlds = serve([5, 4]), serve([4, 5])
    for option, value in (("--delta", 2), ("--trials", 5), ("--batch", 0), ("--rate", 0), ("--until", 0)):
        assert audit(*worlds, *question, *CLAIM, option, value)[0] == 2, option
    assert audit(*worlds, *question)[0] == 2
    assert worlds[0].seen == []
