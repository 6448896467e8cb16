"""``fedforget receipts verify``, ``sign`` and ``rotate-key``, and the listing beside them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")

from fedforget.attestation import ReceiptChain, SigningKey, verify
from fedforget.cli import signed_receipts
from fedforget.cli.main import app
from fedforget.erasure_service import batches, subject_requests
from fedforget.erasure_service.batches import Batches
from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.subject_requests import SubjectRequests
from fedforget.runtime.files import only_writer
from fedforget.server.request import ErasureRequest
from tests.attestation.made_runs import ANNA, ANNAS_REQUEST, PAUL, PAULS_REQUEST, make_run, receipt, signed_run, store
from tests.attestation.test_keys import given_pair
from tests.cli.conftest import Shell, train_arguments, write_table

CERTIFICATE = Path("service") / "signing" / "certificate.pem"
RETIRED = Path("service") / "signing" / "retired" / "001.pem"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return signed_run(tmp_path / "run")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "SETTLE_SECONDS", 0.0)


def entry(run: Path, number: int) -> Path:
    return next((run / "receipts" / "signed").glob(f"{number:06d}-*.json"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run in which somebody was forgotten."""
    folder = tmp_path_factory.mktemp("forgotten")
    arguments = train_arguments(write_table(folder / "plays.csv"), folder / "run")
    for line in (
        [*arguments, "--rounds", 1, "--model", "mf", "--json"],
        ["forget", folder / "run", "--yes", "--users", "u1", "--json"],
    ):
        app([str(part) for part in line], standalone_mode=False)
    return folder / "run"


@pytest.fixture
def forgotten(shared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shared, tmp_path / "forgotten"))


class TestGroup:
    def test_a_run_is_listed_wherever_its_options_are(self, shell: Shell, forgotten: Path) -> None:
        shown = shell("receipts", forgotten, "--json")
        assert shell("receipts", "--json", forgotten) == shown
        assert len(json.loads(shown)["receipts"]) == 1
        shell("receipts", "--check", "u2", "--salt", "00" * 16, forgotten, fails=1)
        assert "Forgotten in" in shell("receipts", forgotten)

    def test_signed_and_verified_beside_it(self, shell: Shell, forgotten: Path) -> None:
        shell("receipts", "verify", forgotten, fails=1)
        assert "Signed 1 receipts" in shell("receipts", "sign", forgotten)
        assert "no problem" in shell("receipts", "verify", forgotten)
        assert "Forgotten in" in shell("receipts", forgotten)

    def test_a_folder_called_like_a_command(
        self, shell: Shell, forgotten: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        shutil.copytree(forgotten, tmp_path / "verify")
        assert len(shell.json("receipts", "./verify")["receipts"]) == 1

    def test_the_help_has_both(self, shell: Shell) -> None:
        shown = shell("receipts", "--help")
        for text in ("RUN | COMMAND", "--export", "rotate-key", "verify", "sign"):
            assert text in shown
        assert "receipts verify [OPTIONS]" in shell("receipts", "verify", "--help")

    def test_errors_are_those_of_the_listing(self, shell: Shell, tmp_path: Path) -> None:
        shell("receipts", fails=2)
        assert "Missing argument 'RUN'" in shell.errors
        shell("receipts", tmp_path, "verify", fails=2)
        assert "unexpected extra argument" in shell.errors
        shell("receipts", tmp_path / "nowhere", fails=1)
        assert "is not a run folder" in shell.errors


class TestVerify:
    def test_a_run(self, shell: Shell, run: Path) -> None:
        shown = shell("receipts", "verify", run)
        assert "Verified: 4 signed, no problem." in shown
        assert "Checked by the certificates in the run folder" in shown
        trusted = ("--key", run / RETIRED, "--key", run / CERTIFICATE)
        assert "in the run folder" not in shell("receipts", "verify", run, *trusted)
        found = shell.json("receipts", "verify", run)
        assert found["passed"]
        assert [each["number"] for each in found["findings"]] == [1, 2, 3, 4]

    def test_what_is_wrong_is_said_with_its_exit_code(self, shell: Shell, run: Path) -> None:
        store(run, receipt("d4"))
        assert "FAILED (unsigned): the receipt is not signed" in shell("receipts", "verify", run, fails=1)
        entry(run, 1).unlink()
        assert "FAILED (chain)" in shell("receipts", "verify", run, fails=1)

    def test_the_removal_of_the_newest_by_a_noted_head(self, shell: Shell, run: Path) -> None:
        head = shell.json("receipts", "verify", run)["head"]
        assert shell.json("receipts", "verify", run, "--head", head)["passed"]
        entry(run, 4).unlink()
        store(run, receipt("b2", wiped=0))
        shell("receipts", "verify", run)
        assert "no entry has the digest" in shell("receipts", "verify", run, "--head", head, fails=1)

    def test_a_file(self, shell: Shell, run: Path) -> None:
        assert "Verified: 1 signed" in shell("receipts", "verify", entry(run, 3), "--key", run / CERTIFICATE)
        assert "FAILED (signature)" in shell("receipts", "verify", entry(run, 3), "--key", run / RETIRED, fails=1)
        shell("receipts", "verify", entry(run, 3), fails=1)
        assert "--key cert.pem" in shell.errors

    def test_whom_it_names(self, shell: Shell, run: Path) -> None:
        asked = ("receipts", "verify", entry(run, 1), "--key", run / RETIRED)
        assert f"User {ANNA} is named" in shell(*asked, "--user", ANNA, "--request", ANNAS_REQUEST)
        assert shell.json(*asked, "--user", PAUL, "--request", PAULS_REQUEST)["named"] == ["a1"]
        assert "is not named" in shell(*asked, "--user", ANNA, "--request", PAULS_REQUEST, fails=1)
        found = shell.json("receipts", "verify", run, "--user", ANNA, "--request", ANNAS_REQUEST.upper())
        assert found["named"] == ["a1"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--user", "u1"], "--request is None"),
            (["--request", ANNAS_REQUEST], "--user is None"),
            (["--user", "u1", "--request", "mine"], "'mine' is not a UUID"),
            (["--head", "abc"], "'abc' is not a digest"),
            (["--key", "gone.pem"], "gone.pem cannot be read"),
        ],
    )
    def test_options_that_cannot_be(self, shell: Shell, run: Path, options: list[str], said: str) -> None:
        shell("receipts", "verify", run, *options, fails=1)
        assert said in shell.errors

    def test_paths_that_cannot_be(self, shell: Shell, run: Path, tmp_path: Path) -> None:
        shell("receipts", "verify", entry(run, 1), "--head", "0" * 64, fails=1)
        assert "is one receipt" in shell.errors
        for options in ([], ["--key", run / CERTIFICATE], ["--head", "0" * 64]):
            shell("receipts", "verify", tmp_path / "gone", *options, fails=1)
            assert f"There is no file or folder {tmp_path / 'gone'}." in shell.errors.replace("\n", "")
            assert "or a run folder" in shell.errors
        shell("receipts", "verify", tmp_path, fails=1)
        assert "is not a run folder" in shell.errors
        shell("receipts", "verify", run / "config.toml", "--key", run / CERTIFICATE, fails=1)
        assert "is not a DSSE envelope" in shell.errors


class TestSign:
    def test_what_is_not_signed_once(self, shell: Shell, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", receipt("a1"), receipt("b2"))
        found = shell.json("receipts", "sign", run)
        assert [Path(path).name for path in found["signed"]] == ["000001-a1.json", "000002-b2.json"]
        assert shell.json("receipts", "sign", run) == found | {"signed": []}

    def test_with_a_given_key(self, shell: Shell, run: Path, tmp_path: Path) -> None:
        other = make_run(tmp_path / "other")
        shell("receipts", "rotate-key", other, "--yes")
        key = other / "service" / "signing" / "key.pem"
        store(run, receipt("d4"))
        shell("receipts", "sign", run, "--signing-key", key, "--signing-cert", other / CERTIFICATE)
        assert (run / CERTIFICATE).read_text() == (other / CERTIFICATE).read_text()
        shell("receipts", "verify", run)
        shell("receipts", "sign", run, fails=1)
        assert "given from another place" in shell.errors

    def test_erasures_that_the_service_has_not_finished_are_left_to_it(self, shell: Shell, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", receipt("a1"), receipt("b2"))
        db = open_state(run, subject_requests.SCHEMA + batches.SCHEMA)
        state = SubjectRequests(db, run / "service" / "service.sqlite")
        Batches(state).start(ErasureRequest("b2", (), {}, ""), [], 0.0, 0.0)
        assert "Left to the erasure service, which has not finished it: b2" in shell("receipts", "sign", run)
        assert [entry.request for entry in ReceiptChain(run).entries()] == ["a1"]
        Batches(state).close("b2", "done")
        found = shell.json("receipts", "sign", run)
        assert [Path(path).name for path in found["signed"]] == ["000002-b2.json"]
        assert found["left_to_service"] == []
        state.close()
        state.db.close()

    def test_a_service_that_has_tokens_and_was_never_started(self, shell: Shell, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", receipt("a1"))
        shell("token", "add", run, "--role", "operator", "--name", "x")
        assert "Signed 1 receipts" in shell("receipts", "sign", run)

    def test_nothing_is_written_where_there_is_no_run(self, shell: Shell, tmp_path: Path) -> None:
        for command in (["sign"], ["rotate-key", "--yes"]):
            shell("receipts", *command, tmp_path, fails=1)
        assert list(tmp_path.iterdir()) == []


class TestRotateKey:
    def test_it_asks(self, shell: Shell, run: Path) -> None:
        before = (run / CERTIFICATE).read_text()
        shell("receipts", "rotate-key", run, fails=1)
        assert "Add --yes" in shell.errors
        assert (run / CERTIFICATE).read_text() == before

    def test_receipts_before_and_after_it_are_verified(self, shell: Shell, run: Path) -> None:
        before = (run / CERTIFICATE).read_text()
        assert str(run / CERTIFICATE) in shell("receipts", "rotate-key", run, "--yes")
        assert (run / CERTIFICATE).read_text() != before
        store(run, receipt("d4"))
        shell("receipts", "sign", run)
        assert "Verified: 5" in shell("receipts", "verify", run)

    def test_a_running_service_keeps_the_key_that_it_was_given(self, shell: Shell, run: Path, tmp_path: Path) -> None:
        SigningKey.open(run, *given_pair(run, tmp_path / "other"))
        before = (run / CERTIFICATE).read_text()
        with only_writer(run / "service"):
            shell("receipts", "rotate-key", run, "--yes", fails=1)
        assert "runs with a signing key that was given to it" in shell.errors
        assert "fedforget serve --signing-key FILE" in shell.errors
        assert (run / CERTIFICATE).read_text() == before
        shell("receipts", "rotate-key", run, "--yes")
        with only_writer(run / "service"):
            shell("receipts", "rotate-key", run, "--yes")


def test_without_the_extra(shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_receipts, "find_spec", lambda name: None)
    for module in [name for name in sys.modules if name.startswith("fedforget.attestation")]:
        monkeypatch.setitem(sys.modules, module, None)
    for command in (["verify"], ["sign"], ["rotate-key", "--yes"]):
        shell("receipts", *command, run, fails=1)
        assert "pip install 'fedforget[service]'" in shell.errors
