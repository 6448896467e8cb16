"""Receipts: they say what was done, and to nobody without the salt to whom."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import fedforget as ff
from fedforget.protocol import reasons
from fedforget.server.receipt import Receipt, pseudonym

SALT = "00112233445566778899aabbccddeeff"
LEAVERS = ["anna.schmidt@example.org", 918273645]


@pytest.fixture
def receipt() -> Receipt:
    return Receipt(
        request="abc123",
        users=[pseudonym(user, SALT) for user in LEAVERS],
        method=ff.FRU().settings(),
        first_round=3,
        rounds_replayed=8,
        rounds_added=0,
        asked=40,
        answered=30,
        missing={reasons.NO_RESPONSE: 10},
        bytes_down=2_000_000,
        bytes_up=500_000,
        seconds=1.5,
        digest_before="a" * 64,
        digest_after="b" * 64,
        finished="2026-01-01T00:00:00+00:00",
        version="1.0",
        salt=SALT,
    )


def test_what_is_stored_and_shown_names_nobody_and_not_the_salt(receipt):
    for text in (receipt.to_json(), str(receipt), repr(receipt)):
        for secret in (*LEAVERS, SALT):
            assert str(secret) not in text
    assert "salt" not in json.loads(receipt.to_json())
    assert json.loads(receipt.to_json())["users"] == list(receipt.users)


def test_a_stored_receipt_comes_back_with_everything_but_the_salt(receipt):
    again = Receipt.from_json(receipt.to_json())
    assert again == replace(receipt, salt=None)
    assert Receipt.from_json(again.to_json()) == again


def test_whoever_knows_an_id_and_the_salt_can_check_it(receipt):
    stored = Receipt.from_json(receipt.to_json())
    for user in LEAVERS:
        assert receipt.names(user)
        assert stored.names(user, SALT)
        assert not stored.names(user, SALT[::-1])
    for other in ("bob", 918273646, "918273645"):
        assert not receipt.names(other)
    with pytest.raises(ValueError, match="salt is needed"):
        stored.names(LEAVERS[0])


def test_a_number_and_its_digits_are_different_users():
    assert pseudonym(5, SALT) != pseudonym("5", SALT)
    assert pseudonym(5, SALT) == pseudonym(5, SALT)
    assert len({pseudonym(user, SALT) for user in range(1000)}) == 1000


def test_coverage_is_the_share_that_answered(receipt):
    assert receipt.coverage == json.loads(receipt.to_json())["coverage"] == 0.75
    assert replace(receipt, asked=0, answered=0).coverage == 1


def test_a_person_can_read_it(receipt):
    shown = str(receipt)
    for part in (
        "abc123",
        "2 users",
        "round 3",
        "fru",
        "replay_fraction 0.1",
        "8 rounds",
        "75.0%",
        f"10 × {reasons.NO_RESPONSE}",
    ):
        assert part in shown
    assert "failed: none" not in shown
    assert "no round" in str(replace(receipt, first_round=None))
    assert "(100.0%), failed: none" in str(replace(receipt, answered=40, missing={}))


def test_the_salt_is_handed_out_once_and_is_nowhere_in_the_run_folder(board, tmp_path):
    run = tmp_path / "run"
    fed = ff.Federation(
        board, ff.MF(dim=4), path=run, training=ff.LocalTraining(epochs=1), server=ff.ServerConfig(fraction=0.5)
    ).fit(rounds=3)
    receipts = [fed.forget([user]) for user in (7, 8)]
    fed.close()
    again = ff.Federation.open(run, board)
    stored = again.receipts()
    again.close()
    assert [receipt.salt for receipt in stored] == [None, None]
    assert stored == [replace(receipt, salt=None) for receipt in receipts]
    assert receipts[0].salt != receipts[1].salt
    assert stored[0].names(7, receipts[0].salt)
    assert not stored[0].names(8, receipts[0].salt)
    for path in run.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for receipt in receipts:
            assert receipt.salt.encode() not in content
            assert bytes.fromhex(receipt.salt) not in content
    assert sorted(path.name for path in (run / "receipts").iterdir()) == sorted(f"{r.request}.json" for r in receipts)


def test_digests_are_those_of_the_models_before_and_after(board):
    fed = ff.Federation(board, ff.MF(dim=4), training=ff.LocalTraining(epochs=1)).fit(
        rounds=3, cohorts={round_: [1, 2, 3] for round_ in (1, 2, 3)}
    )
    before, items = fed.public.digest, fed.public.items.copy()
    receipt = fed.forget([2])
    assert receipt.digest_before == before
    assert receipt.digest_after == fed.public.digest
    assert not np.array_equal(items, fed.public.items)
    assert (receipt.first_round, receipt.rounds_replayed, receipt.asked, receipt.answered) == (1, 3, 6, 6)


@pytest.mark.parametrize("method", [ff.FRU(), ff.Retrain(), ff.Continue(0.5)], ids=lambda method: method.name)
@pytest.mark.parametrize("until", [6, 8, 9])
def test_an_erasure_that_was_interrupted_counts_what_the_unbroken_one_does(board, tmp_path, method, until):
    """Snapshots are thinned, so that the way back is longer than to the first round of the leaver."""

    def stop(record) -> None:
        if record.round == (until + 5 if isinstance(method, ff.Continue) else until):
            raise KeyboardInterrupt

    receipts = []
    for kind in ("whole", "broken"):
        fed = ff.Federation(
            board, ff.MF(dim=4), path=tmp_path / kind, training=ff.LocalTraining(epochs=1),
            server=ff.ServerConfig(fraction=0.2, snapshot_every=4), joins={7: 8},
        )  # fmt: skip
        fed.fit(rounds=10, cohorts={8: [6, 7, 9]})
        if kind == "broken":
            with pytest.raises(KeyboardInterrupt):
                fed.forget([7], method, on_round=stop)
        receipts.append(fed.forget([7], method))
        fed.close()
    whole, broken = receipts
    for field in ("first_round", "rounds_replayed", "rounds_added", "asked", "answered", "bytes_down", "bytes_up"):
        assert getattr(whole, field) == getattr(broken, field), field
    assert whole.digest_after == broken.digest_after
