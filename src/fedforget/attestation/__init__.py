"""Signed receipts: in-toto statements in DSSE envelopes, in a chain that shows every edit."""
