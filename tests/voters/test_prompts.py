"""Prompts: disjoint demonstrations, one ballot a unit, nothing paid twice, nothing private shown."""

import logging
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from ostraka import ABSTAIN, Budget, GNMax, Ledger, Private, release
from ostraka.voters import Endpoint, PromptEnsemble, Template, prompts
from tests.voters.reviews import (
    CANARY,
    GOOD,
    LABELS,
    MANIFEST,
    PUBLIC,
    QUERIES,
    TEXTS,
    WORDS,
    Function,
    ensemble,
    everything,
    fitted,
    quick,
)


class TestTeachers:
    def test_a_prompt_shows_rows_of_its_own_shard_and_no_others(self, model):
        function = Function(model.answer)
        fitted(function, n_shots=3).vote(QUERIES)
        shards = [{TEXTS[row] for row in rows} for rows in MANIFEST.rows()]
        examples = {frozenset(text for text in TEXTS if text in prompt) for prompt in function.asked}
        examples.discard(frozenset())  # the first prompt, which holds nothing private
        assert len(examples) == 8
        assert all(len(texts) == 3 for texts in examples)
        assert sorted(
            next(k for k, shard in enumerate(shards) if texts <= shard) for texts in examples
        ) == list(range(8))

    def test_a_shard_of_fewer_rows_shows_all_it_has(self, model):
        function = Function(model.answer)
        fitted(function, n_shots=50).vote(QUERIES[:1])
        assert {sum(text in prompt for text in TEXTS) for prompt in function.asked} == {0, 5}

    def test_votes_are_what_the_model_says_to_prompts_written_by_hand(self, model):
        voters = fitted(function := Function(model.answer))
        by_hand, written = [], {Template().prompt(QUERIES[0], words=WORDS)}
        for rows in MANIFEST.rows():
            row = min(rows, key=lambda row: MANIFEST.units[row])
            shot = [(TEXTS[row], WORDS[LABELS[row]])]
            prompts = [Template().prompt(text, words=WORDS, shots=shot) for text in QUERIES]
            written.update(prompts)
            by_hand.append([WORDS.index(model.answer(prompt)) for prompt in prompts])
        np.testing.assert_array_equal(voters.predictions(QUERIES), by_hand)
        votes = voters.vote(QUERIES)
        assert isinstance(votes, Private)
        assert votes.adjacency.unit == "row"
        np.testing.assert_array_equal(votes.open()[:, 1], np.sum(by_hand, axis=0))
        assert sorted(function.asked) == sorted(written)

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
        voters = ensemble(quick("http://localhost:1/v1"), response_cache=tmp_path / "c")
        again = clone(voters).set_params(n_shots=2)
        assert again.n_shots == 2
        assert again.endpoint == voters.endpoint


class TestOneBallot:
    @pytest.mark.parametrize("n_shots", [1, pytest.param(3, marks=pytest.mark.slow)])
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
        with pytest.warns(UserWarning, match="answered with none of the words") as told:
            voters.vote(QUERIES)
        assert told[0].filename == __file__, "the line that called vote"
        np.testing.assert_array_equal(voters.predictions(QUERIES), np.tile([[0], [1]], (4, 6)))
        assert voters.count_unreadable() == 48

    def test_only_the_first_public_text_decides_whether_to_warn(self, model):
        hard = Function(lambda prompt: "hm" if CANARY in prompt else model.answer(prompt))
        voters = fitted(hard)
        voters.vote(QUERIES)  # warnings are errors here
        assert voters.count_unreadable() == 48

    def test_progress_counts_every_prompt_and_the_public_one_first(self):
        events, calling = [], threading.Lock()

        def busy(prompts):  # a function may be one that nobody may call twice at once
            assert calling.acquire(blocking=False)
            time.sleep(0.005)
            calling.release()
            return ["good"] * len(prompts)

        ensemble = PromptEnsemble(
            busy, model="m", classes=["bad", "good"], n_teachers=4,
            progress=lambda *told: events.append(told),
        ).fit([f"text {n}" for n in range(20)], ["bad", "good"] * 10)  # fmt: skip
        ensemble.vote([f"question {n}" for n in range(25)])
        assert {(stage, total) for stage, _, total in events} == {("votes", 101)}
        done = [done for _, done, _ in events]
        assert set(done) <= {33, 65, 97, 101}  # batches of 32 prompts
        assert done[-1] == 101
        assert ensemble.count_unreadable() == 0

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
        assert voters.count_unreadable() == 6
        others = np.delete(fitted(Function(model.answer), texts).predictions(QUERIES), shard, axis=0)
        np.testing.assert_array_equal(np.delete(predictions, shard, axis=0), others)
        n_requests = len(server.seen)
        voters.vote(QUERIES)
        assert len(server.seen) == n_requests, "a refusal is an answer, too"

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
        assert voters.count_unreadable() == 0


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
        (name, peak), *_ = limit.items()
        with pytest.raises(ValueError, match=f"{name}={peak}: see estimate") as refused:
            voters.vote(QUERIES)
        assert function.asked == []
        estimate = voters.estimate(QUERIES)
        assert str(estimate.calls) not in str(refused.value).replace(str(peak), "")
        assert str(estimate.prompt_tokens) not in str(refused.value)
        enough = {"max_calls": 49} if name == "max_calls" else {**limit, "max_cost": estimate.price}
        fitted(function, **enough).vote(QUERIES)
        assert len(function.asked) == 49

    def test_a_price_that_cannot_be_told_is_too_much(self):
        endpoint = Endpoint("http://localhost:1/v1", settings={})
        with pytest.raises(ValueError, match="max_cost"):
            fitted(endpoint, prices=(1.0, 1.0), max_cost=1e9).vote(QUERIES)

    def test_never_more_requests_at_once_than_allowed(self, server):
        now, peak, lock, all_places_taken = 0, 0, threading.Lock(), threading.Event()

        def slow(_handler, _body):
            nonlocal now, peak
            with lock:
                now += 1
                peak = max(peak, now)
            if peak == 3:
                all_places_taken.set()
            if len(server.seen) > 1 and not all_places_taken.wait(30):  # the first is public and goes alone
                all_places_taken.set()  # they never are: let the others pass
            time.sleep(0.005)  # for one too many to come
            with lock:
                now -= 1
            return False

        server.intercept = slow
        fitted(quick(server.url, concurrency=3)).vote(QUERIES)
        assert peak == 3


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
        events = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            voters = fitted(
                quick(server.url, key_env="SOME_KEY", retries=4),
                response_cache=tmp_path / "c",
                progress=lambda *event: events.append(event),
            )
            votes = voters.vote(QUERIES)
        out = (
            "".join(capfd.readouterr()) + caplog.text + str(caught) + repr(voters) + repr(votes) + str(events)
        )
        assert CANARY not in out + (tmp_path / "c").read_bytes().decode("latin-1") + str(voters.notes_)
        assert events[-1] == ("votes", 49, 49)

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

    def test_a_tokenizer_that_fails_is_not_quoted(self):
        with pytest.raises(ValueError, match="but raised KeyError") as refused:
            fitted(Function(str), tokenizer=lambda prompt: {}[prompt]).estimate(QUERIES)
        assert CANARY not in everything(refused.value)

    def test_another_machine_is_warned_of_once_and_noted(self, monkeypatch):
        monkeypatch.setattr(prompts, "_WARNED", set())
        remote = Endpoint("https://models.example/v1")
        assert any("models.example" in note for note in fitted(remote, replay=True).notes_)
        with pytest.warns(
            UserWarning, match=r"Whoever runs models\.example reads the private demonstrations"
        ) as told:
            ensemble(remote).fit(TEXTS, LABELS)
        assert told[0].filename == __file__, "the line that called fit"
        assert any(
            "models.example" in note for note in fitted(remote).notes_
        )  # a second warning were an error
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
        with pytest.raises(ValueError, match="belongs to other data"):
            ensemble(Function(str)).fit(TEXTS[:-1], LABELS[:-1], manifest=MANIFEST)
        with pytest.raises(ValueError, match="one person for each row"):
            ensemble(Function(str)).fit(TEXTS, LABELS, np.arange(3))


@pytest.mark.usefixtures("same_draws")
def test_from_private_texts_to_a_student_prompt_over_http(server, tmp_path):
    """The whole of PromptPATE: votes, noisy labels under a ledger, a prompt made of them."""
    voters = ensemble(quick(server.url), n_teachers=40, response_cache=tmp_path / "c").fit(TEXTS, LABELS)
    with Ledger(":memory:", budget=Budget(epsilon=8.0, delta=1e-3)) as ledger:
        labels = release(GNMax(sigma=4.0), voters.vote(PUBLIC[:20]), ledger=ledger)
        assert 0 < ledger.epsilon() <= 8.0
    student = clone(voters).set_params(n_teachers=1, n_shots=8).fit(PUBLIC[:20], labels)
    (predicted,) = student.predictions(QUERIES)
    assert (predicted == [0, 1, 0, 1, 0, 1]).mean() >= 5 / 6
    assert (student.zero_shot(QUERIES) != ABSTAIN).all()
