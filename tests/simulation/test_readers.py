"""Readers in other processes while one trains, forgets and adds: right results, or an error that says what happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedforget as ff

SETTINGS = {"training": {"epochs": 1}, "server": ff.ServerConfig(fraction=0.3, snapshot_every=3)}
SECONDS = 5.0
#: What a reader may be told when the run has changed since it was opened.
TOLD = ("Another process", "were forgotten after this federation was opened")

WRITE = """
import sys, time, fedforget as ff
fed, end, done = ff.Federation.open(sys.argv[1]), time.time() + float(sys.argv[2]), 0
while time.time() < end:
    fed.fit(more=1)
    done += 1
    if done % 4 == 0 and len(fed.members) > 8:
        others = fed.members[8:]  # the first ones stay: users who are added have no test part
        fed.forget([others[done % len(others)]], ff.FRU())
    if done % 7 == 0:
        fed.add(ff.Interactions.from_pairs([fed.members[0], done + 1000], [5, 6]))
print(done)
"""
READ = """
import json, sys, time, warnings, collections, fedforget as ff
found, end, turn = collections.Counter(), time.time() + float(sys.argv[2]), 0
actions = [
    lambda fed: fed.evaluate(), lambda fed: fed.recommend(fed.members[0], 3), lambda fed: fed.receipts(),
    lambda fed: fed.history.snapshot(fed.rounds), lambda fed: fed.estimate([fed.members[1]]),
]
while time.time() < end:
    turn += 1
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            fed = ff.Federation.open(sys.argv[1])
            try:
                actions[turn % len(actions)](fed)
            finally:
                fed.close()
            found["ok"] += 1
        except Exception as error:
            found[f"{type(error).__name__}: {error}"] += 1
    found.update(f"warning: {each.message}" for each in told)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_readers_get_right_results_or_are_told_of_the_other_process(store: str, tmp_path: Path) -> None:
    data, test = ff.synthetic(users=40, items=60, mean_items=12, seed=2).split(0.2, 0)
    path = tmp_path / "run"
    ff.Federation(data, ff.MF(dim=4), test=test, path=path, log=ff.Log(store=store), **SETTINGS).fit(3).close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, str(SECONDS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for code in (WRITE, READ, READ)
    ]
    printed = [process.communicate(timeout=90) for process in processes]
    assert all(process.returncode == 0 for process in processes), printed
    assert int(printed[0][0]) > 3
    for out, _ in printed[1:]:
        found = json.loads(out)
        print(*(f"{count} {text}" for text, count in found.items()), sep="\n")
        assert found.pop("ok") > 0
        assert [text for text in found if not any(part in text for part in TOLD)] == []
