"""Signing what is stored: the receipts of a run that are not signed yet, or whose wipe counts have changed since."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedforget.attestation.chain import ReceiptChain, SignedReceipt
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.stored import StoredReceipts
from fedforget.attestation.wipes import implausible
from fedforget.errors import ReceiptError
from fedforget.server.receipt import Receipt


def sign_stored(run: Path, key: SigningKey, without: Collection[str] = ()) -> list[SignedReceipt]:
    """Sign the receipts in the history of a run, in their order; returns the new entries of the chain.

    A request that was signed before keeps the names of its persons. Requests in ``without`` are left out. A receipt
    that is damaged, was changed or has wipe counts that cannot be is not signed: an error names it after all others
    are signed.
    """
    stored, chain = StoredReceipts.read(run), ReceiptChain(run)
    newest, signed, errors = chain.newest_of_each(), [], []
    for request in stored.history:
        if request in without:
            continue
        known = newest.get(request)
        try:
            receipt = stored.receipt(request)
            if known is not None and known.says(receipt):
                continue
            _check(receipt, known, run, simulated=stored.simulated)
            entry = chain.append(receipt, None, key, stored.federation)
        except ReceiptError as error:
            errors.append(error)
            continue
        if known is None or entry.number != known.number:
            signed.append(entry)
    if errors:
        hints = dict.fromkeys(error.hint for error in errors)
        raise ReceiptError(" ".join(error.problem for error in errors), " ".join(hints))
    return signed


def _check(receipt: Receipt, known: SignedReceipt | None, run: Path, *, simulated: bool) -> None:
    """Raise an error for a receipt that was changed after it was signed, or has wipe counts that cannot be."""
    hint = f"See: fedforget receipts verify {run}. Restore the history from a copy of the run."
    if known is not None and not known.is_about(receipt):
        raise ReceiptError(
            f"The receipt of request {receipt.request} is not the one that was signed in {known.path.name}.", hint
        )
    if reason := implausible(receipt, None if known is None else known.predicate, simulated=simulated):
        raise ReceiptError(f"The wipe counts of request {receipt.request} cannot be: {reason}.", hint)
