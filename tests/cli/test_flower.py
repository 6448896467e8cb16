"""``fedforget flower``, and forgetting in a run whose devices are on a network, as an operator types it."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fedforget as ff
from tests.cli.conftest import Shell, write_table

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.cli import flower
from fedforget.errors import ConfigError
from fedforget.flower.credentials import make_node_key
from fedforget.flower.fleet import FlowerFleet
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.run_config import RunConfig
from fedforget.server.service import Service
from tests.flower.in_process import InProcessGrid

USERS = ["u0", "u1", "u2", "u3"]
NODE = 2**64 - 5


@pytest.fixture
def run(tmp_path: Path, shell: Shell) -> Path:
    """A federation of four users on one device, begun and joined by the commands of the guide."""
    table = write_table(tmp_path / "plays.csv")
    (tmp_path / "items.txt").write_text("".join(f"song {i}\n" for i in range(60)))
    run, state = tmp_path / "run", tmp_path / "state"
    quick = ["--model", "mf", "--set", "dim=8", "--set", "epochs=2", "--set", "fraction=1.0", "--set", "secure=false"]
    said = shell("flower", "create", run, "--items", tmp_path / "items.txt", *quick)
    assert "over 60 items" in said
    assert str(run / "invitation.json") in said
    columns = ["--user-column", "who", "--item-column", "what"]
    invitation = ["--invitation", run / "invitation.json", "--state", state]
    said = shell("flower", "enrol", *invitation, "--users", ",".join(USERS), "--data", table, *columns)
    assert said.count("has joined federation") == 4
    key = make_node_key(tmp_path / "node-key")
    said = shell("flower", "register", run, "--key", key, "--node-id", NODE, "--users", ",".join(USERS))
    assert said == f"Node {NODE} hosts u0, u1, u2, u3 from the next round on.\n"
    return run


def test_a_network_is_secure_unless_told_otherwise(shell, tmp_path):
    (tmp_path / "items.txt").write_text("a\nb\n")
    said = shell("flower", "create", tmp_path / "run", "--items", tmp_path / "items.txt", "--set", "minimum=4")
    assert "sums over 4 users or more" in said
    assert "forgetting one of them at least 8" in said
    assert RunConfig.load(tmp_path / "run" / "config.toml").server.smallest_sum == 4
    plain = shell("flower", "create", tmp_path / "plain", "--items", tmp_path / "items.txt", "--set", "secure=false")
    assert "the server can tell which items a user has" in plain
    with server(tmp_path / "run") as service:
        service.register("ecdsa-sha2-nistp384 KEY node", NODE, ["u0", "u1"])
        with pytest.raises(ConfigError, match="2 users are registered, but a round needs 4"):
            service.serve(1)


@contextmanager
def server(run: Path) -> Iterator[Service]:
    """The server of a run, its one device in this process."""
    grid = InProcessGrid({NODE: run.parent / "state"})
    service = Service(run, lambda settings, registry: FlowerFleet(grid, settings, registry, 5.0))
    try:
        yield service
    finally:
        service.close()


def test_a_federation_is_begun_joined_trained_and_looked_at(run, shell):
    with server(run) as service:
        service.serve(2)
    figures = shell.json("flower", "status", run)
    assert {name: figures[name] for name in ("rounds", "members", "nodes", "forgotten")} == {
        "rounds": 2,
        "members": 4,
        "nodes": 1,
        "forgotten": 0,
    }
    assert "unconfirmed wipes" in shell("flower", "status", run)


def test_a_request_waits_for_the_server_and_its_receipt_is_shown(run, shell):
    with server(run) as service:
        service.serve(2)
    assert "2 to train or replay" in shell("forget", run, "--yes", "--users", "u1", "--dry-run")
    asked = shell.json("forget", run, "--yes", "--users", "u1")
    assert asked["receipt"] is None
    assert shell.json("flower", "status", run)["waiting"] == [asked["request"]]
    assert "Nobody was forgotten" in shell("receipts", run)
    with server(run) as service:
        service.serve(2)
    (receipt,) = shell.json("receipts", run)["receipts"]
    assert (receipt["request"], receipt["wiped"]) == (asked["request"], 1)
    assert "wiped" in shell("receipts", run)
    assert "was forgotten" in shell("receipts", run, "--check", "u1", "--salt", asked["salt"])
    shell("receipts", run, "--check", "u2", "--salt", asked["salt"], fails=1)
    assert shell.json("flower", "status", run)["members"] == 3


def test_one_can_wait_for_a_request_to_be_carried_out(run, shell):
    with server(run) as service:
        service.serve(1)

    def serve_when_asked() -> None:
        while not ErasureQueue(run).waiting():
            pass
        with server(run) as service:
            service.serve(1)

    thread = threading.Thread(target=serve_when_asked)
    thread.start()
    asked = shell.json("forget", run, "--yes", "--users", "u0,u3", "--wait", 120)
    thread.join()
    assert asked["receipt"]["request"] == asked["request"]
    assert asked["receipt"]["wiped"] == 2


def test_without_a_server_waiting_ends_and_the_request_still_waits(run, shell):
    with server(run) as service:
        service.serve(1)
    shell("forget", run, "--yes", "--users", "u0", "--wait", 0.2, fails=1)
    assert "was not carried out within" in shell.errors
    assert "It still waits" in shell.errors
    assert len(ErasureQueue(run).waiting()) == 1
    assert "is dropped" in shell("forget", run, "--yes", "--abandon")
    assert ErasureQueue(run).waiting() == []
    shell("forget", run, "--yes", "--abandon", fails=1)
    assert "No request was interrupted" in shell.errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--users", "nobody"], "There is no user 'nobody'"),
        (["--users", "u0,u1,u2,u3"], "All 4 users are to be forgotten"),
        (["--users", "u0", "--set", "calibration=server"], "needs whole updates"),
        (["--users", "u0", "--require", 2], "require is 2"),
        (["--resume"], "on a network"),
        (["--malicious"], "no malicious users"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_once(arguments, problem, run, shell):
    with server(run) as service:
        service.serve(1)
    shell("forget", run, "--yes", *arguments, fails=1)
    assert problem in shell.errors
    assert ErasureQueue(run).waiting() == []


@pytest.mark.parametrize("command", [["evaluate"], ["recommend", "--user", "u0"], ["train", "--out"]])
def test_what_needs_the_devices_data_says_that_it_is_not_here(command, run, shell):
    shell(command[0], *command[1:], run, fails=1)
    assert "are on a network: their data is not here" in shell.errors
    assert "fedforget flower status" in shell.errors


def test_a_user_gets_a_new_device(run, shell, tmp_path):
    other = make_node_key(tmp_path / "other-key")
    register = ["flower", "register", run, "--key", other, "--node-id", 7, "--users", "u2"]
    shell(*register, fails=1)
    assert "is registered with another key" in shell.errors
    assert "No node hosts u2 now" in shell("flower", "release", run, "--users", "u2")
    shell(*register)
    assert shell.json("flower", "status", run)["nodes"] == 2


def test_a_device_wipes_by_hand(run, shell, tmp_path):
    federation = shell.json("flower", "status", run)["federation"]
    wipe = ["flower", "wipe", "--state", tmp_path / "state", "--federation", federation, "--users"]
    files = len(list((tmp_path / "state").rglob("*.sqlite")))
    assert shell(*wipe, "u1", "--yes") == "Removed user u1.\n"
    assert shell(*wipe, "u1", "--yes") == "Found nothing about user u1.\n"
    assert len(list((tmp_path / "state").rglob("*.sqlite"))) == files - 1


def test_joining_says_what_is_wrong(run, shell, tmp_path):
    columns = ["--user-column", "who", "--item-column", "what"]
    enrol = ["flower", "enrol", "--state", tmp_path / "state", "--data", tmp_path / "plays.csv", *columns]
    shell(*enrol, "--invitation", run / "invitation.json", "--users", "u0", fails=1)
    assert "is enrolled on this device already" in shell.errors
    shell(*enrol, "--invitation", tmp_path / "none.json", "--users", "u9", fails=1)
    assert "There is no invitation" in shell.errors
    (tmp_path / "foreign.csv").write_text("who,what\nann,a tune nobody knows\nann,song 1\n")
    enrol[enrol.index(tmp_path / "plays.csv")] = tmp_path / "foreign.csv"
    shell(*enrol, "--invitation", run / "invitation.json", "--users", "ann", fails=1)
    assert "'a tune nobody knows' is not in the federation's catalogue" in shell.errors


def test_the_app_carries_no_code(shell, tmp_path):
    assert "flwr run" in shell("flower", "app", tmp_path / "app")
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["components"] == {
        "serverapp": "fedforget.flower.server_app:app",
        "clientapp": "fedforget.flower.client_app:app",
    }


def test_certificates_are_made_for_the_hosts_named(shell, tmp_path):
    said = shell("flower", "certificates", tmp_path / "tls", "--host", "fed.example.org")
    assert "ca.crt goes to every device" in said.replace("\n", " ")
    assert (tmp_path / "tls" / "server.key").stat().st_mode & 0o077 == 0


def test_without_flower_the_way_to_it_is_named(shell, monkeypatch, tmp_path):
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    shell("flower", "app", tmp_path / "app", fails=1)
    assert "Flower is not installed." in shell.errors
    assert "pip install 'fedforget[flower]'" in shell.errors


def test_a_federation_grows_and_its_devices_forget_items(run, shell, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("a new song\nsong 1\n")
    assert shell.json("flower", "add-items", run, "--items", new)["added"] == 1
    assert "2 were in it already" in shell("flower", "add-items", run, "--items", new)
    with server(run) as service:
        service.serve(2)
        assert service.public.items.shape[0] == len(service.catalogue())
        state = ["--state", tmp_path / "state", "--user", "u1"]
        assert shell.json("device", "add", "a new song", *state) == {"user": "u1", "added": 1, "known": 0}
        assert shell.json("device", "forget", "a new song", *state, "--yes") == {
            "user": "u1",
            "removed": 1,
            "requested": 0,
        }
        plays = ff.load(tmp_path / "plays.csv", user="who", item="what").split(0.2, service.config.seed)[0]
        own = plays.item_ids_of("u1")
        assert "Asked to forget 1 interactions of user u1" in shell("device", "forget", own[0], *state, "--yes")
        service.serve(4)
        (receipt,) = service.receipts()
        assert (list(receipt.partial.values()), receipt.wiped) == ([1], 1)
    shell("forget", run, "--yes", "--user", "u1", "--items", own[1], fails=1)
    assert "fedforget device forget" in shell.errors


def test_a_forgotten_user_is_registered_again_only_when_asked_for(run, shell, tmp_path):
    with server(run) as service:
        service.serve(1)
        shell.json("forget", run, "--yes", "--users", "u1")
        service.serve(2)
    register = ["flower", "register", run, "--key", tmp_path / "node-key.pub", "--node-id", NODE, "--users", "u1"]
    shell(*register, fails=1)
    assert "were forgotten before" in shell.errors
    assert "hosts u1" in shell(*register, "--readmit")
    assert shell.json("flower", "status", run)["members"] == 4
