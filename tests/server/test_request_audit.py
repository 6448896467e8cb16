"""What is checked of one erasure: each check passes on a sound run, and fails where its subject was tampered with."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.errors import ConfigError
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.receipt import Receipt
from fedforget.server.request_audit import RequestAudit, Signed, audit_request
from tests.small_federations import FLOAT, build, first_in, named

NAMED = named()
CHECKS = ["one trajectory", "persons", "history", "files", "unexpected files", "digests"]


@dataclass
class Erased:
    """A run in a folder that forgot two users."""

    path: Path
    fed: ff.Federation
    users: list[UserId]
    receipt: Receipt

    @property
    def named(self) -> dict[str, Any]:
        """All that can be given of the request."""
        return {"users": self.users, "salts": [str(self.receipt.salt)]}

    def audit(self, **options: Any) -> RequestAudit:
        return audit_request(self.fed, self.path, self.receipt.request, "0", **options)

    def check(self, name: str, **options: Any) -> bool | None:
        return next(check.passed for check in self.audit(**options).checks if check.name == name)

    def detail(self, name: str, **options: Any) -> str:
        return next(check.detail for check in self.audit(**options).checks if check.name == name)

    @property
    def stored(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.path / "receipts" / f"{self.receipt.request}.audit.json").read_text())
        return values


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[UserId], Receipt]:
    path = tmp_path_factory.mktemp("made") / "run"
    fed = build(path, NAMED, log=FLOAT).fit(rounds=5)
    users = first_in(fed, 2, 2)
    receipt = fed.forget(users, ff.Retrain())
    fed.close()
    return path, users, receipt


@pytest.fixture
def erased(made: tuple[Path, list[UserId], Receipt], tmp_path: Path) -> Iterator[Erased]:
    path, users, receipt = made
    shutil.copytree(path, tmp_path / "run")
    fed = ff.Federation.open(tmp_path / "run")
    yield Erased(tmp_path / "run", fed, users, receipt)
    fed.close()


def test_everything_passes_after_an_erasure(erased: Erased) -> None:
    result = erased.audit(**erased.named)
    assert {check.name: check.passed for check in result.checks} == dict.fromkeys(CHECKS, True), result.checks
    assert (result.result, result.checked, result.persons) == ("passed", 2, 2)
    assert erased.stored["result"] == "passed"
    assert not any(str(user) in json.dumps(erased.stored) for user in erased.users)
    assert erased.audit(**erased.named).result == "passed"  # the result itself is no trace


def test_what_cannot_be_checked_is_incomplete_and_named(erased: Erased) -> None:
    salts = [str(erased.receipt.salt)]
    for options, missing in (
        ({}, {"persons", "history", "files"}),
        ({"salts": salts}, {"persons", "history", "files"}),
        ({"salts": ["00" * 16]}, {"persons", "history", "files"}),
        ({"users": erased.users}, {"persons"}),
        ({"users": erased.users[:1], "salts": salts}, {"persons"}),
    ):
        result = erased.audit(**options)
        assert result.result == "incomplete"
        assert {check.name for check in result.checks if check.passed is None} == missing
    assert erased.detail("persons", users=erased.users[:1], salts=salts).startswith("1 of 2 persons of the request")
    assert "if the salt is right" in erased.detail("history", salts=salts)


def test_a_result_is_not_replaced_by_a_poorer_one(erased: Erased) -> None:
    assert erased.audit().stored
    assert erased.audit(**erased.named).stored
    assert not erased.audit(users=erased.users).stored
    assert not erased.audit().stored
    assert erased.stored["result"] == "passed"
    (erased.path / "trajectory-9").mkdir()
    assert erased.audit().stored  # that something failed is news
    assert erased.stored["result"] == "failed"
    assert erased.audit(**erased.named).stored
    (erased.path / "trajectory-9").rmdir()
    assert not erased.audit().stored
    assert erased.stored["result"] == "failed"
    assert erased.audit(**erased.named).stored
    assert erased.stored["result"] == "passed"


def test_more_checks_replace_a_result_with_an_audit(erased: Erased, tmp_path: Path) -> None:
    write_audits(tmp_path, same=details(erased))
    assert erased.audit(audits=[tmp_path]).stored
    assert erased.stored["audit"] is not None
    assert erased.audit(**erased.named).stored
    assert (erased.stored["result"], erased.stored["audit"]) == ("passed", None)
    assert erased.audit(**erased.named, audits=[tmp_path]).stored
    assert not erased.audit(**erased.named).stored
    assert not erased.audit(audits=[tmp_path]).stored


@pytest.mark.parametrize("trace", ["id", "key", "salt", "name", "row", "data"])
def test_a_trace_in_any_file_is_found(erased: Erased, trace: str) -> None:
    user, folder, salt = erased.users[0], erased.path / "trajectory-2" / "devices", str(erased.receipt.salt)
    key = user_key(user)
    content = {"id": str(user).encode(), "key": key.to_bytes(8, "little"), "salt": salt.encode()}.get(trace, b"")
    if trace == "row":
        with erased.fed.history._db as db:
            db.execute("INSERT INTO participant VALUES (3, ?, 'ok')", (user,))
    elif trace == "data":
        with erased.fed.history._db as db:
            db.execute("INSERT INTO item VALUES (99, ?, 1)", (user,))
    else:
        (folder / (f"{key:016x}" if trace == "name" else "left")).write_bytes(b"\0" * 100 + content)
    assert erased.check("files", **erased.named) is False
    assert erased.audit(**erased.named).result == "failed"
    assert not any(text in json.dumps(erased.stored) for text in (str(user), f"{key:016x}", salt))


def test_a_file_that_cannot_be_read_is_incomplete(erased: Erased) -> None:
    (erased.path / "service").mkdir()
    (erased.path / "service" / "service.sqlite").write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    assert erased.check("files", **erased.named) is None
    assert "service/service.sqlite: the database cannot be read" in erased.detail("files", **erased.named)


def test_a_user_in_the_history_or_an_old_trajectory_fails(erased: Erased) -> None:
    with erased.fed.history._db as db:
        db.execute("INSERT INTO member VALUES (?, 1)", (erased.users[1],))
    assert erased.check("history", salts=[str(erased.receipt.salt)]) is False
    assert erased.check("history", users=erased.users) is False
    assert erased.check("history", **erased.named) is False
    shutil.copytree(erased.path / "trajectory-2", erased.path / "trajectory-1")
    assert erased.check("one trajectory") is False
    assert erased.audit().result == "failed"


def test_a_readmitted_user_is_no_failure(erased: Erased) -> None:
    erased.fed.add(_only(erased.users[0]), readmit=True)
    erased.fed.fit(more=4)
    result = erased.audit(**erased.named)
    found = {check.name: check.passed for check in result.checks}
    assert (found["persons"], found["history"], found["files"]) == (None, True, True)
    assert result.result == "incomplete"
    with erased.fed.history._db as db:
        db.execute("INSERT INTO participant VALUES (3, ?, 'ok')", (erased.users[0],))
        db.execute("DELETE FROM seal WHERE round = 3")
    assert erased.check("history", **erased.named) is False


def _only(user: UserId) -> ff.Interactions:
    items = NAMED.item_ids_of(user)
    return ff.Interactions.from_pairs([user] * len(items), list(items))


def test_snapshots_are_compared_with_the_history(erased: Erased) -> None:
    assert "one is the model of the receipt" in erased.detail("digests")
    erased.fed.fit(more=2)
    assert erased.check("digests") is True
    snapshots = erased.path / "trajectory-2" / "snapshots"
    left = [snapshots / "000099.safetensors", erased.path / "trajectory-2" / "factors" / "000099.safetensors"]
    left += [erased.path / "model.safetensors", erased.path / "trajectory-2/devices/data/000007.safetensors"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        shutil.copy(snapshots / "000000.safetensors", path)
        assert erased.check("digests") is False
        assert str(path.relative_to(erased.path)) in erased.detail("digests")
        path.unlink()
    assert erased.check("digests") is True
    snapshot = snapshots / "000004.safetensors"
    snapshot.write_bytes(snapshot.read_bytes()[:-4] + b"\1\2\3\4")
    assert erased.check("digests") is False


def test_a_snapshot_that_a_server_removes_meanwhile_is_no_failure(
    erased: Erased, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = erased.fed.history
    read = history.snapshot

    def snapshot(round_: int) -> ff.GlobalParameters:
        if round_ == 3:
            (erased.path / "trajectory-2" / "snapshots" / "000003.safetensors").unlink(missing_ok=True)
        return read(round_)

    monkeypatch.setattr(history, "snapshot", snapshot)
    assert erased.check("digests") is True


@pytest.mark.parametrize("name", ["old.tar.gz", "trajectory-2/notes.txt", "receipts/.a.json.part", "queue/a.txt"])
def test_unexpected_files_are_named(erased: Erased, name: str) -> None:
    assert erased.check("unexpected files") is True
    (erased.path / name).parent.mkdir(exist_ok=True)
    (erased.path / name).write_bytes(b"")
    assert erased.check("unexpected files") is None
    assert name in erased.detail("unexpected files")


def test_others_and_wrong_salts_are_refused(erased: Erased) -> None:
    stayed, salt = erased.fed.members[0], str(erased.receipt.salt)
    for options in (
        {"users": [stayed]},
        {"users": [stayed], "salts": [salt]},
        {"users": [*erased.users, stayed], "salts": [salt]},
        {"users": erased.users, "salts": ["00" * 16]},
        {"users": erased.users, "salts": [salt, "00" * 16]},
        {"salts": ["no salt"]},
        {"salts": [""]},
        {"salts": ["00" * 65]},
    ):
        with pytest.raises(ConfigError):
            erased.audit(**options)
    with pytest.raises(ConfigError, match="no receipt"):
        audit_request(erased.fed, erased.path, "other", "0")


def test_a_salt_may_be_written_as_a_uuid(erased: Erased) -> None:
    dashed = str(uuid.UUID(str(erased.receipt.salt)))
    assert erased.audit(users=erased.users, salts=[dashed.upper()]).result == "passed"


def test_requests_over_http_are_compared_with_the_signed_receipt(erased: Erased) -> None:
    requests = [uuid.uuid4().hex for _ in erased.users]
    names = {pseudonym(str(user), salt): None for user, salt in zip(erased.users, requests, strict=True)}
    signed = Signed(names)
    assert erased.audit(users=erased.users, salts=requests, signed=signed).result == "passed"
    one = erased.audit(users=erased.users[:1], salts=requests[:1], signed=signed)
    assert (one.result, one.checked, one.persons) == ("incomplete", 1, 2)
    for users, salts in (
        (erased.users, requests[:1]),
        (erased.users[:1], requests[1:]),
        (erased.users, [uuid.uuid4().hex]),
    ):
        with pytest.raises(ConfigError):
            erased.audit(users=users, salts=salts, signed=signed)
    assert erased.check("signed receipt", signed=Signed(names, "changed")) is False
    with pytest.raises(ConfigError):
        erased.audit(users=erased.users, salts=requests, signed=Signed(names, "changed"))


def test_a_person_of_the_receipt_only_is_not_checked_by_the_names_in_the_signed_one(
    erased: Erased, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, salt = [uuid.uuid4().hex for _ in erased.users], str(erased.receipt.salt)
    signed = Signed({pseudonym(str(u), s): None for u, s in zip(erased.users, requests, strict=True)})
    stayed = {pseudonym(erased.fed.members[0], salt): 3}  # asked on the device
    monkeypatch.setattr(erased.fed, "receipts", lambda: [replace(erased.receipt, partial=stayed)])
    result = erased.audit(users=erased.users, salts=requests, signed=signed)
    assert (result.result, result.checked, result.persons) == ("incomplete", 2, 3)
    assert erased.check("persons", users=erased.users, salts=requests, signed=signed) is None
    assert erased.check("interactions", users=erased.users, salts=requests, signed=signed) is None
    for salts in ([salt], [*requests, salt]):
        result = erased.audit(users=erased.users, salts=salts, signed=signed)
        assert (result.checked, result.persons) == (3, 3)


def test_two_requests_of_one_person_and_one_of_nobody_are_counted(erased: Erased) -> None:
    (first, second), requests = erased.users, [uuid.uuid4().hex for _ in range(4)]
    asked = [str(first), str(first), str(second), "nobody"]
    signed = Signed({pseudonym(user, salt): None for user, salt in zip(asked, requests, strict=True)})
    assert erased.audit(users=[*erased.users, "nobody"], salts=requests, signed=signed).persons == 3
    for left_out in range(4):
        some = [place for place in range(4) if place != left_out]
        result = erased.audit(
            users=list(dict.fromkeys([first, first, second, "nobody"][place] for place in some)),
            salts=[requests[place] for place in some],
            signed=signed,
        )
        assert result.checked < result.persons
        assert result.result == "incomplete"


def test_a_user_who_stays_is_checked_by_interactions(tmp_path: Path) -> None:
    fed = build(tmp_path / "run", NAMED, log=FLOAT).fit(rounds=4)
    user = first_in(fed, 1)[0]
    items = list(NAMED.item_ids_of(user))[:2]
    receipt = fed.forget(user=user, items=items)
    salts = [str(receipt.salt)]

    def audit(**options: Any) -> dict[str, bool | None]:
        result = audit_request(fed, tmp_path / "run", receipt.request, "0", **{"salts": salts, **options})
        assert result.result == ("incomplete" if None in {check.passed for check in result.checks} else "passed")
        return {check.name: check.passed for check in result.checks}

    left: dict[Any, int] = {}
    found = audit(items={user: items}, held=lambda *_: left)
    assert found == dict.fromkeys(["one trajectory", "persons", "interactions", *CHECKS[3:]], True)
    assert audit()["persons"] is True  # a member is recognised by the salt
    assert audit()["interactions"] is None
    assert audit(items={user: items})["interactions"] is None
    assert audit(items={user: items[:1]}, held=lambda *_: left)["interactions"] is None
    assert audit(users=[user])["interactions"] is None
    assert audit(users=[user], salts=[])["persons"] is None
    left[items[0]] = 9  # added again
    assert audit(items={user: items}, held=lambda *_: left)["interactions"] is None
    left[items[0]] = 0
    result = audit_request(
        fed, tmp_path / "run", receipt.request, "0", salts=salts, items={user: items}, held=lambda *_: left
    )
    assert result.result == "failed"
    fed.close()


def details(erased: Erased, **changes: Any) -> dict[str, Any]:
    config = {name: erased.fed.config.to_dict()[name] for name in ("model", "sampler", "training", "server")}
    settings = {"config": config, "methods": {"none": None, "retrain": dict(erased.receipt.method)}, "rounds": 5}
    verdicts = {"none": "seen", "retrain": "not seen"}
    kinds = {"none": "visible", "retrain": "alike"}
    data = {"source": "ml-100k", "digest": erased.fed.config.data["digest"], "users": 38, "items": 60}
    return {
        "settings": settings,
        "verdicts": verdicts,
        "verdict_kinds": kinds,
        "data": data,
        "finished": "2026-01-01",
        **changes,
    }


def write_audits(folder: Path, **audits: Any) -> None:
    for name, value in audits.items():
        (folder / name).mkdir()
        (folder / name / "details.json").write_text(value if isinstance(value, str) else json.dumps(value))


def test_the_newest_audit_of_the_same_settings_is_attached(erased: Erased, tmp_path: Path) -> None:
    other = details(erased, finished="2026-03-01", settings={"config": {}, "methods": {}})
    new = details(erased, finished="2026-02-01T00:00:00+00:00")
    write_audits(tmp_path, old=details(erased), new=new, other=other)
    attached = erased.audit(audits=[tmp_path]).audit
    assert attached is not None
    assert attached.path == str(tmp_path / "new" / "details.json")
    assert attached.sha256 == hashlib.sha256((tmp_path / "new" / "details.json").read_bytes()).hexdigest()
    assert (attached.verdict, attached.kind, attached.contradicts) == ("not seen", "alike", False)
    assert attached.differs == ()
    assert erased.audit(audits=[tmp_path / "other"]).audit is None


def test_an_audit_of_the_same_data_is_preferred(erased: Erased, tmp_path: Path) -> None:
    data = {"source": "ml-1m", "digest": "0" * 64, "users": 9, "items": 8}
    settings = {**details(erased)["settings"], "rounds": 7}
    write_audits(
        tmp_path, same=details(erased), other=details(erased, finished="2026-02-01", data=data, settings=settings)
    )
    attached = erased.audit(audits=[tmp_path]).audit
    assert attached is not None
    assert attached.path == str(tmp_path / "same" / "details.json")
    attached = erased.audit(audits=[tmp_path / "other"]).audit
    assert attached is not None
    assert attached.differs == ("on other data (ml-1m, 9 users, 8 items)", "after 7 rounds, not 5")


def test_an_audit_that_sees_forgotten_users_is_a_contradiction(erased: Erased, tmp_path: Path) -> None:
    old = details(erased)
    for name in ("verdict_kinds", "data"):
        del old[name]
    write_audits(tmp_path, seen=details(erased, verdict_kinds={"retrain": "visible"}), old=old)
    result = erased.audit(audits=[tmp_path / "seen"], **erased.named)
    assert result.audit is not None
    assert result.audit.contradicts
    assert result.result == "passed"
    assert erased.stored["audit"]["contradicts"] is True
    before = erased.audit(audits=[tmp_path / "old"]).audit
    assert before is not None
    assert (before.kind, before.contradicts, before.differs) == (
        None,
        False,
        ("on other data, which it does not name",),
    )


@pytest.mark.parametrize(
    "value",
    ["{", "[]", "null", '{"settings": 3}', {"verdicts": []}, {"finished": None}, {"data": 3}, {"verdict_kinds": 3}],
)
def test_malformed_audits_are_reported_by_name(erased: Erased, tmp_path: Path, value: Any) -> None:
    broken = value if isinstance(value, str) else details(erased, **value)
    write_audits(tmp_path, broken=broken, good=details(erased))
    result = erased.audit(audits=[tmp_path])
    assert result.audit is not None
    assert result.audit.path == str(tmp_path / "good" / "details.json")
    assert [line.partition(": ")[0] for line in result.unreadable_audits] == [str(tmp_path / "broken" / "details.json")]
