"""Objection: why a stored receipt must not be signed: it was changed after it was signed, or its wipe counts cannot be.

Wipe counts are the numbers of devices that have confirmed that they removed what was forgotten, or were given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedforget.attestation.chain import SignedReceipt
from fedforget.attestation.statement import is_count
from fedforget.errors import ReceiptError
from fedforget.server.receipt import Receipt


def objection(receipt: Receipt, known: SignedReceipt | None, *, simulated: bool) -> str:
    """Why a stored receipt must not be signed; '' if it may be. ``known`` is an entry that was signed before."""
    if known is not None and not known.is_about(receipt):
        return f"the receipt of request {receipt.request} is not the one that was signed in {known.path.name}"
    reason = _implausible(receipt, None if known is None else known.predicate, simulated=simulated)
    return f"the wipe counts of request {receipt.request} cannot be: {reason}" if reason else ""


def check_signable(receipt: Receipt, known: SignedReceipt | None, run: Path, *, simulated: bool) -> None:
    """Raise an error for a stored receipt that must not be signed."""
    if reason := objection(receipt, known, simulated=simulated):
        hint = f"See: fedforget receipts verify {run}. Restore the history from a copy of the run."
        raise ReceiptError(f"Not signed: {reason}.", hint)


def _implausible(receipt: Receipt, before: Mapping[str, Any] | None, *, simulated: bool) -> str:
    """Why the wipe counts of a receipt cannot be; '' if they can. ``before`` is a predicate that was signed."""
    wiped, to_wipe, given_up = receipt.wiped, receipt.to_wipe, receipt.given_up
    if simulated:
        return "" if (wiped, to_wipe, given_up) == (None, None, 0) else "a simulation has no devices to wipe"
    if not all(value is None or is_count(value) for value in (wiped, to_wipe)) or not is_count(given_up):
        return "they are no whole numbers from 0 on"
    if (wiped or 0) + given_up > receipt.devices:
        return f"{wiped} devices have confirmed and {given_up} were given up, of {receipt.devices}"
    if before is None:
        return ""
    if before.get("to_wipe") not in (None, to_wipe):
        return f"{before['to_wipe']} devices were to wipe when it was signed, and now {to_wipe}"
    for name, value in (("wiped", wiped), ("given_up", given_up)):
        if (value or 0) < (before.get(name) or 0):
            return f"{name} was {before[name]} when it was signed, and now it is {value}"
    return ""
