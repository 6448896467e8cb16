"""From a request over HTTP to a receipt that others verify, with a Flower network in real processes."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading

import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")
pytest.importorskip("securesystemslib")
pytest.importorskip("httpx2")

from fedforget.flower.testbed.trial import Trial
from fedforget.server.run_config import RunConfig
from tests.erasure_service.processes import receiver, running, wait_for
from tests.erasure_service.runs import erasure_of

pytestmark = pytest.mark.slow

TRAIN, TEST = ff.synthetic(users=8, items=30, mean_items=8, seed=2).split(0.2, 0)
SERVER = ff.ServerConfig(fraction=0.8, secure=True, minimum=3)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_request_on_a_network(tmp_path):
    config = RunConfig(model=ff.MF(dim=8), engine="flower", server=SERVER, seed=3)
    user = TRAIN.user_ids.tolist()[1]
    with (
        Trial(tmp_path / "trial", config, TRAIN, TEST, 2, secret="") as trial,
        receiver() as calls,
        running(trial.run, "--batch-every", "24h", "--callback-private", calls.host) as service,
    ):
        trial.serve(2)
        body = erasure_of(str(user), status_callback_urls=[calls.url])
        stranger = erasure_of("nobody-here", status_callback_urls=[calls.url])
        assert service.ask(body).status_code == service.ask(stranger).status_code == 201
        id_ = body["subject_request_id"]
        assert service.client.post("/v1/batches").json() == {"waiting": 2}
        wait_for(lambda: service.status(id_) == "in_progress", 30, "the requests are in the queue")
        serving = threading.Thread(target=trial.serve, args=(3,))
        serving.start()
        service.wait(id_, seconds=300)
        service.wait(stranger["subject_request_id"], seconds=60)
        serving.join()
        assert not trial.file(user).exists(), "the device has removed everything"
        wait_for(lambda: len(calls.received) == 4, 30, "all callbacks have arrived")
        confirmation = service.client.get(f"/opendsr/2.0/opendsr_requests/{id_}/confirmation").json()
        certificate = tmp_path / "certificate.pem"
        certificate.write_bytes(service.client.get("/opendsr/2.0/certificate").content)
        listed = service.client.get("/v1/receipts").json()
        verified = service.client.get("/v1/verification").json()
    states = [(one["subject_request_id"] == id_, one["request_status"]) for one in map(_body, calls.received)]
    assert [state for own, state in states if own] == ["in_progress", "completed"]
    for content, headers in calls.received:
        openssl_verifies(tmp_path, certificate, content, base64.b64decode(headers["X-OpenDSR-Signature"]))
    openssl_verifies(tmp_path, certificate, *parts_of(confirmation))
    assert verified["passed"]
    assert len(listed["items"]) == 1
    [path] = trial.run.glob("receipts/signed/*.json")
    envelope = json.loads(path.read_bytes())
    openssl_verifies(tmp_path, certificate, *parts_of(envelope))
    receipt = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    assert (receipt["wiped"], receipt["to_wipe"]) == (1, 1)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fedforget",
            "receipts",
            "verify",
            str(path),
            "--key",
            str(certificate),
            "--user",
            str(user),
            "--request",
            id_,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _body(call):
    return json.loads(call[0])


def parts_of(envelope: dict) -> tuple[bytes, bytes]:
    """What is signed in a DSSE envelope, and the signature."""
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
    signed = b" ".join([b"DSSEv1", b"%d" % len(kind), kind.encode(), b"%d" % len(payload), payload])
    return signed, base64.b64decode(envelope["signatures"][0]["sig"])


def openssl_verifies(folder, certificate, content: bytes, signature: bytes) -> None:
    """Check a signature with openssl alone."""
    for name, data in (("content", content), ("signature", signature)):
        (folder / name).write_bytes(data)
    public = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-pubkey", "-noout"], capture_output=True, check=True
    )
    (folder / "public.pem").write_bytes(public.stdout)
    command = ["openssl", "dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "content"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Verified OK", done.stdout + done.stderr
