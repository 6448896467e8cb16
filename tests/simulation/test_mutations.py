"""Damage to any file of a run: the result is the same, or somebody is told by the name of the file; never neither."""

from __future__ import annotations

import random
import secrets
import shutil
import warnings
from collections import Counter
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.errors import FedForgetError, RunWarning
from tests.mutations import mutate
from tests.small_federations import named

DATA, TEST = named(ff.synthetic(users=12, items=30, mean_items=8, seed=2)).split(0.2, 0)
USERS = DATA.user_ids.tolist()
MUTATIONS = 300
SEED = 0


def build(path: Path, store: str) -> None:
    server = ff.ServerConfig(fraction=0.5, optimiser=ff.Adam(lr=0.05))
    log = ff.Log(store=store)
    fed = ff.Federation(DATA, ff.MF(dim=4), test=TEST, path=path, server=server, log=log, training={"epochs": 2})
    fed.fit(3)
    fed.forget([USERS[0]], ff.FRU())
    fed.add(ff.Interactions.from_pairs([USERS[1], "new"], [1000, 1000]))
    fed.fit(5)
    fed.close()


def outcome(path: Path) -> str:
    """What comes of a run: the digests of its models after each of the things that can be done with it."""
    fed = ff.Federation.open(path)
    try:
        digests = [fed.public.digest, str(fed.recommend(USERS[2], 5))]
        fed.fit(more=1)
        digests.append(fed.public.digest)
        fed.forget([USERS[3]], ff.FRU(replay="logged"))
        digests += [fed.public.digest, str(len(fed.receipts()))]
        if missing := fed.receipts()[-1].missing:
            warnings.warn(f"the receipt says {missing}", RunWarning, stacklevel=1)
        return " ".join(digests)
    finally:
        fed.close()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_no_damage_changes_a_result_silently(store, tmp_path, monkeypatch, record_property):
    names = random.Random(0)  # ids and salts are the same every time, so that the same bytes are hit
    monkeypatch.setattr(secrets, "token_hex", lambda size: names.randbytes(size).hex())
    base = tmp_path / "base"
    build(base, store)
    shutil.copytree(base, tmp_path / "spared")
    expected = outcome(tmp_path / "spared")
    dice, counts = random.Random(f"{store}{SEED}"), Counter[str]()
    wrong: list[str] = []
    files = sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file() and path.name != "lock")
    for number in range(MUTATIONS):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(base, run)
        file = dice.choice(files)
        what = f"{number}: {mutate(run / file, dice)} {file}"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = outcome(run)
            except FedForgetError as error:
                text = f"{error.problem} {error.hint}"
                counts["named" if file.name in text or str(run) in text else "unnamed"] += 1
                if not (file.name in text or str(run) in text):
                    wrong.append(f"{what}: unnamed: {text}")
                continue
            except Exception as error:
                counts["raw"] += 1
                wrong.append(f"{what}: {type(error).__name__}: {error}")
                continue
        if found == expected:
            counts["same"] += 1
        elif any(issubclass(each.category, RunWarning) for each in told):
            counts["announced"] += 1
        else:
            counts["silent"] += 1
            wrong.append(f"{what}: silent")
    record_property("outcomes", dict(counts))
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
