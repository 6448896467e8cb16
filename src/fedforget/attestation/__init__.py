"""Signed receipts: in-toto statements in DSSE envelopes, in a chain that shows every edit.

Needs ``fedforget[service]``.
"""

from fedforget.attestation.chain import ReceiptChain, SignedReceipt
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.person import Person, persons_of
from fedforget.attestation.unsigned import sign_stored
from fedforget.attestation.verify import Finding, Problem, Verification, verify_file, verify_run

__all__ = [
    "Finding",
    "Person",
    "Problem",
    "ReceiptChain",
    "SignedReceipt",
    "SigningKey",
    "Verification",
    "persons_of",
    "sign_stored",
    "verify_file",
    "verify_run",
]
