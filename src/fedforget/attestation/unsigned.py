"""Signing what is stored: the receipts of a run that are not signed yet, or whose wipe counts have changed since."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedforget.attestation.chain import ReceiptChain, SignedReceipt
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.objection import check_signable
from fedforget.attestation.stored import StoredReceipts
from fedforget.errors import ReceiptError


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
            check_signable(receipt, known, run, simulated=stored.simulated)
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
