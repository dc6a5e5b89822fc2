"""ostraka parties: a key for the agreement, and a dealer in a process of its own."""

import os
import select
import subprocess
import sys

import pytest

from ostraka.secure.agreement import Agreement, SecretQuestions
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from ostraka.voters import Party, PartyEnsemble
from tests.cli.terminal import typed
from tests.parties.hidden_rounds import MODELS, data_of

PATIENCE = 120  # seconds for a process on a busy machine
RUN = "from ostraka.cli import main; main()"


@pytest.fixture
def agreed(tmp_path):
    keys = {name: Identity.fresh() for name in ("a", "b", "c", "asker")}
    dealer = typed("parties", "key", tmp_path / "dealer").out.strip()
    agreement = Agreement(
        members={name: keys[name].public_key for name in "abc"},
        aggregator=keys["asker"].public_key,
        classes=range(3),
        n_features=2,
        sigma=2.0,
        noise="parties",
        secret=SecretQuestions(dealer=dealer, input_range=(0, 1)),
    )
    (tmp_path / "agreement.json").write_text(agreement.to_json())
    return agreement, keys


def test_a_dealer_in_its_own_process_deals_until_it_dies(agreed, tmp_path):
    agreement, keys = agreed
    command = ["parties", "dealer", tmp_path / "agreement.json", "--identity", tmp_path / "dealer"]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready, "the dealer did not start in time"
        url = process.stdout.readline().strip()
        members = {
            name: Party(MODELS[0], *data_of(3)[0], agreement=agreement, identity=keys[name]) for name in "abc"
        }
        parties = PartyEnsemble(
            members, agreement=agreement, identity=keys["asker"], questions="secret", dealer=url
        )
        assert parties.vote([[0.1, 0.9]]).shape == (1, 3)
        process.kill()
        process.wait(PATIENCE)
        with pytest.raises(PartyError, match="the dealer does not answer") as caught:
            parties.vote([[0.1, 0.9]])
        assert caught.value.parties == ("the dealer",)
    finally:
        process.kill()
        process.communicate()


def test_a_dealer_that_the_agreement_does_not_name_is_refused(agreed, tmp_path):
    refusal = typed("parties", "dealer", tmp_path / "agreement.json", "--identity", tmp_path / "another")
    assert "another dealer" in refusal.err
