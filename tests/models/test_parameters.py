"""Parameters: views that cover a flat vector exactly, and a public part that survives a file bit for bit."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.models import NCF, GlobalParameters, Layout
from fedforget.server.state import ServerState

SHAPES = st.dictionaries(
    st.text("abc.", min_size=1, max_size=3), st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5
)


@st.composite
def publics(draw) -> GlobalParameters:
    """Parameters made of any bits at all: NaN of every kind, infinities, both zeros, denormals."""
    layout = Layout(draw(SHAPES))
    shapes = draw(st.tuples(st.integers(0, 5), st.integers(1, 4))), (layout.size,)
    items, dense = (draw(arrays.arrays(np.uint32, shape)).view(np.float32) for shape in shapes)
    return GlobalParameters(items, dense, layout)


@given(SHAPES)
def test_views_cover_the_vector_exactly_once_in_order(shapes):
    layout = Layout(shapes)
    flat = np.arange(layout.size)
    views = layout.views(flat)
    assert list(views) == list(shapes)
    assert {name: view.shape for name, view in views.items()} == shapes
    assert [value for view in views.values() for value in view.ravel().tolist()] == flat.tolist()
    assert layout.size == sum(math.prod(shape) for shape in shapes.values())


@given(SHAPES, st.lists(st.integers(0, 3), max_size=2).map(tuple), st.sampled_from([np.zeros, torch.zeros]))
def test_views_write_through_in_numpy_and_torch_whatever_the_leading_axes(shapes, leading, zeros):
    layout = Layout(shapes)
    flat = zeros((*leading, layout.size))
    for number, (name, shape) in enumerate(shapes.items(), start=1):
        view = layout.view(flat, name)
        assert tuple(view.shape) == leading + shape
        view += number
    expected = np.repeat(np.arange(1, len(shapes) + 1), [math.prod(shape) for shape in shapes.values()])
    assert np.array_equal(np.asarray(flat), np.broadcast_to(expected, flat.shape))


def test_gradients_flow_back_through_views():
    layout = Layout({"a": (2,), "b": (1, 3)})
    flat = torch.zeros(4, 5, requires_grad=True)
    (2 * layout.view(flat, "a").sum() + 3 * layout.view(flat, "b").sum()).backward()
    assert torch.equal(flat.grad, torch.tensor([2.0, 2.0, 3.0, 3.0, 3.0]).expand(4, -1))


@given(publics())
def test_public_parameters_survive_a_file_bit_for_bit(public):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "public.safetensors"
        path.write_bytes(ServerState(public).to_bytes())
        again = ServerState.from_file(path, public.layout).public
    assert again.items.shape == public.items.shape
    assert again.items.dtype == again.dense.dtype == np.float32
    assert again.items.tobytes() == public.items.tobytes()
    assert again.dense.tobytes() == public.dense.tobytes()
    assert again.digest == public.digest


@given(publics(), st.data())
def test_the_digest_changes_with_any_bit(public, data):
    parts = [part for part in ("items", "dense") if getattr(public, part).size]
    assume(parts)
    changed = public.copy()
    bits = getattr(changed, data.draw(st.sampled_from(parts))).reshape(-1).view(np.uint32)
    bits[data.draw(st.integers(0, bits.size - 1))] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    assert changed.digest != public.digest
    assert public.copy().digest == public.digest


def test_a_copy_is_independent_and_names_are_views():
    public = NCF(dim=2, hidden=(3, 2, 2)).init_public(4, seed=0)
    copy, before = public.copy(), public.digest
    copy.items[0, 0] += 1
    copy.named()["out.bias"][0] = 9
    assert public.digest == before
    assert copy.dense[-1] == 9
    assert public.named()["items"] is public.items


def test_whole_numbers_in_a_file_do_not_pass_for_the_floats_with_the_same_bits(tmp_path):
    public = GlobalParameters(np.ones((2, 3), np.float32), np.zeros(0, np.float32), Layout({}))
    path = tmp_path / "public.safetensors"
    path.write_bytes(ServerState(public).to_bytes().replace(b'"F32"', b'"I32"'))
    assert ServerState.from_file(path, public.layout).public.digest != public.digest


def test_a_file_without_one_of_the_tensors_is_refused(tmp_path):
    public = GlobalParameters(np.ones((2, 3), np.float32), np.zeros(2, np.float32), Layout({"a": (2,)}))
    path = tmp_path / "public.safetensors"
    path.write_bytes(ServerState(public).to_bytes())
    with pytest.raises(KeyError, match="b"):
        ServerState.from_file(path, Layout({"b": (2,)}))
