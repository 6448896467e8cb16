"""The chain: an entry for each new thing to say, whole after a kill anywhere, and continued by the next append."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from fedforget.attestation import Person, ReceiptChain, SigningKey, persons_of, sign_stored, verify_run
from fedforget.errors import ConfigError, ReceiptError
from fedforget.protocol.pseudonym import pseudonym
from tests.attestation.kills import killed_everywhere
from tests.attestation.made_runs import ANNA, ANNAS_REQUEST, SALT, copied, make_run, receipt, signed_run, store

FEDERATION = "f00dfeed"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", receipt("a1"))


@pytest.fixture
def key(run: Path) -> SigningKey:
    return SigningKey.open(run)


def test_an_empty_chain(run: Path) -> None:
    chain = ReceiptChain(run)
    assert chain.entries() == []
    assert chain.head is None
    assert chain.newest("a1") is None


def test_entries_are_numbered_and_linked(tmp_path: Path) -> None:
    chain = ReceiptChain(signed_run(tmp_path / "run"))
    entries = chain.entries()
    assert [(each.number, each.request) for each in entries] == [(1, "a1"), (2, "b2"), (3, "c3"), (4, "b2")]
    assert [each.predicate["previous"] for each in entries] == [None, *(each.digest for each in entries[:-1])]
    assert chain.head == entries[-1].digest
    assert chain.newest("b2") == entries[3]
    assert entries[0].path.name == "000001-a1.json"


def test_the_same_receipt_is_signed_once_and_new_wipe_counts_again(run: Path, key: SigningKey) -> None:
    chain, waiting = ReceiptChain(run), receipt("a1", wiped=0)
    first = chain.append(waiting, [Person("0" * 32)], key, FEDERATION)
    assert chain.append(waiting, [Person("0" * 32)], key, FEDERATION) == first
    second = chain.append(replace(waiting, wiped=1, to_wipe=1), [Person("0" * 32)], key, FEDERATION)
    assert (second.number, second.predicate["wiped"], second.predicate["to_wipe"]) == (2, 1, 1)
    assert len(chain.entries()) == 2


def test_other_persons_are_signed_again(run: Path, key: SigningKey) -> None:
    chain, (one, two) = ReceiptChain(run), (Person("0" * 32), Person("1" * 32, 3))
    chain.append(receipt("a1"), None, key, FEDERATION)
    named = chain.append(receipt("a1"), [two, one], key, FEDERATION)
    assert (named.number, named.persons) == (2, [one, two])
    assert chain.append(receipt("a1"), [one, two], key, FEDERATION) == named, "the order does not matter"
    assert chain.append(receipt("a1"), None, key, FEDERATION) == named, "whoever knows no persons keeps them"
    assert chain.append(receipt("a1"), [one, Person("1" * 32)], key, FEDERATION).number == 3
    store(run, receipt("a1"))
    assert verify_run(run).passed


def test_what_a_statement_says(run: Path, key: SigningKey) -> None:
    persons = [Person.of(ANNA, ANNAS_REQUEST), Person("0" * 32, 7)]
    statement = ReceiptChain(run).append(receipt("a1", users=3), persons, key, FEDERATION).statement
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "tag:fedforget,2026:erasure/v1"
    assert statement["subject"] == [
        {"name": "global-parameters-before", "digest": {"sha256": "a" * 64}},
        {"name": "global-parameters-after", "digest": {"sha256": "b" * 64}},
    ]
    predicate = statement["predicate"]
    named = [
        {"pseudonym": "0" * 32, "items_requested": 7},
        {"pseudonym": pseudonym(ANNA, ANNAS_REQUEST.replace("-", ""))},
    ]
    assert predicate["persons"] == named
    assert set(predicate) == {
        "request", "method", "digest_before", "digest_after", "finished", "version", "wiped", "to_wipe", "given_up",
        "persons", "federation", "number", "previous", "receipt_sha256", "issued",
    }  # fmt: skip
    assert predicate["issued"].endswith("Z")


def test_nothing_that_tells_when_somebody_took_part_or_the_names_of_the_erasure(run: Path, key: SigningKey) -> None:
    signed = ReceiptChain(run).append(receipt("a1", users=3, partial=2), [Person("0" * 32)], key, FEDERATION)
    text = json.dumps(signed.statement)
    for name in (*receipt("a1", users=3, partial=2).users, pseudonym("stays", SALT), "first_round", "asked", "seconds"):
        assert name not in text


def test_persons_of_an_erasure_without_requests_of_their_own() -> None:
    persons = persons_of(receipt("a1", users=2, partial=5))
    assert [each.items_requested for each in persons] == [None, None, 5]
    assert persons[0].pseudonym == pseudonym(0, SALT)


@pytest.mark.parametrize("name", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32])
def test_what_is_not_a_pseudonym(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a pseudonym"):
        Person(name)


@pytest.mark.parametrize("request_id", ["", "../x", "a b", "x" * 65, "a/b"])
def test_requests_that_cannot_name_a_file(run: Path, key: SigningKey, request_id: str) -> None:
    with pytest.raises(ReceiptError, match="cannot name a file"):
        ReceiptChain(run).append(receipt(request_id), [], key, FEDERATION)


def test_all_stored_receipts_are_signed_once_and_keep_their_persons(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", receipt("b2"), receipt("a1", wiped=0), receipt("c3"))
    key = SigningKey.open(run)
    ReceiptChain(run).append(receipt("a1", wiped=0), [Person("9" * 32)], key, FEDERATION)
    assert [entry.request for entry in sign_stored(run, key)] == ["b2", "c3"]
    assert sign_stored(run, key) == []
    store(run, receipt("a1", wiped=1))
    (entry,) = sign_stored(run, key)
    assert entry.persons == [Person("9" * 32)]
    assert verify_run(run).passed


def test_a_changed_receipt_is_not_signed_again(tmp_path: Path) -> None:
    run = signed_run(tmp_path / "run")
    store(run, replace(receipt("a1", users=2), digest_after="c" * 64))
    with pytest.raises(ReceiptError, match="is not the one that was signed in 000001-a1"):
        sign_stored(run, SigningKey.open(run))


def test_the_others_are_signed_before_an_error_names_what_is_not(tmp_path: Path) -> None:
    run = signed_run(tmp_path / "run")
    store(run, replace(receipt("a1", users=2), digest_after="c" * 64))
    store(run, receipt("d4", wiped=9))
    store(run, receipt("e5", wiped=0))
    with pytest.raises(ReceiptError, match=r"request a1 is not .* wipe counts of request d4 cannot be"):
        sign_stored(run, SigningKey.open(run))
    assert [entry.request for entry in ReceiptChain(run).entries()][4:] == ["e5"]


SIGNED = {"wiped": 1, "to_wipe": 3, "given_up": 1}


@pytest.mark.parametrize("now", [{"wiped": 2}, {"wiped": 1, "given_up": 2}])
def test_wipe_counts_that_grow_are_signed(tmp_path: Path, now: dict[str, int]) -> None:
    run = make_run(tmp_path / "run", replace(receipt("a1"), **SIGNED))
    key = SigningKey.open(run)
    sign_stored(run, key)
    store(run, replace(receipt("a1"), **{**SIGNED, **now}))
    assert [entry.number for entry in sign_stored(run, key)] == [2]


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"to_wipe": 4}, "3 devices were to wipe when it was signed, and now 4"),
        ({"to_wipe": None}, "of 1"),
        ({"wiped": 0}, "wiped was 1 when it was signed, and now it is 0"),
        ({"wiped": None}, "wiped was 1"),
        ({"given_up": 0}, "given_up was 1"),
        ({"wiped": 3}, "3 devices have confirmed and 1 were given up, of 3"),
        ({"wiped": 1.5}, "no whole numbers"),
        ({"wiped": True}, "no whole numbers"),
        ({"given_up": -1}, "no whole numbers"),
    ],
)
def test_wipe_counts_that_cannot_be_are_not_signed(tmp_path: Path, now: dict[str, Any], reason: str) -> None:
    run = make_run(tmp_path / "run", replace(receipt("a1"), **SIGNED))
    key = SigningKey.open(run)
    sign_stored(run, key)
    store(run, replace(receipt("a1"), **{**SIGNED, **now}))
    with pytest.raises(ReceiptError, match=f"wipe counts of request a1 cannot be: .*{reason}"):
        sign_stored(run, key)
    assert len(ReceiptChain(run).entries()) == 1


@pytest.mark.parametrize("counts", [{"wiped": 0}, {"to_wipe": 1}, {"given_up": 1}])
def test_no_wipe_counts_in_a_simulation(tmp_path: Path, counts: dict[str, int]) -> None:
    run = make_run(tmp_path / "run", replace(receipt("a1"), **counts), engine="simulation")
    with pytest.raises(ReceiptError, match="a simulation has no devices"):
        sign_stored(run, SigningKey.open(run))


def test_several_writers_wait_for_each_other(tmp_path: Path) -> None:
    receipts = [receipt(f"r{n}") for n in range(12)]
    run = make_run(tmp_path / "run", *receipts)
    key, chain = SigningKey.open(run), ReceiptChain(run)
    threads = [threading.Thread(target=chain.append, args=(each, [], key, FEDERATION)) for each in receipts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.number for entry in chain.entries()] == list(range(1, 13))
    assert verify_run(run).passed


def test_killed_anywhere_the_chain_is_whole_and_goes_on(tmp_path: Path) -> None:
    base = signed_run(tmp_path / "base")
    store(base, receipt("d4"))
    run = tmp_path / "run"
    places = 0
    for place in killed_everywhere(lambda: sign_stored(run, SigningKey.open(run)), lambda: copied(base, run) and None):
        places += 1
        entries = ReceiptChain(run).entries()
        assert len(entries) in (4, 5), place
        sign_stored(run, SigningKey.open(run))
        assert verify_run(run).passed, place
        assert [entry.number for entry in ReceiptChain(run).entries()] == [1, 2, 3, 4, 5]
        assert not list((run / "receipts" / "signed").glob(".*.part"))
    assert places >= 6
