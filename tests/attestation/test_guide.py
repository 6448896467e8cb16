"""The guide to signed receipts: its example is real, and its commands check a receipt with openssl alone."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from fedforget.attestation import Person, ReceiptChain, SignedReceipt, SigningKey
from fedforget.attestation.canonical_json import canonical
from fedforget.attestation.statement import parse_statement
from fedforget.protocol.pseudonym import pseudonym
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.attestation.made_runs import make_run, receipt

GUIDE = (Path(__file__).parents[2] / "docs" / "receipts.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
EXAMPLE = json.loads(re.findall(r"^```json\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[0])
CHECK = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[0]
#: A pseudonym of 32 digits for everybody in a large erasure.
MANY = [Person(f"{number:032x}") for number in range(3000)]

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def made(folder: Path, persons: list[Person]) -> tuple[SigningKey, SignedReceipt]:
    """A signed receipt as ``receipt.json``, with its ``certificate.pem``; the second of its chain."""
    run = make_run(folder / "run", receipt("a1"), receipt("b2"))
    key, chain = SigningKey.open(run), ReceiptChain(run)
    chain.append(receipt("a1"), [], key, "f00dfeed")
    entry = chain.append(replace(receipt("b2"), finished="2026-11-18T20:00:00+00:00"), persons, key, "f00dfeed")
    shutil.copy(entry.path, folder / "receipt.json")
    (folder / "certificate.pem").write_text(key.certificate_pem)
    return key, entry


def shell(folder: Path, commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-ec", commands], cwd=folder, capture_output=True, text=True, timeout=60)


@needs_openssl
@pytest.mark.parametrize("persons", [[Person("0" * 32)], MANY], ids=["one person", "many persons"])
def test_the_commands_verify_a_receipt(tmp_path: Path, persons: list[Person]) -> None:
    _, entry = made(tmp_path, persons)
    done = shell(tmp_path, COMMANDS[0])
    assert (done.returncode, done.stdout) == (0, "Verified OK\n"), done.stderr
    assert json.loads((tmp_path / "payload.json").read_text()) == entry.statement
    assert entry.digest in shell(tmp_path, COMMANDS[1]).stdout


@needs_openssl
def test_they_refuse_another_payload_and_another_key(tmp_path: Path) -> None:
    made(tmp_path, [])
    envelope = json.loads((tmp_path / "receipt.json").read_text())
    envelope["payload"] = "e30="
    (tmp_path / "receipt.json").write_text(json.dumps(envelope, indent=2))
    done = shell(tmp_path, COMMANDS[0])
    assert done.returncode != 0
    assert "Verified OK" not in done.stdout
    made(tmp_path / "again", [])
    (tmp_path / "again" / "certificate.pem").write_bytes((tmp_path / "certificate.pem").read_bytes())
    assert shell(tmp_path / "again", COMMANDS[0]).returncode != 0


@needs_openssl
def test_the_pseudonym_of_the_example(tmp_path: Path) -> None:
    done = shell(tmp_path, COMMANDS[2])
    if "BLAKE2BMAC" in done.stderr:
        pytest.skip("this openssl has no BLAKE2BMAC")
    name = done.stdout.strip().lower()
    salt = re.findall(r"hexkey:([0-9a-f]{32})", COMMANDS[2])[0]
    assert name == pseudonym("u1", salt) == EXAMPLE["predicate"]["persons"][0]["pseudonym"]
    assert name.upper() in GUIDE


@needs_openssl
def test_a_number_as_an_id(tmp_path: Path) -> None:
    done = shell(tmp_path, COMMANDS[2].replace("s:u1", "i:17"))
    if "BLAKE2BMAC" in done.stderr:
        pytest.skip("this openssl has no BLAKE2BMAC")
    salt = re.findall(r"hexkey:([0-9a-f]{32})", COMMANDS[2])[0]
    assert done.stdout.strip().lower() == pseudonym(17, salt)


def test_whom_a_receipt_of_the_service_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ids of the federation are numbers; those of requests are always text."""
    pytest.importorskip("fastapi")
    from fedforget.erasure_service.tokens import Role
    from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on

    service = service_on(tmp_path / "run")
    body = erasure_of("17")
    with served(service, Role.REQUESTER) as [client]:
        assert client.post(REQUESTS, json=body).status_code == 201
    service.dispatcher.tick()
    QueuedErasures(tmp_path / "run").carry_out()
    service.dispatcher.tick()
    service.stop()
    [file] = tmp_path.glob("run/receipts/signed/*.json")
    shutil.copy(file, tmp_path / "receipt.json")
    monkeypatch.chdir(tmp_path)
    code = CHECK.replace("9f8c1c1e-6f0b-4c55-8a55-0d9d4b6f7a01", body["subject_request_id"])
    exec(code, {})
    exec(code.replace('"17"', '"18"'), {})
    assert capsys.readouterr().out == "True\nFalse\n"


def test_the_example_is_the_statement_whose_digest_is_shown(tmp_path: Path) -> None:
    assert hashlib.sha256(canonical(EXAMPLE)).hexdigest() in GUIDE
    assert parse_statement(canonical(EXAMPLE), "the example") == EXAMPLE
    _, entry = made(tmp_path, [])
    assert set(entry.predicate) == set(EXAMPLE["predicate"])
    assert all(f"`{name}`" in GUIDE for name in entry.predicate if not name.startswith("digest"))
