"""FlowerCli: the ``flwr`` command, which registers nodes, submits runs and shows their output."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from fedforget.errors import RunError
from fedforget.flower.app import Config
from fedforget.flower.testbed.environment import environment
from fedforget.flower.testbed.processes import cannot_start, plain
from fedforget.runtime.files import make_folder, write_file

CONNECTION = "loop"
COMMAND_SECONDS = 120.0
KNOWN_KEY = "already in use"
_GREETING = f"Using SuperLink: {CONNECTION} ("


class FlowerCli:
    """Commands to one SuperLink. Each takes a second or two, because it starts a new interpreter."""

    def __init__(self, home: Path, address: str, authority: Path) -> None:
        self._home = make_folder(home)
        self._env = environment(home)
        connection = {"address": address, "root-certificates": str(authority.absolute())}
        config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        write_file(home / "config.toml", tomli_w.dumps(config).encode())

    def register(self, public_key: Path) -> int | None:
        """Register a node by its public key and return its id, or None if it is registered already."""
        answer = self._answer("supernode", "register", str(public_key), CONNECTION, expected_error=KNOWN_KEY)
        return None if answer is None else int(answer["node-id"])

    def nodes(self) -> dict[int, str]:
        """Every registered node and its status: registered, online or offline."""
        answer = self._answer("supernode", "list", CONNECTION) or {}
        return {int(node["node-id"]): str(node["status"]) for node in answer["nodes"]}

    def submit(self, app: Path, config: Config) -> int:
        """Start a run of the app and return its id. The configuration is passed in a file: values may be any text."""
        overrides = self._home / "run.toml"
        write_file(overrides, tomli_w.dumps(dict(config)).encode())
        answer = self._answer("run", str(app), CONNECTION, "--run-config", str(overrides)) or {}
        return int(answer["run-id"])

    def unfinished(self) -> list[int]:
        """The runs that have not ended."""
        answer = self._answer("list", CONNECTION) or {}
        return [int(run["run-id"]) for run in answer["runs"] if not str(run["status"]).startswith("finished")]

    def status(self, run_id: int) -> tuple[str, str]:
        """The status of a run, such as ``running`` or ``finished:failed``, and its details."""
        answer = self._answer("list", CONNECTION, "--run-id", str(run_id)) or {}
        run = answer["runs"][0]
        return str(run["status"]), str(run["status-details"] or "")

    def stop(self, run_id: int) -> None:
        """Stop a run unless it has finished."""
        self._answer("stop", str(run_id), CONNECTION, expected_error="finished")

    @contextmanager
    def lines(self, run_id: int, timeout: float) -> Iterator[Iterator[str]]:
        """The output of a run's server app from its first line, until the run ends or the time is over."""
        command = ["flwr", "log", str(run_id), CONNECTION, "--stream"]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            text=True,
            errors="replace",
        ) as child:
            alarm = threading.Timer(timeout, child.kill)
            alarm.daemon = True
            alarm.start()
            try:
                assert child.stdout is not None
                printed = (plain(line.rstrip("\n")) for line in child.stdout)
                yield (line for line in printed if not line.startswith(_GREETING))
            finally:
                alarm.cancel()
                child.kill()

    def _answer(self, *arguments: str, expected_error: str = "") -> dict[str, Any] | None:
        """The JSON that a command prints, or None if it fails with the expected error."""
        output = _output(["flwr", *arguments, "--format", "json"], self._env)
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            answer = {"success": False, "error-message": output}
        if answer.get("success"):
            return answer
        lines = str(answer.get("error-message", "")).strip().splitlines()
        message = "\n".join(line for line in lines if line and not line.startswith(_GREETING))
        if expected_error and expected_error in message.lower():
            return None
        raise RunError(
            f"`flwr {' '.join(arguments[:2])}` failed: {message or 'no answer'}.",
            "See the SuperLink's log, logs/superlink.log.",
        )


def _output(command: list[str], env: dict[str, str]) -> str:
    """What a command prints to its output or, if that is empty, to its error output."""
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {COMMAND_SECONDS:.0f} s"
    except OSError as error:
        raise cannot_start(command, error) from error
    return plain(done.stdout.strip() or done.stderr.strip())
