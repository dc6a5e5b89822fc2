"""The response cache: every answer once, whatever happens to the process or the file, and no text in it."""

import contextlib
import hmac
import os
import stat
import threading

import pytest

from ostraka.voters._response_cache import ResponseCache

SECRET = "the private demonstration"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "response_cache.jsonl"


@pytest.fixture
def opened():
    """Response caches that close their file at the end."""
    with contextlib.ExitStack() as stack:

        def one(path):
            return stack.enter_context(contextlib.closing(ResponseCache(path)))

        yield one


def filled(path, n=3):
    response_cache = ResponseCache(path)
    names = [response_cache.name("{}", f"{SECRET} {number}") for number in range(n)]
    for number, name in enumerate(names):
        response_cache.record([(name, f"answer {number}")])
    response_cache.close()
    return names


def test_answers_are_there_again_after_a_restart(path):
    names = filled(path)
    again = ResponseCache(path)
    assert [again[name] for name in names] == ["answer 0", "answer 1", "answer 2"]
    assert again.name("{}", f"{SECRET} 1") == names[1]
    assert again.secret("deal") == ResponseCache(path).secret("deal") != again.secret("other")


def test_a_name_depends_on_setting_prompt_and_cache(path, tmp_path):
    one, other = ResponseCache(path), ResponseCache(tmp_path / "other")
    names = {
        one.name("a", "p"),
        one.name("b", "p"),
        one.name("a", "q"),
        other.name("a", "p"),
        one.name("", "a\0p"),
    }
    assert len(names) == 5


def test_the_file_is_for_its_owner_and_holds_no_question(path):
    filled(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_open_is_refused(path, mode):
    filled(path)
    path.chmod(mode)
    with pytest.raises(ValueError, match="type chmod 600"):
        ResponseCache(path)


def test_a_line_cut_off_anywhere_counts_as_never_written_and_spoils_no_other(path):
    names = filled(path)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        torn = ResponseCache(path)
        assert names[2] not in torn
        torn.record([("new", "one")])
        torn.close()
        again = ResponseCache(path)
        assert [again[name] for name in names[:2]] == ["answer 0", "answer 1"]
        assert again["new"] == "one"
        if cut == len(whole) - 1:  # all but the end of the line: with the next line begun, it is whole
            assert again[names[2]] == "answer 2"
        else:
            assert names[2] not in again


def test_a_changed_answer_counts_as_never_written(path):
    names = filled(path)
    path.write_bytes(path.read_bytes().replace(b"answer 1", b"answer 2"))
    assert [name in ResponseCache(path) for name in names] == [True, False, True]


@pytest.mark.parametrize(
    "line",
    [b"\xff\x00", b"[]", b"7", b'{"name": 1}', b'{"name": "a", "answer": 1, "check": 2}', b"[" * 100_000],
)
def test_lines_that_are_none_are_passed_over(path, line):
    names = filled(path, 1)
    with path.open("ab") as file:
        file.write(line + b"\n")
    assert ResponseCache(path)[names[0]] == "answer 0"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"a private table\n", b'{"ostraka": "response_cache", "version": 1, "key": "00"}\n'],
)
def test_a_file_that_is_no_cache_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="is not a response cache of ostraka") as refused:
        ResponseCache(path)
    assert "private table" not in str(refused.value)
    assert path.read_bytes() == content


def test_every_answer_is_on_stable_storage_when_it_counts(path, opened, monkeypatch):
    response_cache, waited = opened(path), []
    monkeypatch.setattr(os, "fsync", lambda handle: waited.append(path.read_bytes()))
    response_cache.record([("a", "1"), ("b", None)])
    assert len(waited) == 1
    assert waited[0].count(b"\n") == 3


def test_a_full_disk_loses_no_answer_before_it(path, opened, monkeypatch):
    response_cache = opened(path)
    response_cache.record([("a", "1")])

    def full(_handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            response_cache.record([("b", "2")])
    assert "b" not in response_cache
    response_cache.record([("c", "3")])
    assert (ResponseCache(path)["a"], ResponseCache(path)["c"]) == ("1", "3")


def test_two_at_once_see_each_other_and_the_first_answer_stays(path, opened):
    one, two = opened(path), opened(path)
    one.record([("a", "first")])
    two.record([("a", "second"), ("b", "b")])
    one.load()
    assert (one["a"], one["b"]) == ("first", "b")
    assert ResponseCache(path)["a"] == "first"


def test_many_who_begin_the_same_file_share_one_key(path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ResponseCache(path).secret("x"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_without_a_file_answers_last_as_long_as_the_object():
    response_cache = ResponseCache(None)
    response_cache.record([("a", "1")])
    response_cache.load()
    assert response_cache["a"] == "1"
    assert ResponseCache(None).secret("deal") != response_cache.secret("deal")


def test_a_file_of_the_first_version_still_opens(path):
    key = "ab" * 32
    path.write_text(f'{{"ostraka": "cassette", "version": 1, "key": "{key}"}}\n')
    path.chmod(0o600)
    assert ResponseCache(path).secret("deal") == hmac.digest(bytes.fromhex(key), b"secret\0deal", "sha256")
