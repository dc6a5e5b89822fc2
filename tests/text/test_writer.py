import hashlib
import json
import math
import stat
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, Ledger
from ostraka.data.units import partition
from ostraka.text import MeteredDraws, Prompt, TokenDraw, WordModel, Writer
from ostraka.text.writer import SavedDocuments, hashed_words, unit, word_counts
from tests.text.conftest import WORDS, documents


def rng(seed=0):
    return np.random.default_rng(seed)


def budget(epsilon=60.0):
    return Budget(epsilon=epsilon, delta=1e-5, adaptive=False)


# What is written -----------------------------------------------------------------------------------------


def test_texts_say_what_the_documents_of_their_class_agree_on_and_less_so_at_a_small_price(written):
    plain = {epsilon: written(epsilon=epsilon, n_documents=24, n_tokens=4) for epsilon in (60.0, 0.01)}
    texts, labels = ["the acting is warm", "the plot is dull"], ["good", "bad"]
    rich, poor = (writer.score(texts, labels, plan=writer.plan(2)) for writer in plain.values())
    assert rich.bits == pytest.approx(rich.without_privacy, abs=0.05)
    assert rich.bits < poor.bits - 0.3
    assert poor.bits == pytest.approx(poor.public, abs=0.08)
    assert (rich.n_tokens, rich.candidates) == (8, 1.0)
    found = written(clip=40.0, n_documents=24, n_tokens=6).write(80, rng=rng())
    warm = [sum("is warm" in text.text for text in found if text.label == label) for label in ("bad", "good")]
    assert warm[1] > 3 * warm[0]


def test_a_text_ends_with_the_token_that_ends_it(written, tmp_path):
    lengths = [
        len(text.text.split()) for text in written(n_tokens=12, store=tmp_path / "store").write(40, rng=rng())
    ]
    assert max(lengths) <= 12
    assert len(set(lengths)) > 2
    texts = {}
    for key, body in stored(tmp_path / "store").items():  # nothing is drawn after an end
        texts.setdefault(key.rpartition(" ")[0], []).append(json.loads(body)[0])
    assert len(texts) == 40
    for pieces in texts.values():
        assert all(pieces[:-1])
        assert len(pieces) == 12 or not pieces[-1]


# What is paid --------------------------------------------------------------------------------------------


def test_disjoint_batches_cost_as_much_as_one_and_more_texts_of_a_batch_cost_more(written):
    writer = written()
    assert writer.plan(4).n_batches == (2, 2)
    two_texts, four_texts, many = (writer.plan(n) for n in (2, 4, 5))
    assert two_texts.uses == four_texts.uses == 5
    assert many.uses == 10
    assert many.draw.clip < four_texts.draw.clip
    for plan in (two_texts, four_texts, many):
        assert 29.9 < plan.epsilon <= 30.0
        assert (plan.uses * plan.draw.curve()).epsilon(1e-5) == plan.epsilon


@pytest.mark.parametrize("paid", [None, 3, 99])
def test_a_plan_has_the_largest_clip_of_its_price_and_its_numbers_are_those_of_the_settings(written, paid):
    writer = written(n_tokens=7, paid=paid, temperature=1.3)  # two classes, with two batches of 12 each
    for n, texts, rounds in ((1, (1, 0), 1), (2, (1, 1), 1), (5, (3, 2), 2), (9, (5, 4), 3)):
        plan, uses = writer.plan(n), 7 * rounds
        assert (plan.n_texts, plan.n_batches, plan.uses) == (texts, (2, 2), uses)
        assert (plan.calls, plan.delta) == (n * 7 * 13, 1e-5)
        assert plan.draw == TokenDraw(clip=plan.draw.clip, n_documents=12, temperature=1.3)
        assert plan.metered == (None if paid is None else MeteredDraws(draw=plan.draw, paid=min(paid, uses)))

        def price(clip, plan=plan, uses=uses):
            draw = replace(plan.draw, clip=clip)
            whole = uses * draw.curve() if paid is None else replace(plan.metered, draw=draw).curve()
            return whole.epsilon(1e-5)

        assert plan.epsilon == price(plan.draw.clip) <= 30 < price(plan.draw.clip * 1.0003)
        assert writer.estimate(n) == {
            "epsilon": plan.epsilon,
            "delta": 1e-5,
            "texts": {"bad": texts[0], "good": texts[1]},
            "batches": {"bad": 2, "good": 2},
            "draws_of_one_document": uses,
            "clip": plan.draw.clip,
            "range": plan.draw.range,
            "prompts": plan.calls,
        }
    with pytest.raises(ValueError, match="n must be"):
        writer.plan(0)
    assert written(clip=0.5, epsilon=0.01).plan(2).draw.clip == 0.5


def test_a_document_that_may_be_replaced_has_half_the_clip(written):
    clips = [written(relation=relation).plan(2).draw.clip for relation in ("zero-out", "replace-one")]
    assert clips[0] / clips[1] == pytest.approx(2, rel=1e-3)


def test_all_is_charged_once_before_the_first_private_prompt(written, asked, tmp_path):
    model = asked(fails_after=3)
    with Ledger(tmp_path / "ledger", budget=budget()) as ledger:
        writer = written(model, store=tmp_path / "store")
        with pytest.raises(KeyboardInterrupt):
            writer.write(2, ledger=ledger, rng=rng())
        [entry] = ledger.entries()
        assert (entry.uses, ledger.unit) == (5, "document (zero-out)")
        assert ledger.epsilon() == pytest.approx(writer.plan(2).epsilon)
    assert all(len(prompts) == 1 for prompts, _ in model.calls[:2])  # public ones


def test_what_the_budget_does_not_hold_is_refused_before_any_private_prompt(written, asked):
    model = asked()
    with Ledger(":memory:", budget=budget(5.0)) as ledger:
        with pytest.raises(BudgetExceeded):
            written(model).write(2, ledger=ledger, rng=rng())
        assert not ledger.entries()
    assert {len(prompts) for prompts, _ in model.calls} == {1}


@pytest.mark.parametrize("settings", [{}, {"clip": 0.7}, {"paid": 3}, {"relation": "replace-one"}])
def test_the_record_says_what_is_promised_and_a_ledger_in_memory_pays_it(written, settings):
    done = []
    writer = written(**settings, progress=lambda *at: done.append(at))
    texts = writer.write(3, rng=rng())
    plan, result = writer.plan(3), writer.result_
    paid, uses = (plan.draw, plan.uses) if plan.metered is None else (plan.metered, 1)
    assert [text.label for text in texts] == ["bad", "bad", "good"]
    assert done == [("tokens", 5, 15), ("tokens", 10, 15), ("tokens", 15, 15)]
    assert result.settings == {
        "unit": "document",
        "relation": settings.get("relation", "zero-out"),
        "mechanism": repr(paid),
        "model": writer.model.name,
        "classes": ["bad", "good"],
        "n_texts": 3,
        "n_documents": 12,
        "n_tokens": 5,
        "draws_of_one_document": 5,
    }
    assert (result.kind, *result.notes) == ("write", "The lower bound is missing: no audit was run.")
    assert any("many documents share" in line for line in result.upper.pop("not_protected"))
    assert result.upper == {
        "epsilon": plan.epsilon,
        "delta": 1e-5,
        "curve": (uses * paid.curve()).to_dict(),
        "simulation": True,
    }
    writer.write(3)
    assert writer.result_.upper["simulation"] is False


# What continues ------------------------------------------------------------------------------------------


def test_a_run_that_was_killed_goes_on_with_the_stored_tokens_and_pays_nothing_twice(
    written, asked, tmp_path
):
    store, where = tmp_path / "store", tmp_path / "ledger"
    with Ledger(where, budget=budget()) as ledger, pytest.raises(KeyboardInterrupt):
        written(asked(fails_after=9), store=store).write(2, ledger=ledger, rng=rng(1))
    first = stored(store)
    assert 2 <= len(first) < 8
    model = asked()
    with Ledger(where) as ledger:
        texts = written(model, store=store).write(2, ledger=ledger, rng=rng(2))
        assert len(ledger.entries()) == 1
        assert {key: stored(store)[key] for key in first} == first
        prefixes = {tuple(map(tuple, tokens)) for prompts, tokens in model.calls if len(prompts) > 1}
        assert len(prefixes) + len(first) == len(stored(store))  # nothing is computed again
        calls = len(model.calls)
        assert written(model, store=store).write(2, ledger=ledger, rng=rng(3)) == texts
        assert all(len(prompts) == 1 for prompts, _ in model.calls[calls:])


def stored(path):
    from ostraka.secure.log import Log
    from ostraka.text import writer

    log = Log(path, name=writer._LOG)
    try:
        return {key: body for key, body in log.entries() if key.startswith("texts ")}
    finally:
        log.close()


@pytest.mark.parametrize("change", ["another store", "other documents", "another length"])
def test_a_store_that_is_lost_and_other_documents_are_charged_anew(written, tmp_path, change):
    with Ledger(tmp_path / "ledger", budget=budget(90.0)) as ledger:
        written(store=tmp_path / "store").write(2, ledger=ledger, rng=rng())
        store = tmp_path / ("other" if change == "another store" else "store")
        texts, labels = documents()
        if change == "other documents":
            texts[0] = "zebra"
        longer = {"n_tokens": 6} if change == "another length" else {}
        written(texts=texts, labels=labels, store=store, **longer).write(2, ledger=ledger, rng=rng())
        assert len(ledger.entries()) == 2


def test_store_and_cache_are_for_their_owner_only(written, tmp_path):
    store, cache = tmp_path / "store", tmp_path / "cache"
    writer = written(store=store, response_cache=cache)
    writer.write(1, rng=rng())
    writer.close()
    for path in (store, cache):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"acting" not in store.read_bytes() + cache.read_bytes().replace(b"6163", b"")
    for mode in (0o601, 0o602, 0o604, 0o610, 0o620, 0o640):
        store.chmod(mode)
        with pytest.raises(ValueError, match="chmod 600"):
            written(store=store)
    store.chmod(0o700)
    written(store=store).close()


def test_documents_are_kept_in_a_folder_of_their_owner_as_they_were(tmp_path, monkeypatch):
    saved = SavedDocuments(
        documents=("tea is warm", "é"),
        unit="person",
        model="tiny",
        threads=3,
        retrieve=5,
        near=0.3,
        epsilon=2.0,
        delta=1e-6,
        n_tokens=7,
        temperature=1.5,
        relation="replace-one",
    )
    folder, file = tmp_path / "a" / "b", tmp_path / "a" / "b" / "documents.json"
    for _ in range(2):  # what is there is replaced
        saved.save(folder)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]
    assert SavedDocuments.load(folder) == saved
    opened = []
    model = WordModel(["tea"])
    monkeypatch.setattr(
        "ostraka.text.writer.open_model", lambda name, n_threads: opened.append((name, n_threads)) or model
    )
    for how, settings in (("person", {}), ("document", {"unit": "document"})):
        writer = replace(saved, **settings).writer(tmp_path / how)
        assert (writer.unit_, writer.documents_) == (how, ["tea is warm", "é"])
        assert (writer.n_documents, writer.n_tokens, writer.epsilon, writer.delta) == (5, 7, 2.0, 1e-6)
        assert (writer.temperature, writer.relation, writer.model) == (1.5, "replace-one", model)
        assert (tmp_path / how).exists()
        writer.close()
    assert opened == [("tiny", 3)] * 2
    for wrong in ({"unit": "row"}, {"retrieve": 0}, {"threads": 0}, {"near": math.nan}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            replace(saved, **wrong)
    for text in ("", "[]", "{}", '{"documents": 3}', file.read_text().replace("near", "canary")):
        file.write_text(text)
        with pytest.raises(ValueError, match="is not as 'ostraka write") as refused:
            SavedDocuments.load(folder)
        assert "canary" not in str(refused.value)
    for mode in (0o601, 0o602, 0o604, 0o610, 0o620, 0o640):
        file.chmod(mode)
        with pytest.raises(ValueError, match="chmod 600"):
            SavedDocuments.load(folder)


def test_with_a_cache_nothing_is_computed_twice_and_the_laws_are_the_same(written, asked, tmp_path):
    plain, cached = written(), written(response_cache=tmp_path / "cache")
    texts, labels = ["the acting was fine"], ["good"]
    first = plain.score(texts, labels, plan=plain.plan(2))
    model = asked()
    again = written(model, response_cache=tmp_path / "cache", store=None)
    assert cached.score(texts, labels, plan=cached.plan(2)).n_tokens == first.n_tokens
    calls = len(model.calls)
    again.score(texts, labels, plan=again.plan(2))
    done = len(model.calls)
    again.score(texts, labels, plan=replace(again.plan(2), draw=again.plan(2).draw.at([])))
    assert len(model.calls) == done > calls


# What steers ---------------------------------------------------------------------------------------------


def by_counting(prompt, tokens, n_shown):
    """The likeliest of a WordModel, by counting the pairs of words of the prompt; of equals the first."""
    pieces = [f" {word}" for word in WORDS] + [""]
    last, words = tokens[-1].piece.decode().strip() if tokens else ".", prompt.replace("\n", " . ").split()
    counts = {
        piece: 1 + 30.0 * sum(pair == (last, piece.strip() or ".") for pair in pairwise(words))
        for piece in pieces
    }
    likeliest = sorted(counts, key=lambda piece: -counts[piece])[:n_shown]
    return {piece: math.log(counts[piece] / sum(counts.values())) for piece in likeliest}


@pytest.mark.parametrize(("n_candidates", "shown", "longest"), [(11, 11, 2000), (4, 2, 2000), (3, 8, 9)])
def test_places_are_those_of_the_laws_of_the_prompts(written, n_candidates, shown, longest):
    settings = {"n_candidates": n_candidates, "shown": shown, "longest": longest, "n_documents": 5}
    writer = written(
        **settings, clip=2.0, temperature=1.2, prompt=Prompt(ask="{label} the", examples=("fine",))
    )
    drawn, public, free, most = [], [], [], max(shown, n_candidates)
    text = writer.model.tokens("acting is warm")
    for t in range(4):
        before = "A text about good: fine\n"
        law = by_counting(f"{before}good the", text[:t], most)
        candidates = sorted(law, key=lambda piece: (-law[piece], piece))[:n_candidates]
        logs = np.array([law[piece] for piece in candidates])
        rows = []
        for document in writer._batches[1][2]:
            assert len(document) <= longest
            own = by_counting(f"{before}A text about good: {document}\ngood the", text[:t], most)
            visible = sorted(own, key=lambda piece: (-own[piece], piece))[:shown]
            last = own[visible[-1]]
            rows.append([own[k] - law[k] if k in visible else min(last - law[k], 0.0) for k in candidates])
        place = writer.position(text[:t], code=1, batch=2)
        assert [token.piece.decode() for token in place.candidates] == candidates
        np.testing.assert_allclose(place.public, logs, rtol=1e-12)
        np.testing.assert_allclose(place.differences, rows, rtol=1e-12, atol=1e-12)
        mine = writer.differences(f"{document} and more", text[:t], code=1)
        if longest == 9:
            np.testing.assert_array_equal(mine, place.differences[-1])
        first = writer.position(text[:t], code=1)
        piece = text[t].piece.decode() if t < 3 else ""
        if piece in candidates:
            k, draw = candidates.index(piece), writer.plan(2).draw
            law_drawn = draw.at(logs).log_outcomes(draw.contributions(first.differences).sum(axis=0))
            mean = logs + first.differences.mean(axis=0)
            drawn.append(-law_drawn[k] / math.log(2))
            public.append((np.logaddexp.reduce(logs) - logs[k]) / math.log(2))
            free.append((np.logaddexp.reduce(mean) - mean[k]) / math.log(2))
    score = writer.score(["acting is warm"], ["good"], plan=writer.plan(2))
    means = [np.mean(bits) for bits in (drawn, public, free)]
    np.testing.assert_allclose(score[:3], means, rtol=1e-9)
    assert (score.n_tokens, score.candidates) == (4, len(drawn) / 4)


def test_a_text_none_of_whose_tokens_is_a_candidate_has_no_score(written):
    score = written(n_candidates=1, n_tokens=1).score(["zebra"], ["good"], plan=written().plan(2))
    assert np.isnan(score[:3]).all()
    with pytest.raises(ValueError, match="shorter"):
        written().score(["zebra", "fine"], ["good"], plan=written().plan(2))
    assert score[3:] == (1, 0.0)


def test_features_are_counts_of_words_and_are_near_by_their_cosine():
    texts = ["the plot the", "plot", ""]
    rows = word_counts(texts)
    assert rows.shape == (3, 4096)
    assert sorted(rows[0][rows[0] > 0].tolist()) == [1.0, 2.0]
    assert rows[0] @ rows[1] == 1.0
    assert not rows[2].any()
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(hashed_words(text), row)
    np.testing.assert_allclose(unit(np.array([[3.0], [4.0]])), [0.6, 0.8])
    for none in ([0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e200, 1e200]):
        assert unit(np.array(none)).tolist() == [0.0, 0.0]


def test_of_one_place_nothing_is_asked_twice(written, asked):
    model = asked()
    writer = written(model)
    for tokens in ([], [], model.tokens("the"), []):
        writer.position(tokens, code=0)
    assert [len(prompts) for prompts, _ in model.calls] == [1, 12] * 3
    [[_, documents], _] = writer._batches
    writer._read(writer.prompt, "bad", documents[:1], [], width=12)
    assert len(model.calls) == 6  # one that is known, and public ones beside it


def test_candidates_and_public_numbers_do_not_depend_on_documents(written):
    texts, labels = documents()
    others = ["zebra quartz zebra quartz"] * len(texts)
    for tokens in ([], written().model.tokens("the"), written().model.tokens("the plot zebra")):
        places = [
            written(texts=text, labels=labels, n_candidates=4).position(tokens, code=1)
            for text in (texts, others)
        ]
        assert places[0].candidates == places[1].candidates
        assert (places[0].public == places[1].public).all()
        assert places[0].differences.shape == places[1].differences.shape
    assert not (places[0].differences == places[1].differences).all()


def test_a_document_counts_the_same_whatever_the_others_say(written, asked, tmp_path):
    writer = written(store=tmp_path / "store")
    mine = writer._batches[1][0][3]
    alone = writer.position([], code=1).differences[3]
    writer._batches[1][0] = [
        "zebra " * 90 if document != mine else document for document in writer._batches[1][0]
    ]
    again = writer.position([], code=1).differences
    assert any((row == alone).all() for row in again)


def test_a_document_that_the_model_refuses_is_silent_and_nobody_is_told(written, asked):
    texts, labels = documents()
    texts[5] = "quartz"
    writer = written(asked(refuses="quartz"), texts=texts, labels=labels)
    [batch] = [k for k, batch in enumerate(writer._batches[1]) if "quartz" in batch]
    rows = writer.position(writer.model.tokens("the"), code=1, batch=batch).differences
    assert [not row.any() for row in rows] == [document == "quartz" for document in writer._batches[1][batch]]
    assert len(writer.write(4, rng=rng())) == 4


def test_what_is_not_shown_counts_as_the_last_that_is(written):
    narrow, every = written(shown=2), written()
    narrow._batches = every._batches
    short, complete = narrow.position([], code=1), every.position([], code=1)
    assert short.candidates == complete.candidates
    for row, full in zip(short.differences, complete.differences, strict=True):
        logs = np.sort(full + complete.public)[::-1]
        visible = full + complete.public >= logs[1]
        assert np.isclose(row, full)[visible].sum() >= 2
        deficit = np.minimum(logs[1] - complete.public, 0.0)
        assert (np.isclose(row, full) | np.isclose(row, deficit)).all()


# Who is protected ----------------------------------------------------------------------------------------


def test_each_document_is_in_one_batch_and_a_person_in_one_prompt(written):
    texts = [f"{word} {k}" for k in range(20) for word in ("warm", "dull", "fine")]
    labels = ["good" if k % 4 else "bad" for k in range(20) for _ in range(3)]
    labels[1] = "good"  # a person of two classes has the first
    writer = written(texts=texts, labels=labels, groups=np.repeat(np.arange(20), 3), n_documents=5)
    assert writer.unit_ == "person"
    assert [len(batches) for batches in writer._batches] == [1, 3]
    prompts = [text.split("\n") for batches in writer._batches for batch in batches for text in batch]
    people = [{line.split()[1] for line in lines} for lines in prompts]
    assert all(len(text) == 1 for text in people)
    assert len(set().union(*people)) == len(people) == 20
    assert sum(len(lines) for lines in prompts) == len(texts) - 1  # the row of the other class is left out


def test_batches_are_dealt_by_a_secret_of_the_store(written, tmp_path):
    deals = [written(store=tmp_path / name)._batches for name in ("a", "a", "b")]
    assert deals[0] == deals[1] != deals[2]


@pytest.mark.parametrize(
    ("n_documents", "n_batches"), [(30, 1), (24, 1), (23, 1), (12, 2), (11, 2), (5, 4), (1, 24)]
)
def test_batches_are_the_keyed_partition_of_the_documents_of_a_class(written, n_documents, n_batches):
    writer = written(n_documents=n_documents)
    texts, labels = documents()
    for code, label in enumerate(("bad", "good")):
        mine = [text for text, other in zip(texts, labels, strict=True) if other == label]
        key = hashlib.blake2b(f"deal {code}".encode(), key=writer._secret, digest_size=32).digest()
        deal = partition(24, n_teachers=n_batches, key=key)
        want = []
        for batch in range(n_batches):
            rows = sorted(np.flatnonzero(deal.shards == batch).tolist(), key=lambda row: deal.units[row])
            want.append([mine[row] for row in rows[:n_documents]])
        assert writer._batches[code] == want


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": ["bad"] * 47 + ["canary-7f3a"]}, "declared classes only"),
        ({"labels": ["bad"] * 3}, "one for each"),
        ({"texts": ["a", None], "labels": ["bad", "good"]}, "sequence of str"),
        ({"groups": np.arange(3)}, "one person for each row"),
    ],
)
def test_documents_that_do_not_fit_are_refused_without_a_word_of_them(written, wrong, message):
    texts, labels = documents()
    with pytest.raises(ValueError, match=message) as refused:
        written(**{"texts": texts, "labels": labels} | wrong)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"classes": []}, "classes must"),
        ({"n_documents": 0}, "n_documents must"),
        ({"relation": "add-or-remove"}, "relation must"),
        ({"paid": 3, "relation": "replace-one"}, "zero-out"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"delta": 1.0}, "delta must"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(asked, wrong, message):
    with pytest.raises(ValueError, match=message):
        Writer(asked(), **{"classes": ["a"]} | wrong)


def test_a_class_without_documents_and_a_writer_without_any_are_refused(written, asked):
    with pytest.raises(ValueError, match="none of good"):
        written(texts=["dull"], labels=["bad"]).plan(2)
    with pytest.raises(ValueError, match="call fit"):
        Writer(asked(), classes=["a"]).plan(1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ask": "{word}"}, "must have the fields"),
        ({"document": "no field"}, "must have the fields"),
        ({"ask": "{"}, "every literal brace"),
        ({"document": "{document} {label:{document}}"}, "no field within a field"),  # errors would quote it
    ],
)
def test_templates_with_other_fields_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Prompt(**wrong)


def test_public_examples_stand_before_every_prompt():
    prompt = Prompt(ask="{label}:", document="{label}: {document}\n", examples=("fine",))
    assert prompt.of("film") == "film: fine\nfilm:"
    assert prompt.of("film", "warm {x}") == "film: fine\nfilm: warm {x}\nfilm:"


def test_places_of_a_text_are_the_same_in_one_pass_and_one_by_one(written):
    writer = written(n_candidates=4)
    tokens = writer.model.tokens("the plot is fine")
    usual = writer.model.next_tokens
    slow = writer.positions(tokens, code=1)
    (first, *_), (of_first_class, *_) = writer.positions(tokens), writer.positions(tokens, code=0, batch=0)
    np.testing.assert_array_equal(first.differences, of_first_class.differences)
    writer.model.next_tokens_along = lambda prompts, tokens, shown: [
        usual(prompts, tokens[:t], shown=shown) for t in range(len(tokens) + 1)
    ]
    fast = writer.positions(tokens, code=1)
    assert len(slow) == len(fast) == len(tokens)
    for step, quick_step in zip(slow, fast, strict=True):
        assert step.candidates == quick_step.candidates
        np.testing.assert_array_equal(step.public, quick_step.public)
        np.testing.assert_array_equal(step.differences, quick_step.differences)
