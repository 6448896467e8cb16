"""The command line starts without what only some commands need."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_starts_without_torch_and_flower():
    names = ("torch", "flwr", "matplotlib", "securesystemslib", "cryptography")
    code = f"import sys, fedforget.cli.main; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
