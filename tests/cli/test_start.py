"""The command line starts without what only some commands need."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_the_command_line_starts_without_torch_and_flower():
    names = ("torch", "flwr", "matplotlib", "securesystemslib", "cryptography")
    code = f"import sys, fedforget.cli.main; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_signed_receipts_are_checked_without_numerical_packages():
    pytest.importorskip("securesystemslib", reason="signed receipts are an extra: pip install 'fedforget[service]'")
    names = ("numpy", "numba", "torch", "polars")
    code = f"import sys, fedforget.attestation; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
