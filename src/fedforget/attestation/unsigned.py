"""Signing what is stored: the receipts of a run that are not signed yet, or whose wipe counts have changed since."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedforget.attestation.chain import ReceiptChain, SignedReceipt
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.stored import StoredReceipts
from fedforget.errors import ReceiptError


def sign_stored(run: Path, key: SigningKey, without: Collection[str] = ()) -> list[SignedReceipt]:
    """Sign the receipts in the history of a run, in their order; returns the new entries of the chain.

    A request that was signed before keeps the names of its persons. A receipt that was changed is refused. Requests in
    ``without`` are left out.
    """
    stored, chain, signed = StoredReceipts.read(run), ReceiptChain(run), []
    newest = chain.newest_of_each()
    for request in stored.history:
        if request in without:
            continue
        try:
            receipt = stored.receipt(request)
        except ValueError as error:
            raise ReceiptError(f"Request {request}: {error}.", "Restore the history from a copy of the run.") from error
        known = newest.get(request)
        if known is not None and not known.is_about(receipt):
            raise ReceiptError(
                f"The receipt of request {request} is not the one that was signed in {known.path.name}.",
                f"See: fedforget receipts verify {run}. Restore the history from a copy of the run.",
            )
        if known is not None and known.says(receipt):
            continue
        entry = chain.append(receipt, None, key, stored.federation)
        if known is None or entry.number != known.number:
            signed.append(entry)
    return signed
