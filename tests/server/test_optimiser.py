"""Server optimisers against PyTorch's, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import ConfigError
from fedforget.models import GlobalParameters, Layout
from fedforget.server.aggregation import Step
from fedforget.server.optimiser import OPTIMISERS, SGD, Adagrad, Adam, Optimiser, Yogi
from fedforget.server.state import ServerState

N_ITEMS, DIM, DENSE = 5, 3, 4
LAYOUT = Layout({"mlp": (DENSE,)})
every_optimiser = pytest.mark.parametrize(
    "optimiser", [SGD(), SGD(momentum=0.5), Adam(), Yogi(), Adagrad()], ids=lambda o: f"{o.name}{o.lr}"
)


def start(seed: int = 0) -> ServerState:
    rng = np.random.default_rng(seed)
    return ServerState(
        GlobalParameters(
            rng.normal(size=(N_ITEMS, DIM)).astype(np.float32), rng.normal(size=DENSE).astype(np.float32), LAYOUT
        )
    )


def steps(n: int, seed: int = 1) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [
        Step(rng.normal(size=(N_ITEMS, DIM)).astype(np.float32), rng.normal(size=DENSE).astype(np.float32))
        for _ in range(n)
    ]


def after(optimiser: Optimiser, given: list[Step], state: ServerState | None = None, first: int = 1) -> ServerState:
    state = state or start()
    for round_, step in enumerate(given, start=first):
        state = optimiser.apply(state, step, round_)
    return state


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(lr=0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
        (SGD(lr=0.3, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.8)),
        (Adam(lr=0.05, beta1=0.9, beta2=0.97), lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.97), eps=1e-12)),
        (Adagrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-12)),
    ],
    ids=["sgd", "momentum", "adam", "adagrad"],
)
def test_an_optimiser_does_what_pytorchs_does_with_the_negative_update_as_gradient(ours, theirs):
    state = start()
    parameters = [torch.tensor(part).requires_grad_() for part in (state.public.items, state.public.dense)]
    reference = theirs(parameters)
    for step in steps(6):
        state = ours.apply(state, step, 1)
        for parameter, update in zip(parameters, (step.items, step.dense), strict=True):
            parameter.grad = torch.tensor(-update)
        reference.step()
    np.testing.assert_allclose(state.public.items, parameters[0].detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.public.dense, parameters[1].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_yogi_grows_its_second_moment_by_no_more_than_the_squared_update():
    """Zaheer et al. 2018, written out for one coordinate."""
    first = second = 0.0
    value = float(start().public.items[0, 0])
    state = start()
    for step in steps(5):
        update = float(step.items[0, 0])
        first = 0.9 * first + 0.1 * update
        second = second - 0.01 * update**2 * np.sign(second - update**2)
        value += 0.01 * first / np.sqrt(second)
        state = Yogi().apply(state, step, 1)
        assert state.public.items[0, 0] == pytest.approx(value, rel=1e-4)


@every_optimiser
def test_nothing_that_is_passed_in_changes(optimiser):
    state = after(optimiser, steps(2))
    before, step = state.checksum, steps(1, seed=9)[0]
    rows = step.items.copy()
    assert optimiser.apply(state, step, 3).checksum != before
    assert state.checksum == before
    assert np.array_equal(step.items, rows)


@pytest.mark.parametrize("optimiser", [Adam(), Yogi(), Adagrad()], ids=lambda o: o.name)
def test_rows_that_nobody_touched_stay_as_they_are_and_so_do_their_moments(optimiser):
    state = after(optimiser, steps(3))
    step = steps(1, seed=7)[0]
    step.items[[1, 3]] = 0
    moved = optimiser.apply(state, step, 4)
    for name in ("first.items", "second.items"):
        assert np.array_equal(moved.moments[name][[1, 3]], state.moments[name][[1, 3]])
    assert np.array_equal(moved.public.items[[1, 3]], state.public.items[[1, 3]])
    assert (moved.public.items[[0, 2, 4]] != state.public.items[[0, 2, 4]]).all()


@given(st.floats(0.01, 100))
def test_an_adaptive_step_does_not_depend_on_the_scale_of_the_updates(scale):
    scaled = [Step(step.items * np.float32(scale), step.dense * np.float32(scale)) for step in steps(4)]
    np.testing.assert_allclose(
        after(Adam(), scaled).public.items, after(Adam(), steps(4)).public.items, rtol=1e-4, atol=1e-5
    )


def test_averaging_keeps_no_state_so_snapshots_hold_the_parameters_alone():
    assert after(SGD(), steps(3)).moments == {}


@every_optimiser
def test_the_learning_rate_falls_over_the_horizon_and_stays_there(optimiser):
    falling = replace(optimiser, lr=0.5, horizon=11, final=0.2)
    rates = [falling.lr_at(round_) for round_ in range(1, 16)]
    assert rates[0] == 0.5
    assert rates[5] == pytest.approx(0.3)
    assert rates[10:] == pytest.approx([0.1] * 5)
    assert replace(falling, horizon=0).lr_at(1000) == 0.5


@every_optimiser
def test_the_schedule_goes_on_where_a_state_was_stored(optimiser, tmp_path):
    falling = replace(optimiser, horizon=6)
    path = tmp_path / "state.safetensors"
    path.write_bytes(after(falling, steps(6)[:3]).to_bytes())
    again = after(falling, steps(6)[3:], ServerState.from_file(path, LAYOUT), first=4)
    assert again.checksum == after(falling, steps(6)).checksum


@every_optimiser
def test_settings_round_trip_through_the_name(optimiser):
    assert OPTIMISERS.build(optimiser.settings()) == optimiser


def test_every_built_in_optimiser_is_tested():
    assert {type(mark) for mark in every_optimiser.args[1]} == {OPTIMISERS.find(name) for name in OPTIMISERS}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SGD(lr=0), "lr is 0"),
        (lambda: Adam(lr=float("nan")), "lr is nan"),
        (lambda: Adam(beta2=1.0), "beta2 is 1.0"),
        (lambda: SGD(momentum=-0.1), "momentum is -0.1"),
        (lambda: SGD(horizon=-1), "horizon is -1"),
        (lambda: SGD(final=0), "final is 0"),
        (lambda: OPTIMISERS.build("adma"), "Did you mean 'adam'"),
        (lambda: OPTIMISERS.build("sgd", beta2=0.5), "does not take"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name_and_value(make, said):
    with pytest.raises(ConfigError, match=said):
        make()
