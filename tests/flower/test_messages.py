"""Messages: what is packed comes back over the wire, and whatever else arrives is refused with a reason."""

from __future__ import annotations

import io
import math
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedforget.flower.arrays import MessageError, pack, unpack
from fedforget.flower.messages import (
    CONTRADICTION,
    LONGEST_VALUE,
    MOST_ROUNDS,
    pack_order,
    pack_results,
    unpack_order,
    unpack_public,
    unpack_results,
    unpack_task,
    unpack_wipes,
)
from fedforget.models import MF, NCF
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.order import ORIGIN, Order
from fedforget.protocol.tasks import Recall, RemoveItems, Replay, Train
from fedforget.protocol.terms import LAST_ROUND
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId

DIM, DENSE = 2, 3
ROUND = 4
HEAD = "{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}\n"


def sent(content: RecordDict) -> RecordDict:
    """A message as it is at the other end of Flower's wire."""
    contents = {name: part.deflate() for name, part in get_all_nested_objects(content).items()}
    arrived = inflate_object_from_contents(content.object_id, contents)
    assert isinstance(arrived, RecordDict)
    return arrived


def bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()


def bits_of_factors(factors: Mapping[tuple[str, int], Factors]) -> dict[tuple[str, int], Any]:
    return {place: (bits(both.items), bits(both.dense)) for place, both in factors.items()}


def bits_of_updates(updates: Updates | None) -> list[Any] | None:
    if updates is None:
        return None
    parts = (updates.ptr, updates.items, updates.rows, updates.dense, updates.sizes, updates.losses)
    return [list(updates.users), *map(bits, parts)]


# What is packed comes back

whole = st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(codec="utf-8"), max_size=12)
people = st.one_of(st.lists(whole, unique=True, max_size=6), st.lists(words, unique=True, max_size=6))
numbers = arrays.arrays(np.float32, st.integers(0, 9), elements=st.floats(width=32))


@st.composite
def orders(draw: st.DrawFn) -> Order:
    users = draw(people)
    names = draw(st.lists(words, unique=True, min_size=1, max_size=4))
    places = st.tuples(words, st.integers(0, 2**31))

    def rounds() -> tuple[int, ...]:
        return tuple(draw(st.lists(whole, min_size=len(users), max_size=len(users))))

    numbers_of_rounds = st.integers(0, LAST_ROUND)
    past = draw(st.lists(st.sets(numbers_of_rounds, min_size=1, max_size=3), min_size=len(users), max_size=len(users)))
    first = min((min(own) for own in past), default=draw(numbers_of_rounds))
    return Order(
        draw(words), draw(whole), tuple((name, draw(whole)) for name in names), draw(st.sampled_from(names)),
        first, tuple(users), rounds(), rounds(),
        draw(st.dictionaries(places, st.builds(Factors, numbers, numbers), max_size=3)),
        draw(st.sampled_from([(), tuple(tuple(sorted(own)) for own in past)])),
        *draw(st.sampled_from([((), ()), (((0, 5), (3, 9)), ("a", "b")), (((0, 5), (3, 6), (4, 9)), (7, 8, 9))])),
        draw(st.sampled_from([(), rounds()])), draw(st.sampled_from([(), rounds()])),
    )  # fmt: skip


@st.composite
def updates_of(draw: st.DrawFn, users: Sequence[UserId]) -> Updates:
    counts = [draw(st.integers(0, 4)) for _ in users]
    total = sum(counts)

    def filled(kind: type, *shape: int, **options: Any) -> np.ndarray:
        return draw(arrays.arrays(kind, shape, **options))

    return Updates(
        list(users), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), filled(np.int32, total),
        filled(np.float32, total, DIM), filled(np.float32, len(users), DENSE), filled(np.int64, len(users)),
        filled(np.float32, len(users)),
    )  # fmt: skip


@st.composite
def results(draw: st.DrawFn) -> CohortResult:
    users = draw(people)
    trained = [user for user in users if draw(st.booleans())]
    failures = {user: draw(st.sampled_from(sorted(reasons.FROM_DEVICES))) for user in users if user not in trained}
    stored = draw(updates_of([user for user in trained if draw(st.booleans())])) if draw(st.booleans()) else None
    return CohortResult(draw(updates_of(trained)), failures, stored, draw(st.floats(0, 1e6)))


@given(orders())
def test_an_order_comes_back_as_it_was(order):
    back = unpack_order(sent(pack_order(order)))
    assert replace(back, factors={}) == replace(order, factors={})
    assert bits_of_factors(back.factors) == bits_of_factors(order.factors)
    assert [type(user) for user in back.users] == [type(user) for user in order.users]


@pytest.mark.parametrize("model", [MF(dim=4), NCF(dim=4)], ids=["mf", "ncf"])
def test_public_parameters_come_back_bit_for_bit(model):
    public = model.init_public(6, seed=1)
    items, dense = unpack_public(sent(pack_order(order(), None, public)))
    assert bits(items) == bits(public.items)
    assert bits(dense) == bits(public.dense)
    items[0] = 7.0


def test_an_order_without_public_parameters_has_none_to_unpack():
    with pytest.raises(MessageError, match="the message has no public"):
        unpack_public(sent(pack_order(order())))


replays = st.builds(
    Replay,
    st.integers(1, 100),
    st.sampled_from(["fresh", "logged"]),
    st.sampled_from(["rows", "all", "none"]),
    st.booleans(),
    st.floats(0.01, 100),
)
tasks = st.one_of(replays, st.builds(Train, st.integers(1, 100)), st.just(Recall()), st.just(RemoveItems()))


@given(tasks)
def test_a_task_comes_back_as_it_was(task):
    assert unpack_task(sent(pack_order(order(), task))) == task


@given(results())
def test_results_come_back_as_they_were(given):
    asked = [*given.updates.users, *given.failures]
    back = unpack_results(
        sent(pack_results({ROUND: given})), {ROUND: asked}, DIM, DENSE, stored=given.stored is not None
    )[ROUND]
    assert bits_of_updates(back.updates) == bits_of_updates(given.updates)
    assert bits_of_updates(back.stored) == bits_of_updates(given.stored)
    assert back.failures == given.failures
    assert back.seconds == given.seconds


def test_the_result_of_a_device_on_which_nobody_is_enrolled_comes_back():
    given = CohortResult(Updates.none(), {"ann": reasons.NOT_ENROLLED})
    back = unpack_results(sent(pack_results({ROUND: given})), {ROUND: ["ann"]}, DIM, DENSE, stored=False)[ROUND]
    assert back.failures == {"ann": reasons.NOT_ENROLLED}
    assert back.updates.fits(DIM, DENSE)


def test_orders_to_wipe_come_back_in_pairs():
    task = ConfigRecord({"pseudonyms": ["aa", "bb"], "salts": ["01", "02"], "federation": "f0", "number": 7})
    content = sent(RecordDict({"task": task}))
    assert unpack_wipes(content) == ("f0", 7, [("aa", "01"), ("bb", "02")])
    task["salts"] = ["01"]
    with pytest.raises(MessageError, match=CONTRADICTION):
        unpack_wipes(sent(RecordDict({"task": task})))


# Arrays that lie


def npy(head: str, body: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A .npy file made by hand."""
    length = len(head).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + length + head.encode("latin1") + body


def saved(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def of_bytes(data: bytes, name: str = "rows") -> ArrayRecord:
    """What a device can put into a message, whatever the record beside it says."""
    return ArrayRecord({name: Array(dtype="float32", shape=(2, 3), stype="numpy.ndarray", data=data)})


def read(data: bytes, dims: int = 2) -> np.ndarray:
    return unpack(of_bytes(data), "rows", np.float32, dims)


def test_an_array_made_by_hand_is_read_by_what_its_head_says():
    body = np.arange(4, dtype="<f4").tobytes()
    assert read(npy(HEAD.format("(2, 2)"), body)).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3), kind) for kind in ("<f8", "<f2", ">f4", "<i4", "<u4", "<c8", "S4", "U1", "?", "V4", "M8[s]")]
    + [np.zeros((2, 3), [("a", "<f4")])],
    ids=lambda array: str(array.dtype),
)
def test_numbers_of_another_kind_are_refused(array):
    with pytest.raises(MessageError, match=r"its rows (are .* in 2 dimensions|cannot be read)"):
        read(saved(array))


@pytest.mark.parametrize("shape", [(), (6,), (2, 3, 1), (1,) * 30])
def test_another_number_of_dimensions_is_refused(shape):
    with pytest.raises(MessageError, match=f"its rows are <f4 in {len(shape)} dimensions"):
        read(saved(np.zeros(shape, np.float32)))


@pytest.mark.parametrize("shape", [(10**12,), (2**62,), (2**64,), (7,), (5,), (0,)])
def test_a_head_that_promises_other_than_came_is_refused_before_anything_is_allocated(shape):
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=r"its rows (do not have the declared size|cannot be read)"):
            read(npy(HEAD.format(shape), bytes(24)), dims=1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


class Trap:
    """Whoever unpickles it has run someone else's code."""

    def __reduce__(self):
        return pytest.fail, ("a device's pickle was opened",)


def test_pickled_objects_are_refused_unopened():
    trapped = saved(np.array([[Trap()]], object))
    with pytest.raises(MessageError, match="its rows cannot be read"):
        read(trapped)
    with pytest.raises(MessageError):
        read(npy(HEAD.format("(1, 1)"), trapped))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x93NUMPY", saved(np.zeros((2, 3)))[:30], b"PK\x03\x04" + bytes(40), bytes(100), npy(""), npy("5"),
     npy("[]"), npy("{}"), npy("open('x')"), npy("{'descr': '<f4', 'shape': (1,)}"), npy(HEAD.format("None")),
     npy(HEAD.format("(1.0, 1)")), npy(HEAD.format("(1, 1)").replace("<f4", "nothing")), npy(" " * 20_000 + "{}")],
    ids=range(15),
)  # fmt: skip
def test_what_is_not_an_array_at_all_is_refused(data):
    with pytest.raises(MessageError, match="its rows cannot be read"):
        read(data)


#: Heads at which numpy raises, or warns of, something else than a ValueError.
TRICKY = {
    "digits without end": npy(HEAD.format("(" + "1" * 60 + "X")),
    "commas without end": npy(HEAD.format("(" + "1, " * 4000 + "X")),
    "a version that does not exist": npy(HEAD.format("(1, 1)"), bytes(4), (9, 9)),
    "two negative lengths": npy(HEAD.format("(-1, -1)"), bytes(4)),
    "none of too many": npy(HEAD.format(f"(0, {2**62})")),
    "none of far too many": npy(HEAD.format(f"(0, {10**30})")),
    "a length that is true": npy(HEAD.format("(True, 1)"), bytes(4)),
    "a bracket without end": npy("{'descr': ("),
    "nine thousand brackets": npy("(" * 9000),
    "nine thousand signs": npy("-" * 9000 + "1"),
    "a number as of Python 2": npy(HEAD.format("(1L, 1L)"), bytes(4)),
    "a kind of nothing": npy("{'descr': (), 'fortran_order': False, 'shape': (1, 1)}", bytes(4)),
    "a key that cannot be one": npy("{[]: 1}"),
    "keys that cannot be sorted": npy("{'descr': '<f4', 'fortran_order': False, 5: (1, 1)}", bytes(4)),
}


@pytest.mark.parametrize("data", TRICKY.values(), ids=TRICKY)
def test_a_head_made_to_trip_the_reader_is_refused(data):
    with pytest.raises(MessageError, match="its rows"):
        read(data)


def test_an_array_with_its_columns_first_is_refused():
    with pytest.raises(MessageError, match="its rows cannot be read"):
        read(saved(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))))


@given(st.data())
def test_whatever_bytes_arrive_are_an_array_or_refused(data):
    raw = bytearray(saved(np.arange(6, dtype=np.float32).reshape(2, 3)))
    places = st.integers(0, len(raw) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        raw[place] = byte
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    with suppress(MessageError):
        rows = read(bytes(raw))
        assert (rows.dtype, rows.ndim) == (np.float32, 2)


def test_an_array_that_is_not_there_is_named():
    with pytest.raises(MessageError, match="the message has no losses"):
        unpack(of_bytes(b""), "losses", np.float32, 1)


# Orders that lie


def order(**changes: Any) -> Order:
    lineage = (*ORIGIN, ("a", 3))
    return replace(Order("f0", 7, lineage, "origin", 4, ("ann", "bob"), (2, 3), (2, 5), {}), **changes)


def tampered(content: RecordDict, record: str, **changes: Any) -> RecordDict:
    """A message with some values of one of its config records replaced, or removed if None."""
    values = {**content.config_records[record], **changes}
    content[record] = ConfigRecord({name: value for name, value in values.items() if value is not None})
    return sent(content)


#: What an order says, and what each of its parts is made of.
SINGLE = {"federation": str, "number": int, "in_service": str, "round": int}
LISTS = {
    "trajectories": [str], "branches": [int], "users": [str, int], "since": [int], "served": [int],
    "calibrated_on": [str], "calibrated": [int], "rounds": [int], "rounds_each": [int],
}  # fmt: skip
VALUES = [1.5, True, b"x", "text", 5]
WRONG = [(name, value) for name, kind in SINGLE.items() for value in VALUES if type(value) is not kind]
WRONG += [(name, [value]) for name in SINGLE for value in VALUES]
WRONG += [(name, [value]) for name, kinds in LISTS.items() for value in VALUES if type(value) not in kinds]
WRONG += [(name, value) for name in LISTS for value in VALUES]


@pytest.mark.parametrize("name", [*SINGLE, *LISTS])
def test_an_order_that_lacks_something_is_refused_by_its_name(name):
    with pytest.raises(MessageError, match=f"its {name} is None"):
        unpack_order(tampered(pack_order(order()), "order", **{name: None}))


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_order_with_a_value_of_the_wrong_type_is_refused_by_its_name(name, value):
    with pytest.raises(MessageError, match=f"its {name} is"):
        unpack_order(tampered(pack_order(order()), "order", **{name: value}))


@pytest.mark.parametrize(
    "changes",
    [{"trajectories": [], "branches": []}, {"trajectories": ["origin"]}, {"branches": [0, 3, 5]}, {"since": [2]},
     {"served": []}, {"users": []}, {"users": [1, 2, 3]}, {"in_service": "b"},
     {"rounds": [4, 5]}, {"rounds": [5, 5], "rounds_each": [1, 1]},
     {"rounds": [4], "rounds_each": [1]}, {"rounds": [4, 3], "rounds_each": [1, 1]},
     {"rounds": [4, 4, 6], "rounds_each": [2, 1]}, {"rounds": [6, 5, 4], "rounds_each": [2, 1]},
     {"rounds": [4], "rounds_each": [1, 0]}, {"rounds": [4, 5], "rounds_each": [3, -1]}],
    ids=str,
)  # fmt: skip
def test_an_order_that_contradicts_itself_is_refused(changes):
    with pytest.raises(MessageError, match=CONTRADICTION):
        unpack_order(tampered(pack_order(order()), "order", **changes))


@pytest.mark.parametrize("rounds", [((4, 6), (4,)), ((4,), (4,)), ()], ids=str)
def test_the_rounds_of_an_order_come_back_as_they_were(rounds):
    given = order(rounds=rounds)
    assert unpack_order(sent(pack_order(given))) == given


def test_an_order_for_too_many_rounds_is_refused():
    content = pack_order(order(rounds=(tuple(range(4, 5 + MOST_ROUNDS)), (4,))))
    with pytest.raises(MessageError, match=CONTRADICTION):
        unpack_order(sent(content))


FACTORS = Factors(np.ones(2, np.float32), np.ones(1, np.float32))


def test_an_order_that_names_factors_it_does_not_have_is_refused():
    with pytest.raises(MessageError, match="the message has no factors"):
        unpack_order(tampered(pack_order(order()), "order", calibrated_on=["a"], calibrated=[2]))
    content = pack_order(order(factors={("a", 3): FACTORS}))
    with pytest.raises(MessageError, match="the message has no items-a-2"):
        unpack_order(tampered(content, "order", calibrated=[2]))


@pytest.mark.parametrize("changes", [{"calibrated_on": ["a", "a"]}, {"calibrated": []}], ids=str)
def test_an_order_that_does_not_say_which_rounds_its_factors_are_of_contradicts_itself(changes):
    content = pack_order(order(factors={("a", 3): FACTORS}))
    with pytest.raises(MessageError, match=CONTRADICTION):
        unpack_order(tampered(content, "order", **changes))


@pytest.mark.parametrize("record", [MetricRecord({"number": 1}), ArrayRecord(), None], ids=["metric", "array", "none"])
def test_a_message_without_an_order_is_refused(record):
    content = RecordDict({} if record is None else {"order": record})
    with pytest.raises(MessageError, match="the message has no order"):
        unpack_order(sent(content))


@pytest.mark.parametrize(
    ("task", "name", "value"),
    [
        *[(Replay(3), name, value) for name, value in (("epochs", 2.0), ("epochs", True), ("epochs", None))],
        *[(Replay(3), name, value) for name, value in (("items", 1), ("stored", 1), ("parts", None), ("parts", 1))],
        *[(Replay(3), "private_scale", value) for value in (1, "1", None)],
        *[(Train(3), "epochs", value) for value in (2.0, True, None)],
        *[(Train(3), "name", value) for value in (1, None)],
    ],
    ids=str,
)
def test_a_task_with_a_value_of_the_wrong_type_is_refused_by_its_name(task, name, value):
    shown = repr(value) if isinstance(value, bool | float | None) else f"of type {type(value).__name__}"
    with pytest.raises(MessageError, match=f"its {name} is {shown}$"):
        unpack_task(tampered(pack_order(order(), task), "task", **{name: value}))


@pytest.mark.parametrize("task", [Train(3), Replay(3), Recall(), RemoveItems()], ids=str)
def test_a_task_with_a_setting_that_it_does_not_have_is_refused(task):
    with pytest.raises(MessageError, match="unknown settings"):
        unpack_task(tampered(pack_order(order(), task), "task", other=1))


@pytest.mark.parametrize("name", ["", "wipe", "os.system", "x" * 100_000], ids=["empty", "wipe", "code", "long"])
def test_a_task_that_does_not_exist_is_refused(name):
    with pytest.raises(MessageError) as refused:
        unpack_task(tampered(pack_order(order(), Train(3)), "task", name=name))
    assert len(refused.value.problem) <= LONGEST_VALUE


def test_a_message_without_a_task_is_refused():
    with pytest.raises(MessageError, match="the message has no task"):
        unpack_task(sent(pack_order(order())))


def test_a_value_that_is_far_too_long_is_shown_in_short():
    with pytest.raises(MessageError) as refused:
        unpack_order(tampered(pack_order(order()), "order", number="9" * 100_000))
    assert len(refused.value.problem) <= LONGEST_VALUE


# Results that lie


def updates(*users: UserId) -> Updates:
    """Each user changed two items, by its place."""
    n = len(users)
    return Updates(
        list(users), np.arange(0, 2 * n + 1, 2), np.tile(np.arange(2, dtype=np.int32), n),
        np.repeat(np.arange(2 * n, dtype=np.float32)[:, None], DIM, axis=1), np.ones((n, DENSE), np.float32),
        np.full(n, 5), np.full(n, 0.5, np.float32),
    )  # fmt: skip


def answered(given: CohortResult, asked: Sequence[UserId] = ("ann", "bob"), stored: bool = False) -> CohortResult:
    return unpack_results(sent(pack_results({ROUND: given})), {ROUND: asked}, DIM, DENSE, stored)[ROUND]


def refused(given: CohortResult, asked: Sequence[UserId] = ("ann", "bob"), stored: bool = False) -> str:
    with pytest.raises(MessageError) as error:
        answered(given, asked, stored)
    return error.value.problem


def test_users_who_were_not_asked_are_refused_wherever_they_stand():
    assert refused(CohortResult(updates("ann", "eve"))) == reasons.NOT_ASKED
    assert refused(CohortResult(updates("ann"), {"eve": "away"})) == reasons.NOT_ASKED
    assert refused(CohortResult(updates("ann"), {}, updates("eve")), stored=True) == reasons.NOT_ASKED
    assert refused(CohortResult(updates(1)), asked=["1"]) == reasons.NOT_ASKED


def test_a_user_twice_is_refused():
    assert refused(CohortResult(updates("ann", "ann"))) == reasons.NOT_ASKED
    assert refused(CohortResult(updates("ann"), {}, updates("bob", "bob")), stored=True) == reasons.NOT_ASKED


def test_more_or_fewer_reasons_than_failures_are_refused():
    for said in ([], ["away", "away"]):
        content = tampered(pack_results({ROUND: CohortResult(updates("ann"), {"bob": "away"})}), "result", reasons=said)
        with pytest.raises(MessageError, match=CONTRADICTION):
            unpack_results(content, {ROUND: ["ann", "bob"]}, DIM, DENSE, stored=False)


def test_those_of_whom_a_device_says_nothing_have_that_as_their_reason():
    found = answered(CohortResult(updates("ann"), {"cid": "away"}), ["ann", "bob", "cid"])
    assert found.failures == {"cid": reasons.UNKNOWN_REASON, "bob": reasons.NOT_MENTIONED}
    assert answered(CohortResult(Updates.none())).failures == {
        "ann": reasons.NOT_MENTIONED,
        "bob": reasons.NOT_MENTIONED,
    }


@pytest.mark.parametrize("reason", ["very " * 100_000, "user 17 did it", "ok", "gone\x1b[2J\nround 9", ""])
def test_what_a_device_has_written_itself_goes_into_no_history(reason):
    assert answered(CohortResult(updates("ann"), {"bob": reason})).failures == {"bob": reasons.UNKNOWN_REASON}


@pytest.mark.parametrize("reason", sorted(reasons.FROM_DEVICES))
def test_a_reason_that_is_known_is_kept(reason):
    assert answered(CohortResult(updates("ann"), {"bob": reason})).failures == {"bob": reason}


MISSHAPEN_PARTS = {
    "too few rows": {"rows": np.zeros((3, DIM), np.float32)},
    "rows of another width": {"rows": np.zeros((4, DIM + 1), np.float32)},
    "too few items": {"items": np.zeros(3, np.int32)},
    "other tensors of another width": {"dense": np.zeros((2, DENSE + 1), np.float32)},
    "other tensors for one": {"dense": np.zeros((1, DENSE), np.float32)},
    "one size": {"sizes": np.ones(1, np.int64)},
    "three losses": {"losses": np.zeros(3, np.float32)},
    "pointers for one": {"ptr": np.array([0, 4])},
    "no pointers": {"ptr": np.empty(0, np.int64)},
    "pointers that begin late": {"ptr": np.array([1, 2, 4])},
    "pointers that begin before": {"ptr": np.array([-2, 2, 4])},
    "pointers that end early": {"ptr": np.array([0, 2, 3])},
    "pointers beyond the end": {"ptr": np.array([0, 2, 6])},
    "pointers that go back": {"ptr": np.array([0, 5, 4])},
    "pointers that overflow": {"ptr": np.array([0, -(2**63), 4])},
}


@pytest.mark.parametrize("parts", MISSHAPEN_PARTS.values(), ids=MISSHAPEN_PARTS)
def test_updates_of_another_shape_are_refused(parts):
    assert refused(CohortResult(replace(updates("ann", "bob"), **parts))) == reasons.WRONG_SHAPE
    given = CohortResult(updates("ann"), {"bob": "away"}, replace(updates("ann", "bob"), **parts))
    assert refused(given, stored=True) == reasons.WRONG_SHAPE


@pytest.mark.parametrize(
    ("name", "kind"), [("ptr", np.int32), ("items", np.int64), ("rows", np.float64), ("sizes", float), ("losses", "f8")]
)
def test_updates_with_numbers_of_another_kind_are_refused_by_their_name(name, kind):
    made = updates("ann", "bob")
    problem = refused(CohortResult(replace(made, **{name: getattr(made, name).astype(kind)})))
    assert problem == f"its {name} are {np.dtype(kind).str} in {getattr(made, name).ndim} dimensions"


@pytest.mark.parametrize("name", ["ptr", "items", "rows", "dense", "sizes", "losses"])
def test_updates_that_lack_a_part_are_refused_by_its_name(name):
    content = pack_results({ROUND: CohortResult(updates("ann", "bob"))})
    parts = {part: array for part, array in content.array_records["updates"].items() if part != name}
    content["updates"] = ArrayRecord(parts)
    with pytest.raises(MessageError, match=f"the message has no {name}"):
        unpack_results(sent(content), {ROUND: ["ann", "bob"]}, DIM, DENSE, stored=False)[ROUND]


@pytest.mark.parametrize("name", ["result", "updates", "stored"])
def test_results_that_lack_a_record_are_refused_by_its_name(name):
    content = pack_results({ROUND: CohortResult(updates("ann"), {}, updates("ann"))})
    del content[name]
    with pytest.raises(MessageError, match=f"the message has no {name}"):
        unpack_results(sent(content), {ROUND: ["ann", "bob"]}, DIM, DENSE, stored=True)[ROUND]


@pytest.mark.parametrize(
    ("name", "value"),
    [("users", "ann"), ("users", [True]), ("users", [1.0]), ("users", [b"ann"]), ("failed", 1), ("reasons", [5]),
     ("reasons", "away"), ("seconds", 1), ("seconds", "fast"), ("seconds", None), ("stored_users", None),
     ("stored_users", 1.5)],
)  # fmt: skip
def test_results_with_a_value_of_the_wrong_type_are_refused_by_its_name(name, value):
    content = pack_results({ROUND: CohortResult(updates("ann"), {"bob": "away"}, updates("ann"))})
    with pytest.raises(MessageError, match=f"its {name} is"):
        unpack_results(tampered(content, "result", **{name: value}), {ROUND: ["ann", "bob"]}, DIM, DENSE, stored=True)[
            ROUND
        ]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_time_that_cannot_be_is_refused(seconds):
    with pytest.raises(MessageError, match="its seconds is"):
        answered(CohortResult(updates("ann"), {"bob": "away"}, None, seconds))


def test_stored_updates_that_nobody_asked_for_are_not_looked_at():
    content = pack_results({ROUND: CohortResult(updates("ann", "bob"))})
    content["stored"] = of_bytes(b"nonsense")
    found = unpack_results(sent(content), {ROUND: ["ann", "bob"]}, DIM, DENSE, stored=False)[ROUND]
    assert found.stored is None
    assert list(found.updates.users) == ["ann", "bob"]


def test_what_was_packed_from_a_view_comes_back_in_order():
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (table.T, table[:, ::2], table[::-1]):
        back = unpack(sent(RecordDict({"x": pack(view=view)})).array_records["x"], "view", np.float32, 2)
        assert back.tolist() == view.tolist()
        assert back.flags.c_contiguous
