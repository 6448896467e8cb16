"""``python -m fedforget``."""

from fedforget.cli.main import run

run()
