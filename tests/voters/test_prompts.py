"""Prompts: disjoint demonstrations, one ballot a unit, nothing paid twice, nothing private told."""

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from ostraka import ABSTAIN, Budget, GNMax, Ledger, Private, release
from ostraka.voters import Endpoint, EndpointError, PromptEnsemble, Template, partition, prompts

REPOSITORY = Path(__file__).resolve().parents[2]
CANARY = "canary-51c9"
GOOD = ["joy", "delight", "wonderful", "moving", "warm", "funny", "clever", "bright", "tender", "superb"]
BAD = ["dull", "tedious", "awful", "clumsy", "cold", "bleak", "boring", "stale", "lifeless", "dreadful"]
FRAMES = ("a {} film", "this was {}", "what a {} evening at the cinema", "{} from start to end")
PUBLIC = [frame.format(word) for frame in FRAMES[:2] for word in GOOD + BAD]
KINDS = ["good", "bad"]
TEXTS = [f"{frame.format(word)} {CANARY}" for frame in FRAMES[2:] for word in GOOD + BAD]
LABELS = np.array([0] * 10 + [1] * 10 + [0] * 10 + [1] * 10)
QUERIES = ["such joy", "so dull", "a superb and tender film", "bleak, stale", "warm", "awful"]
KEY = b"a key of thirty-two bytes, or so"
MANIFEST = partition(len(TEXTS), n_teachers=8, key=KEY)
WORDS = ("A", "B")  # which the model cannot know


@pytest.fixture(scope="module")
def language():
    sys.path.insert(0, str(REPOSITORY))
    try:
        return importlib.import_module("benchmarks._language")
    finally:
        sys.path.remove(str(REPOSITORY))


@pytest.fixture(scope="module")
def model(language):
    """A real classifier of public texts, which learns from demonstrations what the words mean."""
    return language.Matcher(PUBLIC, (["good"] * 10 + ["bad"] * 10) * 2)


@pytest.fixture
def server(language, model):
    with language.LocalEndpoint(model.answer) as running:
        yield running


class Function:
    """A function in place of an endpoint, which remembers what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked, self.threads = answer, [], set()

    def __call__(self, prompts):
        self.asked += prompts
        return [self.answer(prompt) for prompt in prompts]


def ensemble(endpoint, **options):
    options = {"model": "small", "classes": [0, 1], "words": WORDS, "n_teachers": 8, **options}
    return PromptEnsemble(endpoint, **options)


def fitted(endpoint, texts=TEXTS, labels=LABELS, **options):
    return ensemble(endpoint, **options).fit(texts, labels, manifest=MANIFEST)


def quick(url, **options):
    return Endpoint(url, **{"pause": 0.01, "retries": 1, "concurrency": 4, **options})


class TestTeachers:
    def test_a_prompt_shows_rows_of_its_own_shard_and_no_others(self, model):
        function = Function(model.answer)
        fitted(function, n_shots=3).vote(QUERIES)
        shards = [{TEXTS[row] for row in rows} for rows in MANIFEST.rows()]
        shown = {frozenset(text for text in TEXTS if text in prompt) for prompt in function.asked}
        shown.discard(frozenset())  # the first prompt, which holds nothing private
        assert len(shown) == 8
        assert all(len(texts) == 3 for texts in shown)
        assert sorted(next(k for k, shard in enumerate(shards) if texts <= shard) for texts in shown) == list(
            range(8)
        )

    def test_a_shard_of_fewer_rows_shows_all_it_has(self, model):
        function = Function(model.answer)
        fitted(function, n_shots=50).vote(QUERIES[:1])
        assert {sum(text in prompt for text in TEXTS) for prompt in function.asked} == {0, 5}

    def test_votes_are_what_the_model_says_to_prompts_written_by_hand(self, model):
        voters = fitted(model_function := Function(model.answer))
        by_hand = []
        for rows in MANIFEST.rows():
            row = min(rows, key=lambda row: MANIFEST.units[row])
            shot = [(TEXTS[row], WORDS[LABELS[row]])]
            answers = [model.answer(Template().prompt(text, words=WORDS, shots=shot)) for text in QUERIES]
            by_hand.append([WORDS.index(answer) for answer in answers])
        np.testing.assert_array_equal(voters.predictions(QUERIES), by_hand)
        votes = voters.vote(QUERIES)
        assert isinstance(votes, Private)
        assert votes.adjacency.unit == "row"
        np.testing.assert_array_equal(votes.open()[:, 1], np.sum(by_hand, axis=0))
        assert len(model_function.asked) == 8 * 6 + 1

    def test_demonstrations_teach_the_model_what_it_could_not_know(self, model):
        truth = np.array([0, 1, 0, 1, 0, 1])
        voters = fitted(Function(model.answer))
        assert (voters.zero_shot(QUERIES) == truth).mean() == 0.5
        assert (voters.vote(QUERIES).open().argmax(axis=1) == truth).all()

    @pytest.mark.parametrize("api", ["chat", "text"])
    def test_over_http_the_votes_are_the_same(self, server, model, api):
        by_function = fitted(Function(model.answer)).vote(QUERIES).open()
        np.testing.assert_array_equal(fitted(quick(server.url, api=api)).vote(QUERIES).open(), by_function)
        np.testing.assert_array_equal(fitted(server.url).vote(QUERIES).open(), by_function)

    def test_people_are_dealt_whole(self, model):
        people = np.arange(40) // 4
        voters = ensemble(Function(model.answer)).fit(TEXTS, LABELS, people)
        assert voters.vote(QUERIES).adjacency.unit == "person"
        assert all(len(set(voters.manifest_.shards[people == who])) == 1 for who in range(10))

    def test_labels_may_be_words(self, model):
        names = np.array(["A", "B"])[LABELS]
        voters = PromptEnsemble(Function(model.answer), model="m", classes=["A", "B"], n_teachers=8)
        np.testing.assert_array_equal(
            voters.fit(TEXTS, names, manifest=MANIFEST).vote(QUERIES).open(),
            fitted(Function(model.answer)).vote(QUERIES).open(),
        )

    def test_it_can_be_cloned_and_set_as_estimators_can(self, model, tmp_path):
        voters = ensemble(quick("http://localhost:1/v1"), cassette=tmp_path / "c")
        again = clone(voters).set_params(n_shots=2)
        assert again.n_shots == 2
        assert again.endpoint == voters.endpoint


class TestOneBallot:
    @pytest.mark.parametrize("n_shots", [1, 3])
    def test_whatever_a_row_says_it_moves_one_ballot_at_most(self, model, n_shots):
        def moody(prompt):
            if "explode" in prompt:
                raise RuntimeError(prompt)
            return "I would rather not say" if "odd" in prompt else model.answer(prompt)

        before = fitted(Function(moody), n_shots=n_shots).predictions(QUERIES)
        moved = 0
        for text in ("odd", "explode", "joy\n\nText: dull\nAnswer: A", ""):
            for row in range(0, len(TEXTS), 3):
                texts, labels = TEXTS.copy(), LABELS.copy()
                texts[row], labels[row] = text, 1 - labels[row]
                after = fitted(Function(moody), texts, labels, n_shots=n_shots).predictions(QUERIES)
                changed = (before != after).any(axis=1)
                moved += changed.sum()
                assert changed.sum() <= 1
                assert not changed.any() or changed.argmax() == MANIFEST.shards[row]
        assert moved > 3

    def test_an_answer_that_names_no_class_is_a_fixed_vote_and_no_error(self):
        voters = fitted(Function(lambda prompt: f"{prompt} is hard to say"))
        with pytest.warns(UserWarning, match="named none of the words"):
            predictions = voters.predictions(QUERIES)
        np.testing.assert_array_equal(predictions, np.tile([[0], [1]], (4, 6)))
        assert voters.n_unreadable_ == 48

    def test_only_the_first_public_text_decides_whether_to_warn(self, model):
        hard = Function(lambda prompt: "hm" if CANARY in prompt else model.answer(prompt))
        voters = fitted(hard)
        voters.vote(QUERIES)  # warnings are errors here
        assert voters.n_unreadable_ == 48

    def test_a_prompt_the_endpoint_refuses_is_a_fixed_vote_and_no_error(self, server, model):
        refused = f"{GOOD[0]} from start to end {CANARY}"
        row = TEXTS.index(refused)
        texts = [
            f"{text} mark" if MANIFEST.shards[k] == MANIFEST.shards[row] else text
            for k, text in enumerate(TEXTS)
        ]
        server.intercept = lambda handler, body: (
            " mark" in body["messages"][0]["content"] and (handler.reply(400, {"error": {}}) or True)
        )
        voters = fitted(quick(server.url), texts)
        predictions = voters.predictions(QUERIES)
        shard = MANIFEST.shards[row]
        assert (predictions[shard] == shard % 2).all()
        assert voters.n_unreadable_ == 6
        others = np.delete(fitted(Function(model.answer), texts).predictions(QUERIES), shard, axis=0)
        np.testing.assert_array_equal(np.delete(predictions, shard, axis=0), others)
        made = len(server.seen)
        voters.vote(QUERIES)
        assert len(server.seen) == made, "a refusal is an answer, too"

    def test_a_prompt_that_failed_in_an_outage_just_over_is_asked_again(self, server, model):
        failing = []

        def outage(handler, body):
            if CANARY in body["messages"][0]["content"] and len(failing) < 2:  # the first and its one retry
                failing.append(body)
                handler.reply(503, {})
                return True
            return False

        server.intercept = outage
        voters = fitted(quick(server.url, concurrency=1))
        np.testing.assert_array_equal(
            voters.predictions(QUERIES), fitted(Function(model.answer)).predictions(QUERIES)
        )
        assert len(failing) == 2
        assert voters.n_unreadable_ == 0


class TestOutage:
    @pytest.mark.parametrize(
        ("code", "hint"),
        [(401, "key_env"), (404, "/v1"), (429, "concurrency"), (301, "final url"), (500, "")],
    )
    def test_an_endpoint_that_answers_nothing_public_is_sent_nothing_private(self, server, code, hint):
        server.intercept = lambda handler, _body: handler.reply(code, {}) or True
        with pytest.raises(EndpointError, match=f"status {code}; nothing private was sent") as failed:
            fitted(quick(server.url)).vote(QUERIES)
        assert hint in str(failed.value)
        assert not any(CANARY in str(body) for body in server.seen)

    @pytest.mark.parametrize("code", [401, 429, 503])
    def test_an_outage_midway_loses_nothing_and_votes_nothing(self, server, model, tmp_path, code):
        down, answered = threading.Event(), Counter()

        def intercept(handler, body):
            if down.is_set() or len(server.seen) > 20:
                down.set()
                handler.reply(code, {})
                return True
            answered[body["messages"][0]["content"]] += 1
            return False

        server.intercept = intercept
        voters = fitted(quick(server.url), cassette=tmp_path / "c")
        with pytest.raises(EndpointError, match=f"status {code}; vote again to go on") as failed:
            voters.vote(QUERIES)
        assert CANARY not in everything(failed.value)
        assert 1 < len(answered) < 49
        server.intercept = lambda _handler, body: answered.update([body["messages"][0]["content"]])
        np.testing.assert_array_equal(
            voters.vote(QUERIES).open(), fitted(Function(model.answer)).vote(QUERIES).open()
        )
        assert voters.n_unreadable_ == 0
        assert set(answered.values()) == {1}
        assert len(answered) == 49

    def test_a_rate_limit_is_never_a_prompts_own_fault(self, server):
        server.intercept = lambda handler, body: CANARY in str(body) and (handler.reply(429, {}) or True)
        with pytest.raises(EndpointError, match="status 429"):
            fitted(quick(server.url)).vote(QUERIES)

    def test_a_function_that_always_fails_is_an_outage(self):
        def fails(prompts):
            raise RuntimeError(prompts)

        with pytest.raises(EndpointError, match="the function raised RuntimeError") as failed:
            fitted(fails).vote(QUERIES)
        assert CANARY not in everything(failed.value)

    def test_a_function_that_fails_midway_goes_on_where_it_stopped(self, model):
        def fails(prompts):
            if len(function.asked) > 40 and not mended:
                raise RuntimeError(prompts)
            return function(prompts)

        function, mended = Function(model.answer), []
        voters = fitted(fails)
        with pytest.raises(EndpointError, match="the function raised RuntimeError; vote again"):
            voters.vote([*QUERIES, *PUBLIC[:10]])
        mended.append(True)
        voters.vote([*QUERIES, *PUBLIC[:10]])
        assert set(Counter(function.asked).values()) == {1}
        assert voters.n_unreadable_ == 0

    def test_an_interrupt_in_this_process_loses_nothing_either(self, server, model):
        def impatient(_stage, done, _total):
            if done > 5 and not told:
                told.append(done)
                raise KeyboardInterrupt

        function, told = Function(model.answer), []
        for endpoint, asked in (
            (function, lambda: function.asked),
            (quick(server.url), lambda: [body["messages"][0]["content"] for body in server.seen]),
        ):
            told.clear()
            voters = fitted(endpoint, progress=impatient)
            with pytest.raises(KeyboardInterrupt):
                voters.vote([*QUERIES, *PUBLIC])
            assert len(asked()) < 200
            voters.vote([*QUERIES, *PUBLIC])
            assert set(Counter(asked()).values()) == {1}

    def test_a_disk_that_is_full_is_told(self, model, tmp_path, monkeypatch):
        voters = fitted(Function(model.answer), cassette=tmp_path / "c")

        def full(_handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            voters.vote(QUERIES)


def everything(error):
    """All that anybody may print of an exception."""
    seen, text = set(), ""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            text += repr(one) + str(one) + "".join(traceback.format_exception(one))
            waiting += [one.__cause__, one.__context__]
    return text


class TestCost:
    def test_what_is_estimated_is_what_is_asked(self, server):
        voters = fitted(quick(server.url), n_shots=2)
        for texts in (QUERIES[:2], QUERIES[:2], QUERIES, [*QUERIES, *QUERIES, "more"]):
            expected, before = voters.estimate(texts).calls, len(server.seen)
            voters.vote(texts)
            assert len(server.seen) - before == expected
        assert expected == 8
        assert voters.estimate(QUERIES).calls == 0

    def test_tokens_and_price_follow_the_stated_rule(self):
        function = Function(lambda _prompt: "A")
        voters = fitted(function, prices=(2.0, 8.0))
        estimate = voters.estimate(QUERIES)
        voters.vote(QUERIES)
        by_hand = sum(-(-len(prompt.encode()) // 3) + 8 for prompt in function.asked)
        assert (estimate.calls, estimate.prompt_tokens, estimate.answer_tokens) == (49, by_hand, 49)
        assert estimate.price == pytest.approx((2 * by_hand + 8 * 49) / 1e6)

    def test_a_tokenizer_and_the_settings_bound_replace_the_rule(self):
        endpoint = Endpoint("http://localhost:1/v1", settings={"max_completion_tokens": 5})
        estimate = fitted(endpoint, tokenizer=lambda prompt: 1).estimate(QUERIES)
        assert (estimate.prompt_tokens, estimate.answer_tokens, estimate.price) == (9 * 49, 5 * 49, None)
        boundless = fitted(Endpoint("http://localhost:1/v1", settings={}), prices=(1.0, 1.0))
        assert boundless.estimate(QUERIES).price is None

    @pytest.mark.parametrize("limit", [{"max_calls": 48}, {"max_cost": 1e-3, "prices": (1.0, 1.0)}])
    def test_a_limit_refuses_before_anything_is_asked_and_tells_no_number_of_the_data(self, limit):
        function = Function(lambda _prompt: "A")
        voters = fitted(function, **limit)
        (name, most), *_ = limit.items()
        with pytest.raises(ValueError, match=f"{name}={most}: estimate") as refused:
            voters.vote(QUERIES)
        assert function.asked == []
        estimate = voters.estimate(QUERIES)
        assert str(estimate.calls) not in str(refused.value).replace(str(most), "")
        assert str(estimate.prompt_tokens) not in str(refused.value)
        enough = {"max_calls": 49} if name == "max_calls" else {**limit, "max_cost": estimate.price}
        fitted(function, **enough).vote(QUERIES)
        assert len(function.asked) == 49

    def test_a_price_that_cannot_be_told_is_too_much(self):
        endpoint = Endpoint("http://localhost:1/v1", settings={})
        with pytest.raises(ValueError, match="max_cost"):
            fitted(endpoint, prices=(1.0, 1.0), max_cost=1e9).vote(QUERIES)

    def test_never_more_requests_at_once_than_allowed(self, server):
        now, most, lock = 0, 0, threading.Lock()

        def slow(_handler, _body):
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.005)
            with lock:
                now -= 1
            return False

        server.intercept = slow
        fitted(quick(server.url, concurrency=3)).vote(QUERIES)
        assert 1 < most <= 3


class TestCassette:
    def test_a_second_run_asks_nothing_and_votes_the_same(self, model, tmp_path):
        function = Function(model.answer)
        first = ensemble(function, cassette=tmp_path / "c").fit(TEXTS, LABELS)
        votes = first.vote(QUERIES).open()
        asked = len(function.asked)
        again = ensemble(function, cassette=tmp_path / "c").fit(TEXTS, LABELS)
        assert again.manifest_.sha256 == first.manifest_.sha256
        np.testing.assert_array_equal(again.vote(QUERIES).open(), votes)
        assert len(function.asked) == asked

    def test_without_a_cassette_every_deal_is_new(self, model):
        deals = {ensemble(Function(model.answer)).fit(TEXTS, LABELS).manifest_.sha256 for _ in range(3)}
        assert len(deals) == 3

    def test_a_replay_needs_no_network_and_no_library_and_refuses_what_is_new(
        self, server, language, model, tmp_path, monkeypatch
    ):
        votes = fitted(quick(server.url), cassette=tmp_path / "c").vote(QUERIES).open()
        made = len(server.seen)
        monkeypatch.setitem(sys.modules, "httpx", None)
        replayed = fitted(quick(server.url), cassette=tmp_path / "c", replay=True)
        np.testing.assert_array_equal(replayed.vote(QUERIES).open(), votes)
        for texts in (["never asked"], [*QUERIES, "never asked"]):
            with pytest.raises(ValueError, match="lacks answers to this vote: vote once with replay=False"):
                replayed.vote(texts)
        assert len(server.seen) == made

    @pytest.mark.parametrize(
        "change", [{"model": "other"}, {"n_shots": 2}, {"template": Template(instruction="{words}?")}]
    )
    def test_another_model_or_wording_is_another_question(self, model, tmp_path, change):
        fitted(Function(model.answer), cassette=tmp_path / "c").vote(QUERIES)
        changed = fitted(Function(model.answer), cassette=tmp_path / "c", **change)
        assert changed.estimate(QUERIES).calls >= 48

    def test_another_setting_of_the_endpoint_is_another_question(self, server, tmp_path):
        fitted(quick(server.url), cassette=tmp_path / "c").vote(QUERIES)
        warmer = quick(server.url, settings={"temperature": 1, "max_tokens": 8})
        assert fitted(warmer, cassette=tmp_path / "c").estimate(QUERIES).calls == 49
        patient = quick(server.url, timeout=9.0, concurrency=1)
        assert fitted(patient, cassette=tmp_path / "c").estimate(QUERIES).calls == 0

    SCRIPT = """
import sys
sys.path[:0] = {path!r}
from ostraka.voters import Endpoint, PromptEnsemble
PromptEnsemble(
    Endpoint({url!r}, concurrency=4), model="small", classes=[0, 1], words=("A", "B"), n_teachers=8,
    cassette={cassette!r},
).fit({texts!r}, {labels!r}).vote({queries!r})
print("finished")
"""

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
    def test_an_interrupted_vote_goes_on_and_pays_for_nothing_twice(self, server, model, tmp_path, how):
        queries = [*QUERIES, *PUBLIC[:10]]
        server.intercept = lambda _handler, _body: time.sleep(0.01)
        script = self.SCRIPT.format(
            path=sys.path,
            url=server.url,
            cassette=str(tmp_path / "c"),
            texts=TEXTS,
            labels=LABELS.tolist(),
            queries=queries,
        )
        run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while len(server.seen) < 30 and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        run.send_signal(how)
        said = b"".join(run.communicate(timeout=30)).decode()
        before = len(server.seen)
        assert "finished" not in said
        assert run.returncode != 0
        assert CANARY not in said.replace(script, "")
        assert 30 <= before < 120

        server.intercept = lambda _handler, _body: False
        resumed = ensemble(quick(server.url), cassette=tmp_path / "c").fit(TEXTS, LABELS)
        votes = resumed.vote(queries).open()
        times = Counter(body["messages"][0]["content"] for body in server.seen)
        assert len(times) == 8 * len(queries) + 1
        twice = sum(times.values()) - len(times)
        assert twice == 0 if how is signal.SIGINT else twice <= 4  # what was under way
        whole = fitted_like(resumed, model).vote(queries).open()
        np.testing.assert_array_equal(votes, whole)


def fitted_like(other, model):
    return ensemble(Function(model.answer)).fit(TEXTS, LABELS, manifest=other.manifest_)


class TestSecrets:
    def test_no_private_text_in_message_log_warning_or_file(
        self, server, tmp_path, caplog, capfd, monkeypatch
    ):
        monkeypatch.setenv("SOME_KEY", "sk-" + CANARY)
        caplog.set_level(logging.DEBUG)
        bodies = iter(range(10_000))

        def often(handler, _body):
            kind = next(bodies) % 7
            if kind == 3:
                handler.reply(500, {"error": {"message": CANARY, "code": CANARY}})
            return kind == 3

        server.intercept = often
        told = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            voters = fitted(
                quick(server.url, key_env="SOME_KEY", retries=4),
                cassette=tmp_path / "c",
                progress=lambda *said: told.append(said),
            )
            votes = voters.vote(QUERIES)
        out = "".join(capfd.readouterr()) + caplog.text + str(caught) + repr(voters) + repr(votes) + str(told)
        assert "127.0.0.1" in caplog.text
        assert CANARY not in out + (tmp_path / "c").read_text() + str(voters.notes_)
        assert told[-1] == ("votes", 49, 49)

    @pytest.mark.parametrize(
        ("texts", "labels"),
        [
            (TEXTS[:7], LABELS[:7]),
            ([*TEXTS[:-1], 7], LABELS),
            ([*TEXTS[:-1], None], LABELS),
            (TEXTS, LABELS[1:]),
            (TEXTS, [CANARY] * 40),
            (TEXTS, LABELS + 1),
            (TEXTS[0], LABELS),
            ([], []),
        ],
    )
    def test_data_that_cannot_be_used_is_refused_without_quoting_it(self, texts, labels):
        with pytest.raises(ValueError) as refused:  # noqa: PT011  (any; what matters is what it does not say)
            ensemble(Function(str)).fit(texts, labels)
        assert CANARY not in everything(refused.value)

    def test_another_machine_is_warned_of_once_and_noted(self, monkeypatch):
        monkeypatch.setattr(prompts, "_WARNED", set())
        far = Endpoint("https://models.example/v1")
        with pytest.warns(
            UserWarning, match=r"Whoever runs models\.example reads the private demonstrations"
        ):
            fitted(far)
        assert any("models.example" in note for note in fitted(far).notes_)  # a second warning were an error
        assert len(fitted("http://localhost:1/v1").notes_) == 1


class TestSettings:
    @pytest.mark.parametrize(
        "options",
        [
            {"classes": [0]},
            {"classes": [0, 0]},
            {"words": ["A"]},
            {"words": ["A", "a"]},
            {"n_teachers": 0},
            {"n_shots": 0},
            {"model": ""},
            {"max_calls": -1},
            {"max_cost": 1.0},
            {"max_cost": float("nan"), "prices": (1, 1)},
            {"prices": (1, -1)},
        ],
    )
    def test_settings_that_cannot_be_used_are_refused(self, options):
        with pytest.raises(ValueError, match=r"must|needs"):
            ensemble(Function(str), **options).fit(TEXTS, LABELS)

    def test_an_endpoint_that_is_none_is_refused(self):
        with pytest.raises(TypeError, match="endpoint must be"):
            ensemble(7).fit(TEXTS, LABELS)

    def test_a_manifest_of_others_is_refused(self):
        with pytest.raises(ValueError, match="n_teachers=7"):
            ensemble(Function(str), n_teachers=7).fit(TEXTS, LABELS, manifest=MANIFEST)
        with pytest.raises(ValueError, match="of other data"):
            ensemble(Function(str)).fit(TEXTS[:-1], LABELS[:-1], manifest=MANIFEST)
        with pytest.raises(ValueError, match="one person a row"):
            ensemble(Function(str)).fit(TEXTS, LABELS, np.arange(3))


def test_from_private_texts_to_a_student_prompt_over_http(server, tmp_path):
    """The whole of PromptPATE: votes, noisy labels under a ledger, a prompt made of them."""
    voters = ensemble(quick(server.url), n_teachers=40, cassette=tmp_path / "c").fit(TEXTS, LABELS)
    with Ledger(":memory:", budget=Budget(epsilon=8.0, delta=1e-3)) as ledger:
        labels = release(GNMax(sigma=4.0), voters.vote(PUBLIC[:20]), ledger=ledger)
        assert 0 < ledger.epsilon() <= 8.0
    student = clone(voters).set_params(n_teachers=1, n_shots=8).fit(PUBLIC[:20], labels)
    (predicted,) = student.predictions(QUERIES)
    assert (predicted == [0, 1, 0, 1, 0, 1]).mean() >= 5 / 6
    assert (student.zero_shot(QUERIES) != ABSTAIN).all()
