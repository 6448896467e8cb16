"""Verification: a whole run passes, and any edit of a stored receipt, an entry or their order is found."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedforget.attestation import (
    Person,
    Problem,
    ReceiptChain,
    SigningKey,
    Verification,
    sign_stored,
    verify,
    verify_run,
)
from fedforget.attestation.canonical_json import canonical
from fedforget.attestation.certificate import Certificate
from fedforget.attestation.chain import FOLDER
from fedforget.attestation.envelope import Envelope
from fedforget.attestation.keys import stored_certificates
from fedforget.attestation.statement import DEFAULTS, TYPE
from fedforget.attestation.stored import StoredReceipts
from fedforget.errors import FedForgetError, ReceiptError, RunError, SigningKeyError
from tests.attestation.made_runs import (
    ANNA,
    ANNAS_REQUEST,
    PAUL,
    PAULS_REQUEST,
    copied,
    edit_history,
    in_history,
    make_run,
    receipt,
    signed_run,
    store,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signed_run(tmp_path_factory.mktemp("base") / "run")


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    return copied(base, tmp_path / "run")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "SETTLE_SECONDS", 0.0)


def problems(result: Verification) -> set[tuple[str, Problem | None]]:
    return {(finding.name, finding.problem) for finding in result.findings if not finding.passed}


def entry(run: Path, number: int) -> Path:
    return next((run / FOLDER).glob(f"{number:06d}-*.json"))


class TestWhole:
    def test_it_passes(self, run: Path) -> None:
        result = verify_run(run)
        assert result.passed
        assert result.head == ReceiptChain(run).head
        assert [(each.number, each.request) for each in result.findings] == [(1, "a1"), (2, "b2"), (3, "c3"), (4, "b2")]
        assert json.loads(json.dumps(result.to_dict()))["certificates_given"] is False

    def test_by_noted_certificates_and_a_noted_head(self, run: Path) -> None:
        noted = [certificate.pem for certificate in stored_certificates(run)]
        head = verify_run(run).head
        store(run, receipt("d4"))
        sign_stored(run, SigningKey.open(run))
        result = verify_run(run, noted, head)
        assert result.passed
        assert result.given

    def test_a_run_without_receipts(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run")
        assert verify_run(run).passed
        assert problems(verify_run(run, head="0" * 64)) == {("head", Problem.HEAD)}

    def test_nothing_is_written(self, run: Path) -> None:
        def contents() -> dict[Path, bytes]:
            return {
                path: path.read_bytes()
                for path in run.rglob("*")
                if path.is_file() and not path.name.endswith(("-wal", "-shm"))
            }

        before = contents()
        verify_run(run)
        assert contents() == before

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser can write everywhere")
    def test_in_a_folder_that_cannot_be_written(self, run: Path) -> None:
        for folder in (run, run / "trajectory-2"):
            folder.chmod(0o500)
        assert verify_run(run).passed
        for folder in (run, run / "trajectory-2"):
            folder.chmod(0o700)

    def test_receipts_of_earlier_versions_lack_fields(self, tmp_path: Path) -> None:
        values = receipt("a1").to_dict()
        stored = {name: value for name, value in values.items() if name not in DEFAULTS}
        run = make_run(tmp_path / "run", receipt("a1"))
        edit_history(run, "a1", json.dumps(stored, indent=2))
        (run / "receipts" / "a1.json").write_text(json.dumps(stored, indent=2))
        sign_stored(run, SigningKey.open(run))
        assert verify_run(run).passed

    def test_audits_and_parts_of_files_are_left_out(self, run: Path) -> None:
        (run / "receipts" / "a1.audit.json").write_text("{}")
        (run / FOLDER / ".000005-d4.json.part").write_text("{")
        assert verify_run(run).passed

    def test_a_server_that_is_writing_is_waited_for(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read, seen = StoredReceipts.read, []

        def halfway(folder: Path) -> StoredReceipts:
            found = read(folder)
            seen.append(found)
            return found if len(seen) > 1 else replace(found, files={})

        monkeypatch.setattr(StoredReceipts, "read", halfway)
        assert verify_run(run).passed
        assert len(seen) == 2

    def test_a_key_that_is_replaced_meanwhile(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read, calls = verify.stored_certificates, []

        def late(folder: Path) -> list[Certificate]:
            calls.append(read(folder))
            return calls[-1] if len(calls) > 1 else calls[-1][:1]

        monkeypatch.setattr(verify, "stored_certificates", late)
        assert verify_run(run).passed
        assert len(calls) == 2


class TestFound:
    def test_an_edited_receipt_in_the_history_with_its_file(self, run: Path) -> None:
        changed = replace(receipt("a1", users=2), answered=40)
        store(run, changed)
        assert problems(verify_run(run)) == {("000001-a1.json", Problem.RECEIPT)}

    def test_an_edited_file(self, run: Path) -> None:
        file = run / "receipts" / "c3.json"
        file.write_text(file.read_text().replace("30", "40"))
        assert problems(verify_run(run)) == {("c3.json", Problem.RECEIPT)}

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('{\n  "request"', '{\n   "request"'),
            ('"seconds": 1.5,', '"seconds": 1.50,'),
            ('"asked": 40,', '"asked": 50,\n  "asked": 40,'),
            ('"asked": 40,\n  "answered": 30,', '"answered": 30,\n  "asked": 40,'),
            ('"coverage": 0.75', '"coverage": 0.5'),
            ('"request": "c3"', '"request": "a1"'),
            ('"asked": 40,', '"asked": "40",'),
            ('"given_up": 0,', '"given_up": 0,\n  "salt": "00",'),
        ],
    )
    def test_a_stored_receipt_in_another_form(self, run: Path, before: str, after: str) -> None:
        text = in_history(run)["c3"]
        assert text.count(before) == 1
        edit_history(run, "c3", text.replace(before, after))
        (run / "receipts" / "c3.json").write_text(text.replace(before, after))
        assert ("000003-c3.json", Problem.DAMAGED) in problems(verify_run(run))
        shutil.rmtree(run / FOLDER)
        with pytest.raises(ReceiptError, match="receipt of request c3 in the history is damaged"):
            sign_stored(run, SigningKey.open(run))
        assert [entry.request for entry in ReceiptChain(run).entries()] == ["a1", "b2"]

    def test_a_receipt_that_is_not_stored(self, run: Path) -> None:
        with pytest.raises(RunError, match=r"no receipt of request zz\.\nList them: fedforget receipts"):
            StoredReceipts.read(run).receipt("zz")

    def test_other_wipe_counts(self, run: Path) -> None:
        store(run, replace(receipt("b2", wiped=1), to_wipe=1, given_up=0))
        entry(run, 4).unlink()
        assert problems(verify_run(run)) == {("b2.json", Problem.WIPES)}

    def test_wipe_counts_that_cannot_be_after_those_that_were_signed(self, run: Path) -> None:
        store(run, receipt("b2", wiped=0))
        found = problems(verify_run(run))
        assert found == {("000004-b2.json", Problem.WIPES), ("b2.json", Problem.WIPES)}

    def test_wipe_counts_that_cannot_be(self, run: Path) -> None:
        store(run, receipt("d4", wiped=99))
        assert problems(verify_run(run)) == {("d4.json", Problem.UNSIGNED), ("d4.json", Problem.WIPES)}
        ReceiptChain(run).append(receipt("d4", wiped=99), [], SigningKey.open(run), "f00dfeed")
        assert problems(verify_run(run)) == {("000005-d4.json", Problem.WIPES)}

    def test_unsigned_missing_and_strange_receipts(self, run: Path) -> None:
        store(run, receipt("d4"))
        assert problems(verify_run(run)) == {("d4.json", Problem.UNSIGNED)}
        sign_stored(run, SigningKey.open(run))
        (run / "receipts" / "d4.json").rename(run / "receipts" / "e5.json")
        assert problems(verify_run(run)) == {("d4.json", Problem.MISSING), ("e5.json", Problem.MISSING)}

    def test_an_entry_removed_in_the_middle(self, run: Path) -> None:
        entry(run, 2).unlink()
        assert problems(verify_run(run)) == {("000003-c3.json", Problem.CHAIN)}

    def test_the_newest_entries_removed_with_their_receipts_only_by_a_noted_head(self, run: Path) -> None:
        head = verify_run(run).head
        entry(run, 4).unlink()
        store(run, receipt("b2", wiped=0))
        assert verify_run(run).passed
        assert problems(verify_run(run, head=head)) == {("head", Problem.HEAD)}

    def test_a_chain_signed_again_by_somebody_else_only_by_noted_certificates(self, run: Path) -> None:
        noted = [certificate.pem for certificate in stored_certificates(run)]
        shutil.rmtree(run / "service")
        shutil.rmtree(run / FOLDER)
        sign_stored(run, SigningKey.open(run))
        assert verify_run(run).passed
        assert {problem for _, problem in problems(verify_run(run, noted))} == {Problem.SIGNATURE}

    def test_a_key_that_was_replaced_signs_no_more(self, base: Path, run: Path, tmp_path: Path) -> None:
        """Somebody kept a copy of the first key, and adds an entry with it."""
        stolen = make_run(tmp_path / "stolen", receipt("a1", users=2))
        old = SigningKey.open(stolen)
        sign_stored(stolen, old)
        SigningKey.rotate(stolen)
        store(stolen, receipt("b2"))
        sign_stored(stolen, SigningKey.open(stolen))
        store(stolen, receipt("c3"))
        old.check_in_use = lambda: None  # type: ignore[method-assign]
        sign_stored(stolen, old)
        assert problems(verify_run(stolen)) == {("000003-c3.json", Problem.SIGNATURE)}

    def test_an_entry_of_another_federation(self, run: Path) -> None:
        store(run, receipt("d4"))
        ReceiptChain(run).append(receipt("d4"), [], SigningKey.open(run), "another")
        assert problems(verify_run(run)) == {("000005-d4.json", Problem.RECEIPT)}

    def test_a_signature_outside_the_validity(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fedforget.attestation.certificate.Certificate.covers", lambda self, time: False)
        assert {problem for _, problem in problems(verify_run(run))} == {Problem.SIGNATURE}

    def test_lost_certificates(self, run: Path) -> None:
        (run / "service" / "signing" / "retired" / "001.pem").unlink()
        found = {("000001-a1.json", Problem.SIGNATURE), ("000002-b2.json", Problem.SIGNATURE)}
        assert problems(verify_run(run)) == found

    def test_certificates_that_are_none(self, run: Path) -> None:
        with pytest.raises(SigningKeyError, match="certificate 1 is not a certificate"):
            verify_run(run, ["no certificate"])

    def test_a_lost_history(self, run: Path) -> None:
        (run / "trajectory-2" / "history.sqlite").write_bytes(b"no database" * 100)
        with pytest.raises(RunError):
            verify_run(run)
        (run / "trajectory-2" / "history.sqlite").unlink()
        with pytest.raises(RunError, match="is missing"):
            verify_run(run)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    return tmp_path_factory


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.sampled_from([[], {}])


class TestAnyEdit:
    """Properties: whatever one edit changes, the verification fails."""

    def fails(self, run: Path) -> bool:
        try:
            return not verify_run(run).passed
        except FedForgetError:
            return True

    def files(self, run: Path) -> list[Path]:
        return sorted([*run.glob("receipts/*.json"), *run.glob("receipts/signed/*.json")])

    @settings(max_examples=150)
    @given(data=st.data())
    def test_of_a_byte_of_a_file(self, base: Path, folders: pytest.TempPathFactory, data: st.DataObject) -> None:
        run = copied(base, folders.getbasetemp() / "byte")
        file = data.draw(st.sampled_from(self.files(run)))
        content = bytearray(file.read_bytes())
        place, byte = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 255))
        assume(content[place] != byte)
        content[place] = byte
        file.write_bytes(content)
        assert self.fails(run)

    @settings(max_examples=60)
    @given(data=st.data())
    def test_of_the_length_of_a_file(self, base: Path, folders: pytest.TempPathFactory, data: st.DataObject) -> None:
        run = copied(base, folders.getbasetemp() / "length")
        file = data.draw(st.sampled_from(self.files(run)))
        content = file.read_bytes()
        place = data.draw(st.integers(0, len(content) - 1))
        more = data.draw(st.binary(max_size=3))
        changed = content[:place] + more + content[place + data.draw(st.integers(0, 200)) :]
        assume(changed != content)
        file.write_bytes(changed)
        assert self.fails(run)

    @given(data=st.data())
    def test_of_the_files_there_and_their_order(
        self, base: Path, folders: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        run = copied(base, folders.getbasetemp() / "order")
        files = self.files(run)
        kind = data.draw(st.sampled_from(["remove", "swap", "copy", "rename", "add"]))
        one, two = data.draw(st.permutations(files))[:2]
        if kind == "remove":
            one.unlink()
        elif kind == "swap":
            first, second = one.read_bytes(), two.read_bytes()
            one.write_bytes(second)
            two.write_bytes(first)
        elif kind == "copy":
            one.write_bytes(two.read_bytes())
        elif kind == "rename":
            one.rename(one.with_name(f"0{one.name}"))
        else:
            name = data.draw(st.sampled_from(["000005-a1.json", "000000-a1.json", "notes.txt", "000001-zz.json"]))
            (run / FOLDER / name).write_bytes(one.read_bytes())
        assert self.fails(run)

    @settings(max_examples=150)
    @given(data=st.data())
    def test_of_a_field_in_the_history_and_its_file(
        self, base: Path, folders: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        run = copied(base, folders.getbasetemp() / "field")
        request, text = data.draw(st.sampled_from(sorted(in_history(run).items())))
        values: dict[str, Any] = json.loads(text)
        before = json.dumps(values, sort_keys=True)
        name = data.draw(st.sampled_from([*sorted(values), "added", "salt"]))
        value = data.draw(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False)
            | st.text()
            | st.just([])
            | st.just({})
        )
        if data.draw(st.booleans()):
            values[name] = value
        else:
            values.pop(name, None)
        same = {key: value for key, value in values.items() if DEFAULTS.get(key, ...) != value}
        kept = {key: value for key, value in json.loads(text).items() if DEFAULTS.get(key, ...) != value}
        assume(json.dumps(values, sort_keys=True) != before)
        assume(json.dumps(same, sort_keys=True) != json.dumps(kept, sort_keys=True))
        edit_history(run, request, json.dumps(values, indent=2))
        (run / "receipts" / f"{request}.json").write_text(json.dumps(values, indent=2))
        assert self.fails(run)

    @given(data=st.data())
    def test_of_a_byte_of_the_stored_text(
        self, base: Path, folders: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        run = copied(base, folders.getbasetemp() / "text")
        request, text = data.draw(st.sampled_from(sorted(in_history(run).items())))
        place, letter = data.draw(st.integers(0, len(text) - 1)), data.draw(st.characters(codec="utf-8"))
        assume(text[place] != letter)
        edit_history(run, request, text[:place] + letter + text[place + 1 :])
        assert self.fails(run)


class TestFile:
    def test_one_entry_by_itself_under_any_name(self, run: Path, tmp_path: Path) -> None:
        noted = [certificate.pem for certificate in stored_certificates(run)]
        file = Path(shutil.copy(entry(run, 1), tmp_path / "my receipt.json"))
        result = verify.verify_file(file, noted)
        assert result.passed
        assert result.head == ReceiptChain(run).entries()[0].digest
        assert problems(verify.verify_file(file, noted[1:])) == {("my receipt.json", Problem.SIGNATURE)}

    def test_whom_it_names(self, run: Path) -> None:
        noted = [certificate.pem for certificate in stored_certificates(run)]
        result = verify.verify_file(entry(run, 1), noted)
        assert result.naming(ANNA, ANNAS_REQUEST) == ["a1"]
        assert result.naming(PAUL, PAULS_REQUEST) == ["a1"]
        assert not result.naming(ANNA, PAULS_REQUEST)
        assert not result.naming(str(PAUL), PAULS_REQUEST)

    def test_other_statements_of_the_same_signer(self, run: Path, tmp_path: Path) -> None:
        key = SigningKey.open(run)
        person = {"pseudonym": Person.of(ANNA, ANNAS_REQUEST).pseudonym}
        predicate = {"persons": [person, 5, {"pseudonym": []}]}
        statement = {"_type": TYPE, "subject": [], "predicateType": "tag:other,2026:x", "predicate": predicate}
        file = tmp_path / "confirmation.json"
        file.write_bytes(Envelope.sign(canonical(statement), key).to_bytes())
        result = verify.verify_file(file, [key.certificate_pem])
        assert result.passed
        assert result.naming(ANNA, ANNAS_REQUEST) == ["confirmation.json"]
        assert result.naming(PAUL, PAULS_REQUEST) == []
        old = stored_certificates(run)[0].pem
        assert problems(verify.verify_file(file, [old])) == {("confirmation.json", Problem.SIGNATURE)}

    @pytest.mark.parametrize("payload", [b"{}", b"5", b'{"_type": "https://in-toto.io/Statement/v1"}'])
    def test_what_is_no_statement(self, run: Path, tmp_path: Path, payload: bytes) -> None:
        file = tmp_path / "it.json"
        file.write_bytes(Envelope.sign(payload, SigningKey.open(run)).to_bytes())
        with pytest.raises(ReceiptError, match="not an in-toto statement"):
            verify.verify_file(file, [])

    def test_layout_does_not_matter_but_content_does(self, run: Path, tmp_path: Path) -> None:
        noted = [certificate.pem for certificate in stored_certificates(run)]
        values = json.loads(entry(run, 1).read_text())
        file = tmp_path / "one line.json"
        file.write_text(json.dumps(values))
        assert verify.verify_file(file, noted).passed
        payload = Envelope.load(file).payload.replace(b'"wiped":null', b'"wiped":7')
        file.write_bytes(Envelope(payload, values["signatures"][0]["keyid"], b"0").to_bytes())
        assert not verify.verify_file(file, noted).passed

    @pytest.mark.parametrize(
        ("before", "after", "said"),
        [
            (b'"number":1', b'"number":0', "place in a chain"),
            (b'"number":1', b'"number":true', "place in a chain"),
            (b'"previous":null', b'"previous":"x"', "previous is not"),
            (b'"federation":', b'"fed":', "'federation' is missing"),
            (b'"request":"a1"', b'"request":"../a1"', "request is not an id"),
            (b'"wiped":null', b'"wiped":-1', "wiped is not a count"),
            (b'"digest_after":"b', b'"digest_after":"c', "subjects are not"),
            (b'"issued":"2', b'"issued":"x', "Invalid isoformat"),
            (b'"pseudonym":"', b'"pseudonym":"x', "something else than persons"),
        ],
    )
    def test_statements_of_another_form(self, run: Path, before: bytes, after: bytes, said: str) -> None:
        payload = Envelope.load(entry(run, 1)).payload
        assert before in payload
        entry(run, 1).write_bytes(Envelope.sign(payload.replace(before, after), SigningKey.open(run)).to_bytes())
        with pytest.raises(ReceiptError, match=said):
            verify.verify_file(entry(run, 1), [])
        assert not verify_run(run).passed
