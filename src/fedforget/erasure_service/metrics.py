"""Metrics for Prometheus at ``/metrics``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.responses import Response

from fedforget.erasure_service.access import Reader
from fedforget.erasure_service.callbacks import ENDS
from fedforget.erasure_service.middleware import App, Message, Receive, Scope, Send
from fedforget.erasure_service.problems import documented
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.subject_requests import State

router = APIRouter(tags=["Service"])
#: Values of the label ``method``; clients may send any other text.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses={**TEXT, **documented()})
async def metrics(request: Request, holder: Reader) -> Response:
    """Metrics in the text format of Prometheus."""
    text = await to_thread.run_sync(generate_latest, request.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


class Measured:
    """Counts calls and their duration, by route; an ASGI application around another one."""

    def __init__(self, app: App, service: ErasureService) -> None:
        self.app = app
        self.registry = CollectorRegistry()
        self.registry.register(ServiceCollector(service))
        labels = ["method", "route", "status"]
        self.calls = Counter("fedforget_http_requests", "HTTP calls.", labels, registry=self.registry)
        self.seconds = Histogram(
            "fedforget_http_request_seconds",
            "Duration of HTTP calls.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, began = "500", time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        scope.setdefault("state", {})["metrics"] = self.registry
        try:
            return await self.app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.calls.labels(method, route, status).inc()
            self.seconds.labels(route).observe(time.perf_counter() - began)


class ServiceCollector(Collector):
    """What is measured of the service whenever Prometheus asks."""

    def __init__(self, service: ErasureService) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        requests, now = self.service.requests, time.time()
        states = GaugeMetricFamily("fedforget_requests", "Requests by state.", labels=["state"])
        for state, count in requests.counts().items():
            states.add_metric([state], count)
        yield states
        waiting = requests.in_state(State.PENDING, State.IN_PROGRESS)
        oldest = max((now - one.received for one in waiting), default=0.0)
        nearest = min((one.deadline - now for one in waiting), default=float("inf"))
        yield _gauge("fedforget_oldest_request_seconds", "Age of the oldest request that is not finished.", oldest)
        yield _gauge("fedforget_nearest_deadline_seconds", "Seconds to the nearest deadline.", nearest)
        sent = CounterMetricFamily("fedforget_callbacks", "Callbacks by outcome.", labels=["outcome"])
        for outcome, number in (dict.fromkeys(ENDS, 0) | self.service.callbacks.counts()).items():
            sent.add_metric([outcome], number)
        yield sent
        yield _gauge("fedforget_callbacks_waiting", "Callbacks that wait.", self.service.callbacks.waiting())
        lost = self.service.call_log.lost
        yield CounterMetricFamily("fedforget_calls_lost", "Calls missing in the log of calls.", value=lost)
        yield _gauge("fedforget_ready", "1 if requests can be carried out.", not self.service.problems())
        if (status := self.service.worker.status) is None:
            return
        yield _gauge("fedforget_rounds", "Rounds of training.", status.rounds)
        yield _gauge("fedforget_members", "Members of the federation.", status.members)
        yield _gauge("fedforget_erasure_running", "1 while an erasure is carried out.", status.waiting is not None)
        yield _gauge("fedforget_estimate_seconds", "Expected duration of an erasure.", status.estimate_seconds or 0.0)
        missing = GaugeMetricFamily(
            "fedforget_missing_updates", "Updates missing in the newest rounds, by reason.", labels=["reason"]
        )
        reasons: dict[str, int] = {}
        for one in status.recent:
            for reason, count in one.failures.items():
                reasons[reason] = reasons.get(reason, 0) + count
        for reason, count in reasons.items():
            missing.add_metric([reason], count)
        yield missing
        for accuracy in status.accuracy[-1:]:
            for protocol, values in (("sampled", accuracy.sampled), ("full", accuracy.full)):
                for name, value in values.items():
                    yield _gauge(f"fedforget_accuracy_{protocol}_{name}", "Accuracy of the newest evaluation.", value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
