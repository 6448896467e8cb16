"""``metrics.jsonl``: one line a round, for people and plots. It is derived from the history."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedforget.runtime.files import cannot_write, make_private, write_file


class MetricsFile:
    """Lines of JSON that have at least a ``round``; nothing is stored when there is no path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        try:
            make_private(self.path)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def read(self) -> list[dict[str, Any]]:
        """All lines that can be read; a line that a crash cut short, or a damaged one, is left out."""
        if self.path is None or not self.path.exists():
            return []
        lines = []
        for text in self.path.read_bytes().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(text))
        return [line for line in lines if isinstance(line, dict) and "round" in line]

    def drop_after(self, round_: int) -> None:
        """Remove the lines of later rounds, and incomplete lines."""
        if self.path is not None and self.path.exists():
            kept = [json.dumps(line) + "\n" for line in self.read() if line["round"] <= round_]
            write_file(self.path, "".join(kept).encode())
