"""StoredReceipts: everything about receipts in a run folder, read at once and without changing anything."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedforget.attestation.canonical_json import read_object
from fedforget.attestation.chain import FOLDER
from fedforget.attestation.envelope import read_bytes
from fedforget.attestation.person import persons_of
from fedforget.attestation.statement import DEFAULTS
from fedforget.errors import ConfigError, ReceiptError, RunError
from fedforget.runtime.database import DAMAGED, database_refused, open_database
from fedforget.server.config_file import on_network, read_config
from fedforget.server.receipt import Receipt


@dataclass(frozen=True)
class StoredReceipts:
    """The receipts in the history by request, in their order; the files in ``receipts/`` and ``receipts/signed/``."""

    federation: str
    simulated: bool
    history: dict[str, str]
    files: dict[str, bytes]
    signed: dict[str, bytes]

    @classmethod
    def read(cls, run: Path) -> StoredReceipts:
        config = read_config(run / "config.toml")
        stored = {path.stem: path for path in _visible(run / "receipts", "*.json") if _is_receipt(path)}
        return cls(
            str(config["id"]),
            not on_network(run),
            _in_history(run / f"trajectory-{config['trajectory']}" / "history.sqlite"),
            {request: read_bytes(path) for request, path in stored.items()},
            {path.name: read_bytes(path) for path in _visible(run / FOLDER, "*") if path.name != "lock"},
        )

    def receipt(self, request: str) -> Receipt:
        """A receipt in the history; ``ReceiptError`` if it is damaged, ``RunError`` if there is none."""
        if request not in self.history:
            raise RunError(f"The history has no receipt of request {request}.", "List them: fedforget receipts RUN")
        try:
            return _read_receipt(self.history[request], request)
        except (ValueError, TypeError, AttributeError, ConfigError) as error:
            reason = error.problem.rstrip(".") if isinstance(error, ConfigError) else str(error)
            raise ReceiptError(
                f"The receipt of request {request} in the history is damaged: {reason}.",
                "Restore the history from a copy of the run.",
            ) from error


def _read_receipt(text: str, request: str) -> Receipt:
    """Read a receipt in the form in which it was written, by this version or by one that had fewer fields."""
    values, receipt = read_object(text), Receipt.from_json(text)
    written = {name: value for name, value in receipt.to_dict().items() if name in values or name not in DEFAULTS}
    if json.dumps(written, indent=2) != text:
        raise ValueError("it is not in the form in which it was written")
    if receipt.request != request:
        raise ValueError(f"it is the one of request {receipt.request}")
    persons_of(receipt)
    return receipt


def _in_history(path: Path) -> dict[str, str]:
    if not path.exists():
        raise RunError(f"{path} is missing.", "Restore it from a copy of the run.")
    with closing(open_database(path, "")) as db:
        try:
            rows = db.execute("SELECT request, receipt FROM receipt ORDER BY rowid").fetchall()
        except DAMAGED as error:
            hint = "Restore it from a copy of the run."
            raise database_refused(path, error) or RunError(f"{path} is damaged: {error}.", hint) from error
    return {str(request): str(receipt) for request, receipt in rows}


def _visible(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder but those that are being written."""
    found = (path for path in folder.glob(pattern) if path.is_file())
    return sorted(path for path in found if not path.name.startswith("."))


def _is_receipt(path: Path) -> bool:
    return not path.name.endswith(".audit.json")
