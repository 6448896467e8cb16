"""Wipe counts: how many devices have confirmed that they removed what was forgotten, and whether that can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedforget.attestation.statement import is_count
from fedforget.server.receipt import Receipt


def implausible(receipt: Receipt, before: Mapping[str, Any] | None, *, simulated: bool) -> str:
    """Why the wipe counts of a receipt cannot be; '' if they can. ``before`` is the predicate that was signed last."""
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
