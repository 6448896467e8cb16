"""Audits of forgetting: what a model still tells about users who left, and whether that differs from retraining.

Everything here works on arrays: signals of users in worlds (``attacks``), scores (``scores``), intervals
(``intervals``), the verdict (``verdict``), and the distance of two models (``distance``). The worlds themselves are
trained in ``experiments.forgetting``.
"""
