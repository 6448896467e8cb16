"""The queue of a simulated run: each request is carried out exactly once, wherever its process is killed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff
from fedforget.errors import BusyError, RunError
from fedforget.runtime.files import only_writer
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import NO_MEMBER, ErasureQueue
from fedforget.server.history import History
from fedforget.server.request import ErasureRequest, PartialErasure
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.deadly import deadly_at
from tests.forks import processes
from tests.small_federations import first_in, trained

METHOD = ff.FRU(0.4, stride=3).settings()


@dataclass(frozen=True)
class Base:
    """A trained run to be copied, users in it, and items of one of them."""

    run: Path
    users: list[UserId]
    items: list[UserId]

    @property
    def stays(self) -> UserId:
        return self.users[-1]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    run = tmp_path_factory.mktemp("base") / "run"
    with closing(trained(run)) as fed:
        users = first_in(fed, 2, 4)
        return Base(run, users, fed.train.item_ids_of(users[-1])[:2])


@pytest.fixture
def copy(base: Base, tmp_path: Path) -> Callable[..., Path]:
    def make(*requests: ErasureRequest, name: str = "run") -> Path:
        shutil.copytree(base.run, tmp_path / name)
        for request in requests:
            ErasureQueue(tmp_path / name).add(request)
        return tmp_path / name

    return make


def asked(*users: UserId, items: dict[UserId, list[UserId]] | None = None) -> ErasureRequest:
    """A request as one makes it who does not know the data."""
    parts = [PartialErasure(user, len(wanted), None, tuple(wanted)) for user, wanted in (items or {}).items()]
    return ErasureRequest.new(users, METHOD, partial=parts)


def receipts(run: Path) -> list[ff.Receipt]:
    with closing(ff.Federation.open(run)) as fed:
        assert sorted(path.stem for path in run.glob("receipts/*.json")) == sorted(r.request for r in fed.receipts())
        return fed.receipts()


def members(run: Path) -> set[UserId]:
    with closing(ff.Federation.open(run)) as fed:
        return set(fed.members)


def test_requests_are_carried_out_in_order_under_their_own_ids(base, copy):
    first, second = asked(base.users[0]), asked(base.users[1], base.users[2])
    run = copy(first, second)
    before = members(run)
    begun, rounds = [], []
    queue = QueuedErasures(run, on_request=begun.append, on_round=lambda record: rounds.append(record.round))
    assert queue.pending()
    queue.carry_out()
    assert not queue.pending()
    assert [receipt.request for receipt in receipts(run)] == [first.id, second.id] == [each.id for each in begun]
    assert [receipt.names(user, asking.salt) for receipt, asking, user in
            zip(receipts(run), (first, second), base.users, strict=False)] == [True, True]  # fmt: skip
    assert members(run) == before - set(base.users[:3])
    assert rounds == [*range(2, 9), *range(2, 9)]
    assert list(queue.queue.folder.iterdir()) == []
    queue.carry_out()
    assert len(receipts(run)) == 2


def test_the_result_is_that_of_forget(base, copy):
    request = asked(base.users[0], items={base.stays: base.items})
    run, other = copy(request), copy(name="other")
    QueuedErasures(run).carry_out()
    with closing(ff.Federation.open(other)) as fed:
        same = fed.forget([base.users[0]], ff.FRU(0.4, stride=3), items={base.stays: base.items})
    (receipt,) = receipts(run)
    assert (receipt.digest_before, receipt.digest_after) == (same.digest_before, same.digest_after)
    assert list(receipt.partial.values()) == [2]
    assert receipt.names(base.stays, request.salt)
    with closing(ff.Federation.open(run)) as fed:
        assert not set(base.items) & set(fed.train.item_ids_of(base.stays))


def test_users_and_items_that_are_not_there_are_left_out(base, copy):
    strangers = asked("999", 999, str(base.users[1]), base.users[0], base.users[0])
    items = asked(items={base.stays: [*base.items, "7", 10**6], 999: [1], base.users[0]: base.items})
    run = copy(strangers, items)
    QueuedErasures(run).carry_out()
    one, other = receipts(run)
    assert (len(one.users), len(one.partial)) == (1, 0)
    assert (len(other.users), list(other.partial.values())) == (0, [2])


@pytest.mark.parametrize("kind", ["strangers", "their items", "items that the user does not have", "nobody"])
def test_a_request_for_nothing_is_refused(kind, base, copy):
    request = {
        "strangers": asked(999, "somebody"),
        "their items": asked(items={999: [1, 2]}),
        "items that the user does not have": asked(items={base.stays: [10**6]}),
        "nobody": asked(),
    }[kind]
    run = copy(request, after := asked(base.users[0]))
    QueuedErasures(run).carry_out()
    assert ErasureQueue(run).refused() == {request.id: NO_MEMBER}
    assert [receipt.request for receipt in receipts(run)] == [after.id]


def test_a_request_that_cannot_be_carried_out_is_refused_with_the_reason(base, copy):
    everybody, unknown = asked(*members(base.run)), replace(asked(base.users[0]), method={"name": "magic"})
    impossible = replace(asked(base.users[0]), method=ff.FRU(calibration="server").settings())
    run = copy(everybody, unknown, impossible, good := asked(base.users[0]))
    QueuedErasures(run).carry_out()
    refused = ErasureQueue(run).refused()
    assert "All 40 users" in refused[everybody.id]
    assert "magic" in refused[unknown.id]
    assert "log lengths only" in refused[impossible.id]
    assert [receipt.request for receipt in receipts(run)] == [good.id]


def test_a_request_whose_receipt_exists_is_only_removed(base, copy):
    run = copy(request := asked(base.users[0]))
    QueuedErasures(run).carry_out()
    ErasureQueue(run).add(request)
    (run / "receipts" / f"{request.id}.json").unlink()
    QueuedErasures(run).carry_out()
    assert [receipt.request for receipt in receipts(run)] == [request.id]
    assert ErasureQueue(run).waiting() == []
    assert ErasureQueue(run).refused() == {}


def test_while_another_process_writes_everything_waits(base, copy):
    run = copy(request := asked(base.users[0]))
    queue = QueuedErasures(run)
    with only_writer(run), pytest.raises(BusyError):
        queue.carry_out()
    assert queue.queue.waiting() == [request]
    queue.carry_out()
    assert len(receipts(run)) == 1


def test_any_other_error_leaves_the_request_in_the_queue(base, copy, monkeypatch):
    run = copy(request := asked(base.users[0]))
    with monkeypatch.context() as patch:
        patch.setattr(History, "commit", lambda *_: (_ for _ in ()).throw(RunError("The disk is full.")))
        with pytest.raises(RunError, match="disk"):
            QueuedErasures(run).carry_out()
    assert ErasureQueue(run).waiting() == [request]
    QueuedErasures(run).carry_out()
    assert [receipt.request for receipt in receipts(run)] == [request.id]


def test_an_interrupted_erasure_goes_first_whoever_began_it(base, copy):
    run = copy(queued := asked(base.users[1]))

    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with closing(ff.Federation.open(run)) as fed:
        with pytest.raises(KeyboardInterrupt):
            fed.forget([base.users[0]], ff.FRU(0.4, stride=1), items={base.stays: base.items}, on_round=stop)
        began = fed.waiting
    assert began is not None
    QueuedErasures(run).carry_out()
    assert [receipt.request for receipt in receipts(run)] == [began.id, queued.id]


def test_an_abandoned_request_does_not_come_back(base, copy):
    run = copy(request := asked(base.users[0]))

    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        QueuedErasures(run, on_round=stop).carry_out()
    with closing(ff.Federation.open(run)) as fed:
        assert fed.waiting is not None
        assert fed.waiting.id == request.id
        fed.abandon_forgetting()
    assert not QueuedErasures(run).pending()
    assert receipts(run) == []


def test_data_that_another_process_adds_in_between_is_there_for_the_next_request(base, copy, monkeypatch):
    run = copy(first := asked(base.users[0]), asked(base.users[1], 1000))
    carry_out = ff.Federation.carry_out

    def then_add(fed: ff.Federation, request: ErasureRequest, *rest: Any) -> ff.Receipt | None:
        receipt = carry_out(fed, request, *rest)
        if request.id == first.id:
            with closing(ff.Federation.open(run)) as other:
                other.add(ff.Interactions.from_pairs([1000, 1000], base.items))
        return receipt

    monkeypatch.setattr(ff.Federation, "carry_out", then_add)
    QueuedErasures(run).carry_out()
    assert [len(receipt.users) for receipt in receipts(run)] == [1, 2]
    assert members(run) == members(base.run) - set(base.users[:2])


def test_a_request_that_comes_while_one_is_carried_out_is_next(base, copy):
    run = copy(first := asked(base.users[0]))
    second = asked(base.users[1])

    def add(request: ErasureRequest) -> None:
        if request.id == first.id:
            ErasureQueue(run).add(second)

    QueuedErasures(run, on_request=add).carry_out()
    assert [receipt.request for receipt in receipts(run)] == [first.id, second.id]


#: The functions through which the queue goes, and at which of their calls to be killed: module, owner, name, calls.
PLACES = [
    ("fedforget.server.request", "ErasureRequest", "save", [1, 2]),
    ("fedforget.server.history", "History", "branch", [1]),
    ("fedforget.server.history", "History", "commit", [1, 3, 5]),
    ("fedforget.server.history", "History", "add_receipt", [1, 2]),
    ("fedforget.server.run_config", "RunConfig", "save", [1]),
    ("fedforget.server.erasure_queue", "ErasureQueue", "remove", [1, 2]),
    ("fedforget.server.erasure_queue", "", "write_file", [1]),
    ("fedforget.server.run", "", "write_file", [1, 2]),
    ("shutil", "", "rmtree", [2]),
    ("os", "", "rmdir", [1]),
    ("pathlib", "Path", "unlink", [1, 4, 9]),
]


def dying(run: Path, module: str, owner: str, name: str, when: str, n: int) -> None:
    deadly_at(module, owner, name, when, n)
    QueuedErasures(run).carry_out()


@pytest.fixture(scope="module")
def unbroken(base: Base, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The models after each erasure if nothing breaks."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    shutil.copytree(base.run, run)
    for request in three(base):
        ErasureQueue(run).add(request)
    QueuedErasures(run).carry_out()
    return [receipt.digest_after for receipt in receipts(run)]


def three(base: Base) -> list[ErasureRequest]:
    return [asked(base.users[0]), asked(base.users[0], 999), asked(base.users[1], items={base.stays: base.items})]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("module", "owner", "name", "calls"), PLACES, ids=[".".join(place[1:3]).strip(".") for place in PLACES]
)
def test_killed_anywhere_each_request_is_carried_out_once(
    module: str, owner: str, name: str, calls: list[int], when: str, base, copy, unbroken
):
    for n in calls:
        first, again, last = three(base)
        run = copy(first, again, last, name=f"run-{n}")
        process = processes.Process(target=dying, args=(run, module, owner, name, when, n))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        left = {request.id for request in ErasureQueue(run).waiting()}
        assert {first.id, again.id, last.id} == left | {path.stem for path in run.glob("receipts/*")} | set(
            ErasureQueue(run).refused()
        ) | waiting(run)
        QueuedErasures(run).carry_out()
        assert [(r.request, r.digest_after) for r in receipts(run)] == list(
            zip([first.id, last.id], unbroken, strict=True)
        )
        assert ErasureQueue(run).refused() == {again.id: NO_MEMBER}
        assert members(run) == members(base.run) - set(base.users[:2])
        assert sorted(path.suffix for path in (run / "queue").iterdir()) == [".refused"]


def waiting(run: Path) -> set[str]:
    request = ErasureRequest.load(run / "request.json")
    return set() if request is None else {request.id}
