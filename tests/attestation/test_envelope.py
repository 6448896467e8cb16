"""Envelopes: read strictly, and valid only by the key that signed them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from hypothesis import given
from hypothesis import strategies as st

from fedforget.attestation import SigningKey, envelope
from fedforget.attestation.canonical_json import canonical, read_object
from fedforget.attestation.certificate import Certificate
from fedforget.attestation.envelope import Envelope
from fedforget.errors import FedForgetError, ReceiptError
from tests.attestation.made_runs import make_run


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.open(make_run(tmp_path_factory.mktemp("key") / "run"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.open(make_run(tmp_path_factory.mktemp("other") / "run"))


def certificates(*keys: SigningKey) -> list[Certificate]:
    return [Certificate.parse(each.certificate_pem, "it") for each in keys]


@given(payload=st.binary(max_size=200))
def test_whatever_is_signed_comes_back(key: SigningKey, payload: bytes) -> None:
    signed = Envelope.sign(payload, key)
    again = Envelope.parse(signed.to_bytes(), "it")
    assert (again.payload, again.to_bytes()) == (payload, signed.to_bytes())
    assert again.signed_by(certificates(key)) == certificates(key)


def test_only_the_key_that_signed_is_accepted(key: SigningKey, other: SigningKey) -> None:
    signed = Envelope.sign(b"{}", key)
    assert signed.signed_by(certificates(other)) == []
    assert signed.signed_by([]) == []
    assert len(signed.signed_by(certificates(other, key))) == 1
    claimed = json.loads(signed.to_bytes())
    claimed["signatures"][0]["keyid"] = other.key_id
    assert Envelope.parse(json.dumps(claimed).encode(), "it").signed_by(certificates(other, key)) == []


def test_another_payload_or_signature_is_not_valid(key: SigningKey) -> None:
    values = json.loads(Envelope.sign(b'{"a":1}', key).to_bytes())
    values["payload"] = base64.b64encode(b'{"a":2}').decode()
    assert Envelope.parse(json.dumps(values).encode(), "it").signed_by(certificates(key)) == []
    values["signatures"][0]["sig"] = base64.b64encode(b"no signature").decode()
    assert Envelope.parse(json.dumps(values).encode(), "it").signed_by(certificates(key)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.pop("payload"), "exactly the fields"),
        (lambda v: v.update(more=1), "exactly the fields"),
        (lambda v: v.update(payloadType="text/plain"), "text/plain"),
        (lambda v: v.update(payload="e30"), "base64"),
        (lambda v: v.update(payload="e31="), "stray bits"),
        (lambda v: v.update(payload="e3 0="), "base64"),
        (lambda v: v.update(payload=5), "not text"),
        (lambda v: v.update(signatures=[]), "one signature"),
        (lambda v: v.update(signatures={}), "one signature"),
        (lambda v: v["signatures"].append(v["signatures"][0]), "one signature"),
        (lambda v: v["signatures"][0].update(keyid=None), "keyid is not text"),
        (lambda v: v["signatures"][0].pop("sig"), "exactly the fields"),
    ],
)
def test_what_is_no_envelope(key: SigningKey, change: Callable[[dict[str, Any]], object], said: str) -> None:
    values = json.loads(Envelope.sign(b"{}", key).to_bytes())
    change(values)
    with pytest.raises(ReceiptError, match=f"it is not a DSSE envelope: .*{said}"):
        Envelope.parse(json.dumps(values).encode(), "it")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"\xff", "utf-8"),
        (b"[]", "not a JSON object"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[" * 100_000, "deeply"),
    ],
)
def test_what_is_no_json(content: bytes, said: str) -> None:
    with pytest.raises(ReceiptError, match=said):
        Envelope.parse(content, "it")


def test_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MOST_BYTES", 10)
    (tmp_path / "large.json").write_bytes(b" " * 11)
    with pytest.raises(ReceiptError, match="larger than 10 bytes"):
        Envelope.load(tmp_path / "large.json")
    with pytest.raises(ReceiptError, match="cannot be read"):
        Envelope.load(tmp_path / "gone.json")


@given(data=st.binary(max_size=60))
def test_nothing_but_the_named_error_comes_from_any_bytes(data: bytes) -> None:
    with pytest.raises(FedForgetError):
        Envelope.parse(data, "it")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.text(), json_values, max_size=4))
def test_canonical_json_is_read_back_and_stays_the_same(values: dict[str, Any]) -> None:
    assert read_object(canonical(values)) == values
    assert canonical(read_object(canonical(values))) == canonical(values)
    assert canonical(dict(reversed(values.items()))) == canonical(values)
