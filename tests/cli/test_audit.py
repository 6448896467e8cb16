"""``fedforget audit forgetting`` and ``audit request``: the commands, their results for programs, and mistakes."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fedforget as ff
from fedforget.attestation import Person, ReceiptChain, SigningKey
from fedforget.cli.main import app
from fedforget.server.config_file import read_config
from fedforget.server.receipt import Receipt
from tests.small_federations import DATA, FLOAT, build, first_in

SMALL = ["--worlds", "8", "--rounds", "4", "--leavers", "0.1", "--workers", "1", "--cases", "random", "--set", "dim=8"]


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    users, items = ff.synthetic(users=40, items=50, mean_items=10, seed=5).pairs()
    path = tmp_path_factory.mktemp("data") / "plays.csv"
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in zip(users, items, strict=True)))
    return path


def test_an_audit_from_the_shell(plays: Path, tmp_path: Path) -> None:
    command = ["audit", "forgetting", str(plays), "--methods", "continue", "--out", str(tmp_path / "a"), *SMALL]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "a" / "audit.json").read_text())
    assert list(result["methods"]) == ["none", "continue", "retrain"]
    assert (result["worlds"], result["leavers"]) == (8, 0.1)
    again = CliRunner().invoke(app, command)  # nothing is trained again
    assert again.exit_code == 0, again.output
    assert "random users" in again.output
    assert "audit.html" in again.output


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--worlds", "7"], "worlds is 7"), (["--methods", "erase"], "erase"), (["--cases", "nobody"], "nobody")],
)
def test_mistakes_are_explained(plays: Path, tmp_path: Path, options: list[str], problem: str) -> None:
    command = ["audit", "forgetting", str(plays), "--out", str(tmp_path / "a"), *SMALL, *options]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ff.FedForgetError)
    assert problem in done.exception.problem
    assert not (tmp_path / "a").exists()


class Requested:
    """A run from the shell, with a request of two whole users and one of two items of a user who stays."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        fed = build(self.run, DATA, log=FLOAT).fit(rounds=4)
        self.items = {user: list(DATA.item_ids_of(user))[:2] for user in first_in(fed, 1)}
        self.partial = fed.forget(items=self.items)
        self.users = [user for user in first_in(fed, 2, 3) if user not in self.items][:2]
        self.whole = fed.forget(self.users)
        fed.close()

    def audit(self, receipt: Receipt, *options: str) -> Result:
        return CliRunner().invoke(app, ["audit", "request", str(self.run), receipt.request, *options])


@pytest.fixture(scope="module")
def requested(tmp_path_factory: pytest.TempPathFactory) -> Requested:
    return Requested(tmp_path_factory.mktemp("requested"))


def test_an_audit_of_a_request_has_three_results(requested: Requested) -> None:
    users, salt = ",".join(map(str, requested.users)), str(requested.whole.salt)
    done = requested.audit(requested.whole, "--users", users, "--salt", salt, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["result"] == "passed"
    missing = requested.audit(requested.whole, "--users", users)
    assert missing.exit_code == 2, missing.output
    assert "Result: incomplete" in missing.output
    assert "Not stored" in missing.output
    left = requested.run / "left.refused"
    left.write_text(f"There is no user {requested.users[0]} in this federation.")
    failed = requested.audit(requested.whole, "--users", users, "--salt", salt)
    left.unlink()
    assert failed.exit_code == 1, failed.output
    assert "FAILED" in failed.output
    assert requested.audit(requested.whole, "--users", users, "--salt", salt).exit_code == 0
    wrong = requested.audit(requested.whole, "--users", users, "--salt", "ab" * 16)
    assert isinstance(wrong.exception, ff.FedForgetError)


def test_an_audit_of_items_compares_them_with_the_data(requested: Requested) -> None:
    (user, items), salt = next(iter(requested.items.items())), str(requested.partial.salt)
    named = ["--user", str(user), "--items", ",".join(map(str, items)), "--salt", salt]
    done = requested.audit(requested.partial, *named)
    assert done.exit_code == 0, done.output
    assert requested.audit(requested.partial, "--salt", salt).exit_code == 2
    kept = [item for item in DATA.item_ids_of(user) if item not in items][:2]
    held = requested.audit(requested.partial, "--user", str(user), "--items", ",".join(map(str, kept)), "--salt", salt)
    assert held.exit_code == 1, held.output
    refused = requested.audit(requested.partial, "--items", "3")
    assert isinstance(refused.exception, ff.FedForgetError)


def test_requests_over_http_are_named_by_their_ids(requested: Requested) -> None:
    requests = [str(uuid.uuid4()) for _ in requested.users]
    persons = [Person.of(str(user), one) for user, one in zip(requested.users, requests, strict=True)]
    key = SigningKey.open(requested.run)
    entry = ReceiptChain(requested.run).append(
        requested.whole, persons, key, str(read_config(requested.run / "config.toml")["id"])
    )
    users, ids = ",".join(map(str, requested.users)), ["--request-id", requests[0], "--request-id"]
    done = requested.audit(requested.whole, "--users", users, *ids, requests[1].replace("-", ""))
    assert done.exit_code == 0, done.output
    assert "signed receipt" in done.output
    one = requested.audit(requested.whole, "--users", str(requested.users[0]), "--request-id", requests[0])
    assert one.exit_code == 2, one.output
    assert "1 of 2 persons" in one.output
    for other in (str(uuid.uuid4()), "no uuid"):
        wrong = requested.audit(requested.whole, "--users", users, *ids, other)
        assert isinstance(wrong.exception, ff.FedForgetError)
    entry.path.write_bytes(entry.path.read_bytes().replace(b'"sig": "', b'"sig": "AAAA'))
    changed = requested.audit(requested.whole, "--users", users, "--salt", str(requested.whole.salt))
    assert changed.exit_code == 1, changed.output
    shutil.rmtree(requested.run / "receipts" / "signed")
