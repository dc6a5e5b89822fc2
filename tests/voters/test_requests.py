"""RequestRun: outages, interrupts and crashes lose no answer, and nothing is paid for twice."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

from ostraka.secure.log import LogError
from ostraka.voters import Template
from ostraka.voters.endpoint import Client, EndpointError, Request, RequestRun, ResponseCache
from tests.threads import at_once
from tests.voters.reviews import (
    CANARY,
    LABELS,
    PUBLIC,
    QUERIES,
    TEXTS,
    Function,
    ensemble,
    everything,
    fitted,
    quick,
)


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
        voters = fitted(quick(server.url), response_cache=tmp_path / "c")
        with pytest.raises(EndpointError, match=f"status {code}; vote again to continue") as failed:
            voters.vote(QUERIES)
        assert CANARY not in everything(failed.value)
        assert 1 < len(answered) < 49
        server.intercept = lambda _handler, body: answered.update([body["messages"][0]["content"]])
        np.testing.assert_array_equal(
            voters.vote(QUERIES).open(), fitted(Function(model.answer)).vote(QUERIES).open()
        )
        assert voters.count_unreadable() == 0
        assert set(answered.values()) == {1}
        assert len(answered) == 49

    def test_a_rate_limit_is_never_a_prompts_own_fault(self, server):
        server.intercept = lambda handler, body: CANARY in str(body) and (handler.reply(429, {}) or True)
        with pytest.raises(EndpointError, match="status 429"):
            fitted(quick(server.url)).vote(QUERIES)

    def test_a_rate_limit_after_a_prompt_s_own_failure_is_none_of_it(self, server):
        failed = set()

        def intercept(handler, body):
            prompt = str(body)
            if CANARY not in prompt:
                return False
            handler.reply(429 if prompt in failed else 400, {})
            failed.add(prompt)
            return True

        server.intercept = intercept
        voters = fitted(quick(server.url, concurrency=1))
        with pytest.raises(EndpointError, match="status 429"):
            voters.vote(QUERIES)
        assert len(failed) >= 1

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
        assert voters.count_unreadable() == 0

    def test_an_interrupt_in_this_process_loses_nothing_either(self, server, model):
        def impatient(_stage, done, _total):
            if done > 5 and not interrupted:
                interrupted.append(done)
                raise KeyboardInterrupt

        function, interrupted = Function(model.answer), []
        for endpoint, expected in (
            (function, lambda: function.asked),
            (quick(server.url), lambda: [body["messages"][0]["content"] for body in server.seen]),
        ):
            interrupted.clear()
            voters = fitted(endpoint, progress=impatient)
            with pytest.raises(KeyboardInterrupt):
                voters.vote([*QUERIES, *PUBLIC])
            assert len(expected()) < 200
            voters.vote([*QUERIES, *PUBLIC])
            assert set(Counter(expected()).values()) == {1}

    def test_a_disk_that_is_full_is_told(self, model, tmp_path):
        voters = fitted(Function(model.answer), response_cache=tmp_path / "c")
        voters._responses._log._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(LogError, match="the disk is full, and nothing was kept: free some space"):
            voters.vote(QUERIES)


class TestPrompts:
    def test_are_made_two_batches_ahead_for_each_request_at_once(self):
        made, go = [], threading.Event()

        class Slow(Client):
            concurrency, batch = 3, 2

            def ask(self, prompts, stop):
                assert prompts == ["public"] or go.wait(60)
                return [f"answer to {prompt}" for prompt in prompts]

        def requests():
            for number in range(31):
                made.append(number)
                yield Request(f"name {number}", str(number))

        cache, progress = ResponseCache(None), []
        run = RequestRun(Slow(), cache, probe=Request("probe", "public"), on_progress=progress.append)
        with at_once(lambda: run.run(requests())):
            until = time.monotonic() + 60
            while len(made) < 12 and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.02)  # for one too many to come
            ahead = len(made)
            go.set()
        assert ahead == 12
        assert [cache[f"name {number}"] for number in range(31)] == [f"answer to {n}" for n in range(31)]
        assert progress == sorted(progress)
        assert progress[-1] == 32


class TestTheResponseCache:
    def test_a_second_run_asks_nothing_and_votes_the_same(self, model, tmp_path):
        function = Function(model.answer)
        first = ensemble(function, response_cache=tmp_path / "c").fit(TEXTS, LABELS)
        votes = first.vote(QUERIES).open()
        n_asked = len(function.asked)
        again = ensemble(function, response_cache=tmp_path / "c").fit(TEXTS, LABELS)
        assert again.manifest_.sha256 == first.manifest_.sha256
        np.testing.assert_array_equal(again.vote(QUERIES).open(), votes)
        assert len(function.asked) == n_asked

    def test_without_a_cache_file_every_partition_is_new(self, model):
        deals = {ensemble(Function(model.answer)).fit(TEXTS, LABELS).manifest_.sha256 for _ in range(3)}
        assert len(deals) == 3

    def test_a_replay_needs_no_network_and_refuses_what_is_new(self, server, language, model, tmp_path):
        votes = fitted(quick(server.url), response_cache=tmp_path / "c").vote(QUERIES).open()
        n_requests = len(server.seen)
        replayed = fitted(quick(server.url), response_cache=tmp_path / "c", replay=True)
        np.testing.assert_array_equal(replayed.vote(QUERIES).open(), votes)
        for texts in (["never asked"], [*QUERIES, "never asked"]):
            with pytest.raises(ValueError, match="lacks answers for this vote: vote once with replay=False"):
                replayed.vote(texts)
        assert len(server.seen) == n_requests

    @pytest.mark.parametrize(
        "change", [{"model": "other"}, {"n_shots": 2}, {"template": Template(instruction="{words}?")}]
    )
    def test_another_model_or_template_is_another_question(self, model, tmp_path, change):
        fitted(Function(model.answer), response_cache=tmp_path / "c").vote(QUERIES)
        changed = fitted(Function(model.answer), response_cache=tmp_path / "c", **change)
        assert changed.estimate(QUERIES).calls >= 48

    def test_another_setting_of_the_endpoint_is_another_question(self, server, tmp_path):
        fitted(quick(server.url), response_cache=tmp_path / "c").vote(QUERIES)
        warmer = quick(server.url, settings={"temperature": 1, "max_tokens": 8})
        assert fitted(warmer, response_cache=tmp_path / "c").estimate(QUERIES).calls == 49
        patient = quick(server.url, timeout=9.0, concurrency=1)
        assert fitted(patient, response_cache=tmp_path / "c").estimate(QUERIES).calls == 0

    SCRIPT = """
import sys
import json, threading
from pathlib import Path
from types import SimpleNamespace
sys.path[:0] = {path!r}
from ostraka.voters import Endpoint, PromptEnsemble, _requests

class Told(threading.Event):
    def set(self):
        super().set()
        print("stopping", flush=True)

_requests.threading = SimpleNamespace(Event=Told, Lock=threading.Lock)
texts, labels, queries = json.loads(Path({data!r}).read_text())  # tracebacks may print these lines
PromptEnsemble(
    Endpoint({url!r}, concurrency=4), model="small", classes=[0, 1], words=("A", "B"), n_teachers=8,
    response_cache={response_cache!r},
).fit(texts, labels).vote(queries)
print("all votes are there")
"""

    @pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
    def test_an_interrupted_vote_goes_on_and_pays_for_nothing_twice(self, server, model, tmp_path, how):
        queries = [*QUERIES, *PUBLIC[:10]]
        gate = threading.Event()
        server.intercept = lambda _handler, _body: len(server.seen) > 30 and not gate.wait(300)
        script = self.SCRIPT.format(
            path=sys.path,
            url=server.url,
            response_cache=str(tmp_path / "c"),
            data=str(tmp_path / "data.json"),
        )
        (tmp_path / "data.json").write_text(json.dumps([list(TEXTS), LABELS.tolist(), queries]))
        run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while len(server.seen) <= 30 and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(how)
        if how is signal.SIGINT:
            assert run.stdout.readline() == b"stopping\n"
        else:
            run.wait()
        gate.set()  # what is under way is answered after the signal
        output = b"".join(run.communicate(timeout=120)).decode()
        before = len(server.seen)
        assert "all votes are there" not in output
        assert run.returncode != 0
        assert CANARY not in output
        assert 30 < before < 40

        server.intercept = lambda _handler, _body: False
        resumed = ensemble(quick(server.url), response_cache=tmp_path / "c").fit(TEXTS, LABELS)
        votes = resumed.vote(queries).open()
        times = Counter(body["messages"][0]["content"] for body in server.seen)
        assert len(times) == 8 * len(queries) + 1
        twice = sum(times.values()) - len(times)
        assert twice == 0 if how is signal.SIGINT else twice <= 4  # what was under way
        whole = fitted_like(resumed, model).vote(queries).open()
        np.testing.assert_array_equal(votes, whole)


def fitted_like(teachers, model):
    return ensemble(Function(model.answer)).fit(TEXTS, LABELS, manifest=teachers.manifest_)
