"""The comparison measures what it says, on data small enough to check by other means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.devices import Devices
from fedforget.experiments import measures
from fedforget.experiments.measures import Outcome
from fedforget.experiments.recovery import Recovery, RecoverySettings
from fedforget.experiments.variants import VARIANTS, select_variants
from fedforget.protocol.tasks import Task

TRAINING = ff.LocalTraining(epochs=4)


def small(folder: Path, *names: str, rounds: int = 4) -> Recovery:
    train, test = ff.synthetic(users=40, items=60, mean_items=12).split(test=0.2, seed=0)
    model = ff.LightGCN(dim=8)
    settings = RecoverySettings(rounds, training=TRAINING)
    return Recovery(train, test, model, folder, settings, variants=select_variants(names or list(VARIANTS)))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recovery, dict[str, Outcome]]:
    """Every variant on the same small federation; the copy after FRU is kept."""
    recovery = small(tmp_path_factory.mktemp("work"))
    recovery.warm_up()
    recovery.fit()
    return recovery, recovery.compare(curves=["attacked", "retrain", "fru-device"], keep=["fru-device"])


def test_every_variant_has_its_figures(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    _, outcomes = compared
    assert list(outcomes) == list(VARIANTS)
    for name, outcome in outcomes.items():
        assert set(outcome.accuracy.sampled) == {"hr", "ndcg"}
        assert set(outcome.accuracy.full) == {"hr", "ndcg", "recall"}
        assert outcome.log.item_table == 60 * 8 * 4
        assert outcome.log.total > 0
        if name == "attacked":
            assert (outcome.seconds, outcome.speedup, outcome.receipt) == (0.0, None, None)
        else:
            assert outcome.receipt is not None
            assert outcome.seconds == outcome.receipt.seconds > 0
            assert outcome.speedup == outcomes["retrain"].seconds / outcome.seconds


def test_nothing_is_left_but_what_was_asked_for(tmp_path: Path) -> None:
    recovery = small(tmp_path, "retrain", "fru-device", "fru-logged")
    recovery.fit()
    recovery.compare(repeats=2, keep=["fru-device"])
    recovery.close()
    assert {path.name for path in tmp_path.iterdir()} == {"fru-device"}


def test_the_kept_federation_is_the_one_that_was_measured(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    recovery, outcomes = compared
    kept = ff.Federation.open(recovery.folder / "fru-device", recovery.before.train)
    result = kept.evaluate(recovery.test)
    assert outcomes["fru-device"].accuracy.full == result.full
    assert outcomes["fru-device"].accuracy.sampled == result.sampled
    assert not set(recovery.malicious) & set(kept.train.user_ids.tolist())
    kept.close()


def test_attacked_is_the_poisoned_model_over_the_remaining_users(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    recovery, outcomes = compared
    whole, test = recovery.before, ff.synthetic(users=40, items=60, mean_items=12).split(test=0.2, seed=0)[1]
    remaining = whole.evaluate(test).of(recovery.train.user_ids)
    assert len(remaining.users) < len(whole.train.user_ids)
    assert outcomes["attacked"].accuracy.full == pytest.approx(remaining.full)
    assert outcomes["attacked"].accuracy.sampled == pytest.approx(remaining.sampled)


def test_curves_end_with_the_result(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    _, outcomes = compared
    assert {name for name, outcome in outcomes.items() if outcome.curve} == {"attacked", "retrain", "fru-device"}
    for outcome in outcomes.values():
        if outcome.curve:
            rounds = [round_ for round_, _ in outcome.curve]
            assert rounds == sorted(set(rounds))
            assert outcome.curve[-1] == (4, outcome.accuracy)


def test_retrain_is_a_federation_that_never_had_them(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    """The clean reference need not be trained: it is Retrain."""
    recovery, outcomes = compared
    cohorts = {r: [u for u in recovery.before.cohort(r) if u not in recovery.malicious] for r in range(1, 5)}
    clean = ff.Federation(recovery.train, recovery.before.model, training=TRAINING).fit(rounds=4, cohorts=cohorts)
    assert outcomes["retrain"].receipt is not None
    assert clean.public.digest == outcomes["retrain"].receipt.digest_after


def test_the_log_is_counted_to_the_byte(compared: tuple[Recovery, dict[str, Outcome]]) -> None:
    """Entries as the files hold them, and one exact copy of the 8 private numbers with its round."""
    recovery, outcomes = compared
    slim = recovery.slim
    entries = sum(int(sizes.sum()) for _, _, sizes in slim.devices.log.store.heads())
    assert measures.log_size(slim).total == entries / 40 + 8 * 4 + 8
    assert outcomes["fru-device"].log.total == measures.log_size(slim).total
    sizes = [outcomes[name].log.total for name in ("fru-logged", "fru-server", "fedremove")]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2]


def test_accuracy_of_a_past_round_is_that_of_training_only_so_far(tmp_path: Path) -> None:
    recovery = small(tmp_path / "long", "fedremove", rounds=3)
    recovery.fit()
    short = small(tmp_path / "short", "fedremove", rounds=2)
    short.fit()
    after_two = measures.accuracy_after(recovery.before, 2, recovery.train, recovery.test)
    assert after_two == measures.accuracy_after(short.before, 2, short.train, short.test)
    recovery.close()
    short.close()
    assert list((tmp_path / "long").iterdir()) == []


def test_norms_are_enough_unless_a_variant_needs_more(tmp_path: Path) -> None:
    assert small(tmp_path / "a", "retrain", "fru-device").before.config.log == ff.Log()
    assert small(tmp_path / "b", "fedremove").before.config.log == ff.Log("float32", "all")


def test_repeats_count_by_their_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recovery = small(tmp_path, "continue", rounds=2)
    recovery.fit()
    seconds: list[float] = []
    real = ff.Federation.forget

    def noted(self: ff.Federation, *args: object) -> ff.Receipt:
        receipt = real(self, *args)  # type: ignore[arg-type]
        seconds.append(receipt.seconds)
        return receipt

    monkeypatch.setattr(ff.Federation, "forget", noted)
    assert recovery.recover("continue", repeats=3).seconds == np.median(seconds)
    assert len(seconds) == 3


def test_an_interrupted_training_goes_on(tmp_path: Path) -> None:
    first = small(tmp_path, "continue", rounds=2)
    first.fit()
    first.before.close()
    again = small(tmp_path, "continue", rounds=3)
    assert again.before.rounds == 2
    again.fit()
    assert again.before.rounds == 3


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ff.ConfigError, match="Did you mean 'retrain'"):
        select_variants(["retrian"])
    with pytest.raises(ff.ConfigError, match="No method"):
        select_variants([])
    with pytest.raises(ff.ConfigError, match="rounds is 0"):
        small(tmp_path, "retrain", rounds=0)
    recovery = small(tmp_path, "retrain")
    with pytest.raises(ff.ConfigError, match="repeats is 0"):
        recovery.recover("retrain", repeats=0)


def test_the_warm_up_replays_as_every_variant_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = set()
    run = Devices.run

    def watched(self: Devices, task: Task, *given: object) -> object:
        tasks.add((task.name, getattr(task, "items", None), getattr(task, "parts", None)))
        return run(self, task, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Devices, "run", watched)
    small(tmp_path).warm_up()
    replays = {("replay", "fresh", "rows"), ("replay", "logged", "rows"), ("replay", "fresh", "none")}
    assert tasks == {("train", None, None), ("recall", None, None), *replays}
