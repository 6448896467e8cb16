"""What is checked of one erasure: each check passes on a sound run, and fails where its subject was tampered with."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedforget as ff
from fedforget.cli.main import app
from fedforget.errors import ConfigError
from fedforget.runtime.randomness import user_key
from fedforget.server.receipt import Receipt
from fedforget.server.request_audit import RequestAudit, audit_request
from tests.small_federations import FLOAT, build, first_in, named

NAMED = named()


class Erased:
    """A run in a folder that forgot two users."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        self.fed = build(self.path, NAMED, log=FLOAT).fit(rounds=5)
        self.users = first_in(self.fed, 2, 2)
        self.receipt: Receipt = self.fed.forget(self.users, ff.Retrain())

    def audit(self, **options: Any) -> RequestAudit:
        return audit_request(self.fed, self.path, self.receipt.request, "0", **options)

    def check(self, name: str, **options: Any) -> bool | None:
        return next(check.passed for check in self.audit(**options).checks if check.name == name)


@pytest.fixture
def erased(tmp_path: Path) -> Erased:
    return Erased(tmp_path)


def test_everything_passes_after_an_erasure(erased: Erased) -> None:
    result = erased.audit(users=erased.users, salt=erased.receipt.salt)
    passed = {check.name: check.passed for check in result.checks}
    assert passed == {"one trajectory": True, "history": True, "files": True, "digests": True, "devices": None}
    assert result.passed
    stored = erased.path / "receipts" / f"{erased.receipt.request}.audit.json"
    assert json.loads(stored.read_text())["passed"] is True
    assert not any(str(user) in stored.read_text() for user in erased.users)
    assert erased.audit(users=erased.users).passed  # the result itself is no trace
    assert erased.check("history") is None
    assert erased.check("files") is None


@pytest.mark.parametrize("trace", ["id", "key", "salt", "name", "row"])
def test_a_trace_in_any_file_is_found(erased: Erased, trace: str) -> None:
    user, folder, salt = erased.users[0], erased.path / "trajectory-2" / "devices", str(erased.receipt.salt)
    key = user_key(user)
    content = {"id": str(user).encode(), "key": key.to_bytes(8, "little"), "salt": salt.encode()}.get(trace, b"")
    if trace == "row":
        with erased.fed.history._db as db:
            db.execute("INSERT INTO participant VALUES (3, ?, 'ok')", (user,))
    else:
        (folder / (f"{key:016x}" if trace == "name" else "left")).write_bytes(b"\0" * 100 + content)
    assert erased.check("files", users=erased.users, salt=salt) is False


def test_a_user_in_the_history_or_an_old_trajectory_fails(erased: Erased) -> None:
    assert erased.check("history", salt=erased.receipt.salt) is True
    with erased.fed.history._db as db:
        db.execute("INSERT INTO member VALUES (?, 1)", (erased.users[1],))
    erased.fed._cached_members = None
    erased.fed.train = NAMED
    assert erased.check("history", salt=erased.receipt.salt) is False
    assert erased.check("history", users=erased.users) is False
    shutil.copytree(erased.path / "trajectory-2", erased.path / "trajectory-1")
    assert erased.check("one trajectory") is False
    assert not erased.audit().passed


def test_the_model_of_the_receipt_is_looked_for(erased: Erased) -> None:
    assert erased.check("digests") is True
    erased.fed.fit(more=2)
    assert erased.check("digests") is True
    snapshot = next((erased.path / "trajectory-2" / "snapshots").glob("000004.safetensors"))
    snapshot.write_bytes(snapshot.read_bytes()[:-4] + b"\1\2\3\4")
    assert erased.check("digests") is False


def test_others_and_wrong_salts_are_refused(erased: Erased) -> None:
    stayed = erased.fed.members[0]
    for options in ({"users": [stayed]}, {"users": [stayed], "salt": erased.receipt.salt}, {"salt": "no salt"}):
        with pytest.raises(ConfigError):
            erased.audit(**options)
    with pytest.raises(ConfigError, match="no receipt"):
        audit_request(erased.fed, erased.path, "other", "0")


def details(erased: Erased, **changes: Any) -> dict[str, Any]:
    config = {name: erased.fed.config.to_dict()[name] for name in ("model", "sampler", "training", "server")}
    settings = {"config": config, "methods": {"none": None, "retrain": dict(erased.receipt.method)}}
    verdicts = {"none": "seen", "retrain": "not seen"}
    return {"settings": settings, "verdicts": verdicts, "finished": "2026-01-01", **changes}


def test_the_newest_audit_of_the_same_settings_is_attached(erased: Erased, tmp_path: Path) -> None:
    audits = {
        "old": details(erased),
        "new": details(erased, finished="2026-02-01"),
        "other": details(erased, finished="2026-03-01", settings={"config": {}, "methods": {}}),
    }
    for name, value in audits.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "details.json").write_text(json.dumps(value))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "details.json").write_text("{")
    attached = erased.audit(audits=[tmp_path]).audit
    assert attached is not None
    assert attached["path"] == str(tmp_path / "new" / "details.json")
    assert attached["sha256"] == hashlib.sha256((tmp_path / "new" / "details.json").read_bytes()).hexdigest()
    assert attached["verdict"] == "not seen"
    assert erased.audit(audits=[tmp_path / "other"]).audit is None


def test_the_command(erased: Erased) -> None:
    erased.fed.close()
    run, request = str(erased.path), erased.receipt.request
    users, salt = ",".join(map(str, erased.users)), str(erased.receipt.salt)
    done = CliRunner().invoke(app, ["audit", "request", run, request, "--users", users, "--salt", salt, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["passed"] is True
    (erased.path / "trajectory-2" / "left").write_text(str(erased.users[0]))
    done = CliRunner().invoke(app, ["audit", "request", run, request, "--users", users])
    assert done.exit_code == 1
    assert "FAILED" in done.output
