"""``fedforget forget`` and ``receipts``, as a person and as a program would use them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.cli import show
from fedforget.cli.main import app
from fedforget.server.history import RoundRecord
from tests.cli.conftest import Shell, train_arguments, write_table

RECEIPT = {
    "to_wipe",
    "given_up",
    "request",
    "users",
    "method",
    "first_round",
    "rounds_replayed",
    "rounds_added",
    "asked",
    "answered",
    "partial",
    "missing",
    "bytes_down",
    "bytes_up",
    "seconds",
    "digest_before",
    "digest_after",
    "finished",
    "version",
    "wiped",
    "coverage",
    "communication_rounds",
    "messages",
    "chosen",
}
ESTIMATE = {
    "method",
    "chosen",
    "first_round",
    "start",
    "rounds",
    "communication_rounds",
    "devices",
    "messages",
    "requests",
    "bytes_down",
    "bytes_up",
    "seconds",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds with half of the users in each, eight of forty malicious."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = train_arguments(write_table(folder / "plays.csv"), folder / "run")
    options = ["--rounds", 4, "--set", "fraction=0.5", "--model", "mf", "--malicious", 0.2, "--json"]
    app([str(part) for part in (*arguments, *options)], standalone_mode=False)
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to do with as one likes."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def content(folder: Path) -> dict[str, str]:
    """Every file of a folder, by its name and its bytes.

    Left out are the lock, and what SQLite has beside an open database into which nothing was written.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    files = [path for path in files if path.suffix != ".sqlite-shm"]
    files = [path for path in files if path.suffix != ".sqlite-wal" or path.stat().st_size]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def interrupted(shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in which someone pressed Ctrl-C after the second replayed round of forgetting u1 and u2."""

    @contextmanager
    def stopped_by_hand(first: int, last: int, *, quiet: bool) -> Iterator[object]:
        def on_round(record: RoundRecord) -> None:
            if record.round == 2:
                raise KeyboardInterrupt

        yield on_round

    with monkeypatch.context() as patch:
        patch.setattr(show, "rounds_bar", stopped_by_hand)
        shell("forget", run, "--yes", "--users", "u1,u2", "--method", "retrain", "--require", 0.5, fails=130)
    return run


def test_forgetting_prints_the_receipt_the_salt_and_what_comes_next(shell: Shell, run: Path) -> None:
    shown = shell("forget", run, "--yes", "--users", "u1,u2")
    receipt = ff.Federation.open(run).receipts()[0]
    assert f"Receipt {receipt.request}" in shown
    assert "Keep the salt" in shown
    assert f"{receipt.request}.json" in shown
    assert f"fedforget evaluate {run}" in shown
    salt = shown.split("--salt ")[1].split()[0]
    assert receipt.names("u1", salt)
    assert receipt.names("u2", salt)
    assert (run / "receipts" / f"{receipt.request}.json").exists()


def test_the_forgotten_are_gone_and_the_run_goes_on(shell: Shell, run: Path) -> None:
    before = shell.json("evaluate", run)["users"]
    result = shell.json(
        "forget", run, "--yes", "--users", "u1,u2", "--set", "replay_fraction=0.5", "--set", "replay=logged"
    )
    assert set(result) == {"run", "rounds", "receipt", "salt", "source"}
    assert set(result["receipt"]) == RECEIPT
    assert len(result["receipt"]["users"]) == 2
    assert result["receipt"]["method"]["replay_fraction"] == 0.5
    assert result["receipt"]["method"]["replay"] == "logged"
    shell("recommend", run, "--user", "u1", fails=1)
    assert shell.json("evaluate", run)["users"] == before - 2
    assert shell.json("train", "--out", run, "--rounds", 5)["rounds"] == 5


@pytest.mark.parametrize("method", ["fru", "retrain", "continue"])
def test_each_method_by_its_name(shell: Shell, run: Path, method: str) -> None:
    result = shell.json("forget", run, "--yes", "--users", "u3", "--method", method)
    assert result["receipt"]["method"]["name"] == method
    assert result["receipt"]["rounds_added"] == (1 if method == "continue" else 0)


def test_what_the_command_does_is_what_python_does(shell: Shell, run: Path, tmp_path: Path) -> None:
    fed = ff.Federation.open(run).copy(tmp_path / "other")
    receipt = fed.forget(["u1", "u2"], ff.FRU(replay_fraction=0.5))
    result = shell.json("forget", run, "--yes", "--users", "u1,u2", "--set", "replay_fraction=0.5")
    assert result["receipt"]["digest_after"] == receipt.digest_after


def test_a_dry_run_changes_no_byte(shell: Shell, run: Path) -> None:
    shell.json("evaluate", run)
    before = content(run)
    result = shell.json("forget", run, "--yes", "--users", "u1,u2,u1", "--dry-run")
    assert content(run) == before
    assert set(result) == {"run", "dry_run", "users", "method", "estimate"}
    assert set(result["estimate"]) == ESTIMATE
    assert result["users"] == 2
    shown = shell("forget", run, "--yes", "--users", "u1,u2", "--dry-run", "--method", "retrain")
    assert "4 to train or replay" in shown
    assert "Nothing was changed" in shown
    assert content(run) == before


def test_strides_and_steps_are_options_and_in_estimate_and_receipt(shell: Shell, run: Path) -> None:
    asked = ("forget", run, "--yes", "--users", "u1,u2")
    usual = shell.json(*asked, "--dry-run")
    assert (usual["method"]["stride"], usual["method"]["limit"]) == (10, 0.7)
    finer = shell.json(*asked, "--dry-run", "--set", "stride=1")["estimate"]
    assert usual["estimate"]["communication_rounds"] < finer["communication_rounds"] == finer["rounds"]
    anew = shell.json(*asked, "--dry-run", "--method", "retrain", "--set", "steps=2", "--set", "fraction=0.5")[
        "estimate"
    ]
    assert anew["communication_rounds"] == 2
    receipt = shell.json(*asked, "--set", "stride=2", "--set", "limit=0.5")["receipt"]
    assert (receipt["method"]["stride"], receipt["method"]["limit"]) == (2, 0.5)
    assert receipt["communication_rounds"] < receipt["rounds_replayed"]
    assert receipt["chosen"] == "as asked for"


def test_users_from_a_file(shell: Shell, run: Path, tmp_path: Path) -> None:
    names = tmp_path / "forgotten.txt"
    names.write_bytes("\ufeffu1\r\n\r\nu2\n".encode())
    assert len(shell.json("forget", run, "--yes", "--users-file", names, "--users", "u3")["receipt"]["users"]) == 3


def test_numbers_are_numbers_where_the_data_has_numbers(shell: Shell, tmp_path: Path) -> None:
    arguments = train_arguments(write_table(tmp_path / "plays.csv", name=int), tmp_path / "run")
    shell.json(*arguments, "--rounds", 1, "--model", "mf")
    result = shell.json("forget", tmp_path / "run", "--yes", "--users", "7")
    assert shell.json("receipts", tmp_path / "run", "--check", "7", "--salt", result["salt"])["user"] == 7


class TestMalicious:
    def test_they_are_forgotten_all_and_no_one_else(self, shell: Shell, run: Path) -> None:
        attack = ff.Federation.open(run).config.attack
        assert attack is not None
        result = shell.json("forget", run, "--yes", "--malicious")
        fed = ff.Federation.open(run)
        receipt = fed.receipts()[0]
        assert len(receipt.users) == len(attack.users) == 8
        assert all(receipt.names(user, result["salt"]) for user in attack.users)
        assert fed.config.attack is None
        shell("forget", run, "--yes", "--malicious", fails=1)
        assert "no malicious users" in shell.errors

    def test_the_same_train_command_goes_on_without_them(self, shell: Shell, tmp_path: Path) -> None:
        arguments = train_arguments(write_table(tmp_path / "plays.csv"), tmp_path / "run")
        options = ["--model", "mf", "--malicious", 0.2, "--gamma", 3]
        first = shell.json(*arguments, *options, "--rounds", 1)
        attack = ff.Federation.open(tmp_path / "run").config.attack
        assert attack is not None
        assert first["malicious"] == len(attack.users) == 8
        assert attack.gamma == 3
        shell.json("forget", tmp_path / "run", "--yes", "--users", attack.users[0])
        assert shell.json(*arguments, *options, "--rounds", 2)["malicious"] == 7
        assert "7 of 39 users are malicious" in shell(*arguments, *options, "--rounds", 2) + shell.errors
        shell.json("forget", tmp_path / "run", "--yes", "--malicious")
        assert shell.json(*arguments, *options, "--rounds", 3)["malicious"] == 0


class TestInterrupted:
    def test_it_says_how_to_go_on(self, shell: Shell, interrupted: Path) -> None:
        assert "The old model is still in service" in shell.errors
        assert f"Continue: fedforget forget {interrupted} --resume\n" in shell.errors
        assert f"fedforget forget {interrupted} --abandon" in shell.errors

    def test_resumed_it_ends_as_if_unbroken(
        self, shell: Shell, interrupted: Path, trained: Path, tmp_path: Path
    ) -> None:
        whole = shutil.copytree(trained, tmp_path / "whole")
        expected = shell.json("forget", whole, "--yes", "--users", "u1,u2", "--method", "retrain")["receipt"]
        waiting = shell.json("receipts", interrupted)["waiting"]
        resumed = shell.json("forget", interrupted, "--yes", "--resume")["receipt"]
        assert resumed["request"] == waiting
        assert resumed["digest_after"] == expected["digest_after"]
        assert resumed["asked"] == expected["asked"]
        assert resumed["method"]["name"] == "retrain"
        assert shell.json("receipts", interrupted)["waiting"] is None

    def test_meanwhile_nothing_else_is_done(self, shell: Shell, interrupted: Path) -> None:
        shell("train", "--out", interrupted, "--rounds", 9, fails=1)
        assert "--resume" in shell.errors
        shell("forget", interrupted, "--yes", "--users", "u5", fails=1)
        assert "--abandon" in shell.errors
        assert "Nobody was forgotten" in shell("receipts", interrupted)
        assert "is not finished" in shell.errors

    def test_given_up_everyone_stays(self, shell: Shell, interrupted: Path, trained: Path) -> None:
        assert set(shell.json("forget", interrupted, "--yes", "--abandon")) == {"run", "abandoned"}
        assert shell.json("evaluate", interrupted)["full"] == shell.json("evaluate", trained)["full"]
        assert not (interrupted / "request.json").exists()
        for option in ("--resume", "--abandon"):
            shell("forget", interrupted, "--yes", option, fails=1)
            assert "No request was interrupted" in shell.errors

    def test_people_are_told_that_it_is_given_up(self, shell: Shell, interrupted: Path) -> None:
        assert "its 2 users stay" in shell("forget", interrupted, "--yes", "--abandon")


class TestReceipts:
    def test_none(self, shell: Shell, run: Path) -> None:
        assert shell.json("receipts", run)["receipts"] == []
        assert "Nobody was forgotten" in shell("receipts", run)

    def test_listed_in_the_order_of_requests(self, shell: Shell, run: Path) -> None:
        done = [shell.json("forget", run, "--yes", "--users", user)["receipt"] for user in ("u1", "u2")]
        assert shell.json("receipts", run) == {"run": str(run), "receipts": done, "waiting": None, "fallbacks": []}
        shown = shell("receipts", run)
        assert all(receipt["request"] in shown for receipt in done)
        assert "coverage" in shown

    def test_a_user_is_found_with_the_salt_alone(self, shell: Shell, run: Path) -> None:
        result = shell.json("forget", run, "--yes", "--users", "u1")
        salt, request = result["salt"], result["receipt"]["request"]
        found = shell.json("receipts", run, "--check", "u1", "--salt", salt)
        assert found == {"user": "u1", "found": True, "request": request, "member": False}
        assert request in shell("receipts", run, "--check", "u1", "--salt", salt)
        assert "in no receipt" in shell("receipts", run, "--check", "u2", "--salt", salt, fails=1)
        assert "in no receipt" in shell("receipts", run, "--check", "u1", "--salt", "00" * 16, fails=1)

    def test_a_user_who_stays_or_is_back_is_not_called_forgotten_without_a_word(
        self, shell: Shell, run: Path, tmp_path: Path
    ) -> None:
        fed = ff.Federation.open(run)
        item = fed.train.item_ids_of("u2")[0]
        fed.close()
        salt = shell.json("forget", run, "--yes", "--user", "u2", "--items", item)["salt"]
        shown = shell("receipts", run, "--check", "u2", "--salt", salt)
        assert "1 interactions of user u2 were forgotten" in shown
        assert "is a member of the federation now" in shown
        salt = shell.json("forget", run, "--yes", "--users", "u1")["salt"]
        (tmp_path / "more.csv").write_text(f"user,item\nu1,{item}\n")
        shell("data", "add", run, tmp_path / "more.csv", "--readmit")
        assert "is a member of the federation now" in shell("receipts", run, "--check", "u1", "--salt", salt)

    def test_receipts_to_hand_out_do_not_show_when_somebody_took_part(
        self, shell: Shell, run: Path, tmp_path: Path
    ) -> None:
        request = shell.json("forget", run, "--yes", "--users", "u1")["receipt"]["request"]
        shell("receipts", run, "--export", tmp_path / "public")
        public = json.loads((tmp_path / "public" / f"{request}.json").read_text())
        assert {"users", "digest_before", "digest_after", "method"} <= set(public)
        schedule = {"first_round", "rounds_replayed", "asked", "answered", "missing", "bytes_up", "seconds", "messages"}
        assert not schedule & set(public)

    @pytest.mark.parametrize("salt", ["xyz", "00" * 65])
    def test_what_cannot_be_a_salt(self, shell: Shell, run: Path, salt: str) -> None:
        shell.json("forget", run, "--yes", "--users", "u1")
        shell("receipts", run, "--check", "u1", "--salt", salt, fails=1)
        assert "is invalid" in shell.errors

    def test_check_and_salt_belong_together(self, shell: Shell, run: Path) -> None:
        shell("receipts", run, "--check", "u1", fails=1)
        assert "--salt is None" in shell.errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "The request names nobody"),
        (["--users", ","], "has an empty user id"),
        (["--users", "u1,nobody"], "no user 'nobody'"),
        (["--users-file", "gone.txt"], "gone.txt cannot be read"),
        (["--users", "u1", "--malicious"], "--users was given with --malicious"),
        (["--users", "u1", "--resume"], "--users was given with --resume"),
        (["--resume", "--set", "replay_fraction=0.5"], "leave --set out"),
        (["--abandon", "--method", "fru"], "--method was given with --abandon"),
        (["--abandon", "--dry-run"], "--dry-run was given with --abandon"),
        (["--resume", "--abandon"], "exclude each other"),
        (["--users", "u1", "--method", "retrian"], "Did you mean 'retrain'?"),
        (["--users", "u1", "--method", "retrain", "--set", "replay_fraction=0.2"], "does not take"),
        (["--users", "u1", "--set", "share=0.2"], "does not take"),
        (["--users", "u1", "--set", "replay_fraction=0"], "replay_fraction is 0"),
        (["--users", "u1", "--set", "calibration=sever"], "Did you mean 'server'?"),
        (["--users", "u1", "--method", "fedremove"], "lengths only"),
        (["--users", "u1", "--require", "2"], "require is 2"),
    ],
)
def test_errors_name_the_value_the_reason_and_the_next_step(
    shell: Shell, run: Path, arguments: list[str], said: str
) -> None:
    before = content(run)
    assert shell("forget", run, "--yes", *arguments, fails=1) == ""
    assert said in shell.errors
    assert "Traceback" not in shell.errors
    assert content(run) == before


def test_a_run_made_from_python_data_has_all_it_needs(shell: Shell, board: ff.Interactions, tmp_path: Path) -> None:
    ff.Federation(board, ff.MF(dim=4), path=tmp_path / "run").close()
    assert len(shell.json("forget", tmp_path / "run", "--yes", "--users", 1)["receipt"]["users"]) == 1
    assert 1 not in ff.Federation.open(tmp_path / "run").members


@pytest.mark.parametrize("command", [["forget"], ["receipts"], ["log"], ["log", "stats"]])
def test_every_command_explains_itself(shell: Shell, command: list[str]) -> None:
    assert "Usage: " in shell(*command, "--help")


def test_some_items_of_a_user_who_stays(shell: Shell, board: ff.Interactions, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed = ff.Federation(board, ff.MF(dim=4), path=run).fit(3)
    user = fed.cohort(1)[0]
    items = board.item_ids[board.items_of(board.user_index(user))].tolist()[:2]
    fed.close()
    ids = ",".join(map(str, items))
    dry = shell.json("forget", run, "--yes", "--user", user, "--items", ids, "--dry-run")
    assert dry["estimate"]["first_round"] == 1
    receipt = shell.json("forget", run, "--yes", "--user", user, "--items", ids)["receipt"]
    assert (receipt["users"], list(receipt["partial"].values())) == ([], [2])
    left = ff.Federation.open(run).train
    assert not set(items) & set(left.item_ids[left.items_of(left.user_index(user))].tolist())
    shell("forget", run, "--yes", "--user", user, fails=1)
    assert "--items is None" in shell.errors
