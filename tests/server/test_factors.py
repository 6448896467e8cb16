"""The factors of replayed rounds come back as they were put, from memory and from a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.protocol.factors import Factors
from fedforget.server.factors import FactorsFolder

numbers = arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32))


def bits(factors: Factors | None) -> tuple[bytes, bytes]:
    assert factors is not None
    assert factors.items.dtype == factors.dense.dtype == np.float32
    assert factors.items.ndim == factors.dense.ndim == 1
    return factors.items.tobytes(), factors.dense.tobytes()


@pytest.fixture(params=["in memory", "in a folder"])
def kept(request, tmp_path) -> FactorsFolder:
    return FactorsFolder(tmp_path if request.param == "in a folder" else None)


def made(value: float) -> Factors:
    return Factors(np.full(3, value, np.float32), np.full(2, -value, np.float32))


@given(st.dictionaries(st.integers(0, 2**31), st.builds(Factors, numbers, numbers), max_size=4), st.booleans())
def test_factors_come_back_bit_for_bit(given, on_disk):
    with tempfile.TemporaryDirectory() as folder:
        kept = FactorsFolder(Path(folder) if on_disk else None)
        for round_, factors in given.items():
            kept.put(round_, factors)
        for round_, factors in given.items():
            assert bits(kept.get(round_)) == bits(factors)


def test_a_round_in_which_the_server_did_not_calibrate_has_none(kept):
    kept.put(3, made(1))
    assert [round_ for round_ in range(6) if kept.get(round_) is not None] == [3]


def test_factors_of_the_same_round_are_replaced(kept):
    kept.put(3, made(1))
    kept.put(3, made(2))
    assert bits(kept.get(3)) == bits(made(2))


def test_every_other_number_of_an_array_is_kept_as_what_it_is(kept):
    both = np.arange(12, dtype=np.float32).reshape(6, 2)
    kept.put(1, Factors(both[:, 0], both[:, 1]))
    assert bits(kept.get(1)) == (np.arange(0, 12, 2, np.float32).tobytes(), np.arange(1, 12, 2, np.float32).tobytes())


def test_another_object_finds_what_is_in_the_folder_and_nothing_else_is_there(tmp_path):
    FactorsFolder(tmp_path).put(12, made(1))
    assert bits(FactorsFolder(tmp_path).get(12)) == bits(made(1))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")] == ["factors/000012.safetensors"]


def test_looking_makes_no_folder(tmp_path):
    assert FactorsFolder(tmp_path).get(1) is None
    assert list(tmp_path.iterdir()) == []
