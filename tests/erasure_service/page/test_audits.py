"""The newest audit of a run's method: what it was made on is said, and one on the run's own data comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.erasure_service.page.audits import Audit, NewestAudit

DATA = ff.synthetic(users=20, items=30, mean_items=6, seed=1)
METHOD = {"name": "fru", "stride": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited") / "run"
    ff.Federation(DATA, model=ff.MF(dim=4), path=folder)
    return folder


def write(folder: Path, run: Path, day: int, digest: str, **changes: Any) -> None:
    config = {**ff.Federation.open(run).config.to_dict(), **changes}
    details = {
        "settings": {"config": config, "methods": {"none": None, "fru": METHOD}, "rounds": 100},
        "data": {"source": "ml-100k", "digest": digest, "users": 943, "items": 1682},
        "verdicts": {"fru": f"verdict of day {day}"},
        "finished": f"2026-11-{day:02}T12:00:00+00:00",
    }
    folder.mkdir(parents=True)
    (folder / "details.json").write_text(json.dumps(details))


def newest(run: Path, audits: Path, method: dict[str, Any] = METHOD) -> Audit | None:
    return NewestAudit(run, [audits], method).wait()


def test_an_audit_of_the_runs_data_comes_before_a_newer_one_of_other_data(run: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", run, 9, "0" * 64)
    other = newest(run, tmp_path)
    assert other is not None
    assert other.name == "other"
    assert other.differs == ("on other data (ml-100k, 943 users, 1682 items)",)
    write(tmp_path / "own", run, 3, DATA.digest)
    write(tmp_path / "own-settings", run, 5, DATA.digest, model={"name": "ials"})
    own = newest(run, tmp_path)
    assert own is not None
    assert (own.name, own.differs) == ("own", ())
    assert newest(run, tmp_path, {"name": "retrain"}) is None


def test_an_audit_with_other_settings_is_better_than_none(run: Path, tmp_path: Path) -> None:
    write(tmp_path / "own-settings", run, 5, DATA.digest, model={"name": "ials"})
    audit = newest(run, tmp_path)
    assert audit is not None
    assert audit.differs == ("with other settings",)


def test_data_that_changed_since_by_an_erasure_is_named_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ff.Federation(DATA, model=ff.MF(dim=4), path=run, source={"name": "/home/someone/ml-100k"})
    write(tmp_path / "other", run, 9, DATA.digest[::-1])
    audit = newest(run, tmp_path)
    assert audit is not None
    assert audit.differs == ("on data of the same name, in another state or split (ml-100k, 943 users, 1682 items)",)


def test_what_is_no_audit_is_left_out(run: Path, tmp_path: Path) -> None:
    for name, content in {"text": "{", "list": "[]", "old": json.dumps({"verdicts": {}})}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "details.json").write_text(content)
    assert newest(run, tmp_path) is None
