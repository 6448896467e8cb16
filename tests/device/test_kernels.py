"""The building blocks of the compiled kernels, against numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.device.kernels import dot
from fedforget.device.kernels.adam import adam, adam_idle, all_scales
from fedforget.device.kernels.matrix import LANES, aligned, padded_width, product, transpose

sizes = st.integers(1, 70)


def filled(rows: int, columns: int, seed: int) -> np.ndarray:
    matrix = aligned(rows, padded_width(columns))
    matrix[:] = np.random.default_rng(seed).normal(size=matrix.shape)
    return matrix


@given(rows=sizes, columns=sizes)
@settings(deadline=None, max_examples=30)
def test_aligned_rows_start_on_cache_lines_and_at_zero(rows: int, columns: int) -> None:
    matrix = aligned(rows, padded_width(columns))
    assert matrix.shape == (rows, padded_width(columns))
    assert padded_width(columns) % LANES == 0
    assert padded_width(columns) - columns < LANES
    assert all(matrix[row].ctypes.data % 64 == 0 for row in range(rows))
    assert not matrix.any()


@given(m=sizes, width=st.integers(1, 9), n=st.integers(0, 40), transposed=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_product_equals_numpy(m: int, width: int, n: int, transposed: bool, seed: int) -> None:
    a = filled(n, m, seed) if transposed else filled(m, n, seed)
    b, out = filled(max(n, 1), width * LANES, seed + 1), filled(m, width * LANES, seed + 2)
    before = out.copy()
    product(a, transposed, b, out, m, width * LANES, n)
    left = a[:n, :m].T if transposed else a[:m, :n]
    expected = left @ b[:n] if n else before
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_product_leaves_the_rest_of_a_wider_matrix_alone() -> None:
    a, b, out = filled(10, 16, 0), filled(16, 96, 1), filled(12, 96, 2)
    before = out.copy()
    product(a, False, b, out, 10, 80, 16)
    np.testing.assert_allclose(out[:10, :80], a @ b[:, :80], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out[:, 80:], before[:, 80:])
    np.testing.assert_array_equal(out[10:], before[10:])


@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_transpose_equals_numpy(rows: int, columns: int, seed: int) -> None:
    a = filled(rows * LANES, columns * LANES, seed)
    out = aligned(columns * LANES, rows * LANES)
    transpose(a, out, rows * LANES, columns * LANES)
    np.testing.assert_array_equal(out, a.T)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 64, 100])
def test_adam_equals_torch(size: int) -> None:
    """Gradients from tiny to large, zeros among them, over many steps."""
    dice = np.random.default_rng(size)
    start = dice.normal(size=size).astype(np.float32)
    w, m, v = start.copy(), np.zeros(size, np.float32), np.zeros(size, np.float32)
    reference = torch.tensor(start.astype(np.float64), requires_grad=True)
    optimizer = torch.optim.Adam([reference], lr=0.01)
    scales = all_scales(50, 0.01)
    magnitude = 10.0 ** dice.uniform(-7, 1, size)
    for step in range(50):
        g = (dice.normal(size=size) * magnitude * (dice.random(size) > 0.2)).astype(np.float32)
        adam(w, g, m, v, 0, size, 0, scales[step, 0], scales[step, 1])
        reference.grad = torch.tensor(g.astype(np.float64))
        optimizer.step()
    np.testing.assert_allclose(w, reference.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_adam_of_a_zero_gradient_does_not_move() -> None:
    w, g, m, v = np.ones(20, np.float32), np.zeros(20, np.float32), np.zeros(20, np.float32), np.zeros(20, np.float32)
    adam(w, g, m, v, 0, 20, 0, np.float32(0.1), np.float32(30))
    np.testing.assert_array_equal(w, np.ones(20))


def test_adam_touches_its_part_only_and_reads_gradients_from_their_own_place() -> None:
    scales = all_scales(1, 0.01)
    w, m, v = (np.zeros(60, np.float32) for _ in range(3))
    g = np.arange(1, 41, dtype=np.float32)
    adam(w, g, m, v, 20, 40, 5, scales[0, 0], scales[0, 1])
    assert not w[:20].any()
    assert not w[40:].any()
    np.testing.assert_allclose(m[20:40], 0.1 * g[5:25], rtol=1e-6)
    np.testing.assert_allclose(w[20:40], -0.01, rtol=1e-4)


def test_catching_up_after_very_many_steps_stays_finite() -> None:
    scales = all_scales(200_001, 0.01)
    w, m, v = (np.full(70, 1e-3, np.float32) for _ in range(3))
    adam_idle(w, m, v, 0, 70, 200_000, 200_001, scales)
    np.testing.assert_allclose(v, 0.999e-3, rtol=1e-5)
    assert np.isfinite(w).all()


@given(since=st.integers(1, 30), idle=st.integers(1, 40), size=st.integers(1, 140), seed=st.integers(0, 50))
@settings(deadline=None, max_examples=40)
def test_catching_up_equals_steps_without_a_gradient(since: int, idle: int, size: int, seed: int) -> None:
    dice = np.random.default_rng(seed)
    scales = all_scales(80, 0.01)
    w, m, v = dice.normal(size=size), dice.normal(size=size) * 1e-3, dice.random(size) * 1e-6
    at_once = [part.astype(np.float32) for part in (w, m, v)]
    one_by_one = [part.copy() for part in at_once]
    adam_idle(*at_once, 0, size, since, since + idle, scales)
    for step in range(since, since + idle):
        adam(one_by_one[0], np.zeros(size, np.float32), *one_by_one[1:], 0, size, 0, scales[step, 0], scales[step, 1])
    for fast, slow in zip(at_once, one_by_one, strict=True):
        np.testing.assert_allclose(fast, slow, rtol=2e-5, atol=1e-7)


@given(logit=st.floats(-200, 200), target=st.sampled_from([0.0, 1.0]))
@settings(deadline=None)
def test_logit_gradient_is_safe_and_right_for_any_logit(logit: float, target: float) -> None:
    x = torch.tensor(logit, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(x, torch.tensor(target, dtype=torch.float64))
    torch.autograd.backward(expected)
    loss, slope = dot.logit_gradient(np.float32(logit), np.float32(target))
    assert loss == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-6)
    assert x.grad is not None
    assert slope == pytest.approx(float(x.grad), rel=1e-4, abs=1e-6)
