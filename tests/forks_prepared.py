"""Imported only by the server of forks (``tests.forks``), which is prepared by this."""

from __future__ import annotations

from tests.forks import prepare

prepare()
