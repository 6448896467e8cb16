"""Attacks: scores for "this user took part" from signals of users in worlds.

``signals`` has an axis for worlds, one for users and one for kinds of signals. ``inside`` says which users took part in
which worlds (and were forgotten there, if a method is audited). An attack on a user in a world learns from the worlds
of other ``folds`` only, never from the one it is tested on. Where a signal is no finite number, so is no score.

- ``offline_ratio`` (RMIA, Zarifzadeh et al. 2024, offline): the signal over its mean in worlds without the user, ranked
  among the same ratios of users who are not in this world. It needs no world with the user.
- ``likelihood_ratio`` (LiRA, Carlini et al. 2022; of forgotten users U-LiRA, Hayes et al. 2024): Gaussians of the
  signals with and without the user, for each user, with a common covariance matrix for the combination of the signals.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from fedforget.evaluation.forgetting.scores import Flags, Floats, Ints

#: Variances of single users are averaged with that of all users, which counts like this many worlds.
PRIOR = 10.0
#: Standardised signals beyond this count as this far.
LARGEST = 8.0
#: What an attack learns from is cut at so many robust standard deviations from a user's median: one odd world among
#: those with the user or without must not widen the Gaussians so far that memory hides in them.
ODD = 5.0
#: The standard deviation of a normal distribution, in median absolute deviations.
ROBUST = 1.4826


class _Gaussians(NamedTuple):
    """Signals of each user without and with the user: means (users, kinds), spread, and covariances (kinds, kinds)."""

    centre: Floats
    scale: Floats
    shift: Floats
    without: Floats
    having: Floats


def offline_ratio(signal: Floats, inside: Flags, folds: Ints) -> Floats:
    """RMIA's score from one positive signal (worlds, users): the share of absent users with a smaller ratio."""
    scores = np.empty_like(signal)
    for world in range(len(signal)):
        absent = ~inside & (folds != folds[world])[:, None]
        expected = _mean(signal, absent)
        ratio = signal[world] / np.where(np.isfinite(expected) & (expected > 0), expected, 1.0)
        others = ratio[~inside[world]]
        others = others[np.isfinite(others)]
        smaller = (ratio[:, None] > others).sum(1) + (ratio[:, None] == others).sum(1) / 2
        counted = np.full(ratio.size, float(others.size))
        smaller[~inside[world]] -= 0.5  # a user is not compared with itself
        counted[~inside[world]] -= 1
        scores[world] = np.where(counted > 0, smaller / np.maximum(counted, 1), 0.5)  # nobody to compare with: no say
        scores[world, ~np.isfinite(ratio)] = np.nan
    return scores


def likelihood_ratio(signals: Floats, inside: Flags, folds: Ints) -> Floats:
    """The logarithm of the likelihood ratio of the signals with and without the user (worlds, users)."""
    scores = np.zeros(inside.shape)
    for fold in np.unique(folds):
        tested = folds == fold
        fit = _fit(signals[~tested], inside[~tested])
        x = _standardised(signals[tested], fit.centre, fit.scale)
        scores[tested] = _log_density(x - fit.shift, fit.having) - _log_density(x, fit.without)
    return np.where(np.isfinite(signals).all(axis=2), scores, np.nan)


def _fit(signals: Floats, inside: Flags) -> _Gaussians:
    """Gaussians of each user's signals in worlds without and with the user.

    Each user has means of its own. With few worlds these are uncertain, so the difference of the two is shrunk to its
    mean over users, by as much as it varies less between users than its error explains (empirical Bayes).
    """
    signals = _without_odd(signals, inside)
    absent, present = _mean(signals, ~inside), _mean(signals, inside)
    absent = np.where(np.isfinite(absent), absent, _over_users(absent))
    residual = signals - np.where(inside[..., None], present, absent)
    squares, freedom = np.nansum(residual**2, axis=0), max(len(signals) - 2, 1)
    common = np.maximum(np.median(squares / freedom, axis=0), 1e-12)
    scale = np.sqrt((squares + PRIOR * common) / (freedom + PRIOR))
    shift, error = (present - absent) / scale, _error(inside)[:, None]
    average = _over_users(shift)
    varies = np.maximum(_over_users((shift - average) ** 2 - error), 0.0)
    kept = np.where(np.isfinite(shift), varies / (varies + error), 0.0)
    shift = average + kept * (np.nan_to_num(shift) - average)
    x = np.clip(np.nan_to_num(residual / scale), -LARGEST, LARGEST)
    return _Gaussians(absent, scale, shift, _covariance(x[~inside]), _covariance(x[inside]))


def _without_odd(signals: Floats, inside: Flags) -> Floats:
    """The signals, each cut at ``ODD`` robust deviations from the median of its user with, or without, the user."""
    cut = np.where(np.isfinite(signals), signals, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users without a signal have no median
        for part in (inside[..., None], ~inside[..., None]):
            chosen = np.where(part, cut, np.nan)
            middle = np.nanmedian(chosen, axis=0)
            spread = np.nanmedian(np.abs(chosen - middle), axis=0)
            bound = ODD * ROBUST * np.fmax(spread, np.nanmedian(spread, axis=0))
            cut = np.where(part, np.clip(cut, middle - bound, middle + bound), cut)
    return cut


def _over_users(values: Floats) -> Floats:
    """The mean over users of each kind; 0 for a kind that no user has."""
    known = np.isfinite(values)
    mean: Floats = np.where(known, values, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return mean


def _error(inside: Flags) -> Floats:
    """The variance of the difference of both means of each user, in units of the variance of a signal."""
    with_user, without = inside.sum(0), (~inside).sum(0)
    error: Floats = 1 / np.maximum(with_user, 1) + 1 / np.maximum(without, 1)
    return error


def _covariance(x: Floats) -> Floats:
    """A covariance matrix, with what is not on its diagonal shrunk by the share of its entries in the data."""
    kinds = x.shape[1]
    kept = len(x) / (len(x) + kinds * (kinds + 1) / 2)
    full = x.T @ x / max(len(x), 1)
    shrunk: Floats = kept * full + (1 - kept) * np.diag(np.diag(full)) + 1e-6 * np.eye(kinds)
    return shrunk


def _standardised(signals: Floats, centre: Floats, scale: Floats) -> Floats:
    return np.clip(np.nan_to_num((signals - centre) / scale), -LARGEST, LARGEST)


def _log_density(x: Floats, covariance: Floats) -> Floats:
    """The logarithm of a Gaussian density, up to a constant."""
    squares: Floats = np.einsum("...i,ij,...j->...", x, np.linalg.inv(covariance), x)
    return -0.5 * (squares + float(np.linalg.slogdet(covariance)[1]))


def _mean(values: Floats, where: Flags) -> Floats:
    """The mean over worlds of the values in some cells; NaN for a user without such a cell."""
    chosen = (where if values.ndim == 2 else where[..., None]) & np.isfinite(values)
    count = chosen.sum(0)
    total: Floats = np.where(chosen, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
