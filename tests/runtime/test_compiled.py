"""Compiled code is cached for these very sources, and only for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from fedforget.runtime.compiled import _CACHE, compiled_before
from fedforget.runtime import randomness
before = compiled_before()
randomness.stream(1, 2, 3, 4)
print(_CACHE, before, compiled_before())
"""


def run(cache: Path, package: Path | None = None) -> list[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_machine_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    folder, before, after = run(tmp_path)
    assert (before, after) == ("False", "True")
    assert Path(folder).parent == tmp_path
    assert run(tmp_path) == [folder, "True", "True"]


def test_other_sources_have_a_cache_of_their_own(tmp_path: Path) -> None:
    import shutil

    import fedforget

    copy = tmp_path / "copy" / "fedforget"
    shutil.copytree(Path(fedforget.__file__).parent, copy)
    same = run(tmp_path / "cache", copy.parent)[0]
    assert Path(same).name == Path(run(tmp_path / "cache")[0]).name
    with (copy / "runtime" / "randomness.py").open("a") as source:
        source.write("\n# changed\n")
    assert run(tmp_path / "cache", copy.parent)[0] != same
