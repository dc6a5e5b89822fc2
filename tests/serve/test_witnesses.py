"""A service with witnesses: no answer leaves before a majority of them knows its charge."""

import shutil

import pytest

from ostraka.ledger import LedgerError
from tests.serve.conftest import ONE, deploy, rows, serving


@pytest.fixture
def folders(tmp_path):
    paths = [tmp_path / name for name in ("one", "two", "three")]
    for path in paths:
        path.mkdir()
    return paths


def test_too_few_witnesses_are_503_and_the_same_key_answers_later_without_a_second_charge(
    tmp_path, saved, folders, monkeypatch
):
    monkeypatch.setattr("ostraka.serve.metrics._FRESH", 0.0)
    service = deploy(tmp_path, saved, witnesses=list(map(str, folders)))
    with serving(service):
        assert service.label(ONE, key="a").status_code == 200
        folders[0].rename(tmp_path / "away")
        assert service.label(ONE, key="b").status_code == 200
        folders[1].rename(tmp_path / "away too")
        for path, key in (("/ready", None), ("/v1/label", "c"), ("/v1/label", "c")):
            with service.http() as http:
                reply = http.get(path) if key is None else service.label(ONE, key=key)
            assert reply.status_code == 503
        (tmp_path / "away").rename(folders[0])
        assert service.label(ONE, key="c").status_code == 200
        assert [entry.key for entry in service.entries()] == ["a", "b", "c"]
        with service.http() as http:
            assert http.get("/ready").status_code == 200


def test_a_folder_put_back_whole_is_refused_and_a_running_service_stops(tmp_path, saved, folders):
    copy, witness_paths = tmp_path / "copy", list(map(str, folders))
    service = deploy(tmp_path, saved, witnesses=witness_paths)
    with serving(service):
        service.label(ONE, key="a")
    shutil.copytree(tmp_path / "service", copy)
    with serving(deploy(tmp_path, saved, witnesses=witness_paths)) as service:
        assert service.label(rows(1, seed=3)[0], key="b").status_code == 200
    shutil.rmtree(tmp_path / "service")
    copy.rename(tmp_path / "service")
    with pytest.raises(LedgerError, match="that a witness knows"):
        deploy(tmp_path, saved, witnesses=witness_paths)
    deploy(tmp_path, saved).there.ledger.close()  # with its anchor in the folder nobody else remembers


def test_an_anchor_on_another_disk_knows_it_too(tmp_path, saved):
    copy, anchor = tmp_path / "copy", tmp_path / "anchor"
    deploy(tmp_path, saved, anchor=anchor).there.ledger.close()
    shutil.copytree(tmp_path / "service", copy)
    with serving(deploy(tmp_path, saved, anchor=anchor)) as service:
        assert service.label(ONE, key="a").status_code == 200
    shutil.rmtree(tmp_path / "service")
    copy.rename(tmp_path / "service")
    with pytest.raises(LedgerError, match="it is an older copy"):
        deploy(tmp_path, saved, anchor=anchor)
    anchor.unlink()
    with pytest.raises(LedgerError, match="is empty or new"):
        deploy(tmp_path, saved, anchor=anchor)
