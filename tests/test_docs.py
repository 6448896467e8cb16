"""What the documentation promises is there: links lead somewhere, the README's code runs, commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fedforget as ff
from fedforget.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def test_the_code_of_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On made-up data and for fewer rounds, but line by line as it stands there."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ff, "load", lambda name: ff.synthetic(users=60, items=80, mean_items=15))
    exec(code[1].replace("rounds=100", "rounds=2"), {})
    printed = capsys.readouterr().out
    assert "sampled: HR@10" in printed
    assert (tmp_path / "runs" / "a" / "config.toml").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/deploy.md", "docs/receipts.md"])
def test_the_commands_of_a_page_exist_with_their_options(page: str) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    shell = "".join(text for language, text in blocks if not language)
    lines = re.findall(r"^fedforget [a-z][^\n]*?(?=\s{4}|\n)", shell, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line)[1:]
        command = get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, line
        assert CliRunner().invoke(app, [*shlex.split(line)[1 : -len(words) or None], "--help"]).exit_code == 0
