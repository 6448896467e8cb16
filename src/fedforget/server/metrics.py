"""``metrics.jsonl``: one line a round, for people and plots. The history decides; this file follows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedforget.runtime.files import cannot_write, write_file


class MetricsFile:
    """Appends lines with at least a ``round``; keeps nothing when there is no path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add one line."""
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def read(self) -> list[dict[str, Any]]:
        """Every whole line; one that a crash cut short is left out."""
        if self.path is None or not self.path.exists():
            return []
        lines = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and "round" in line:
                lines.append(line)
        return lines

    def drop_after(self, round_: int) -> None:
        """Keep only the whole lines up to a round."""
        if self.path is not None and self.path.exists():
            kept = [json.dumps(line) + "\n" for line in self.read() if line["round"] <= round_]
            write_file(self.path, "".join(kept).encode())
