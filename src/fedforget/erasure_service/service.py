"""ErasureService: everything that answers calls and carries requests out, for one run folder."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from fedforget.attestation.chain import ReceiptChain
from fedforget.erasure_service import batches, call_log, callbacks, subject_requests, tokens
from fedforget.erasure_service.access import Access
from fedforget.erasure_service.batches import Batches
from fedforget.erasure_service.call_log import CallLog
from fedforget.erasure_service.callback_client import CallbackClient
from fedforget.erasure_service.callback_sender import CallbackSender
from fedforget.erasure_service.callbacks import CallbackStore
from fedforget.erasure_service.completion import Completion
from fedforget.erasure_service.current_key import CurrentKey
from fedforget.erasure_service.dispatcher import Dispatcher
from fedforget.erasure_service.durations import parse_duration
from fedforget.erasure_service.notifications import Notifications
from fedforget.erasure_service.queue_files import QueueFiles
from fedforget.erasure_service.sessions import Sessions
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.state_file import FOLDER, NAME, open_state
from fedforget.erasure_service.subject_requests import SubjectRequests
from fedforget.erasure_service.tokens import TokenStore
from fedforget.erasure_service.worker_client import Worker
from fedforget.runtime.files import make_folder, only_writer
from fedforget.server.config_file import read_config

#: Seconds without news from the worker after which it is not ready.
SILENT_SECONDS = 60.0


class ErasureService:
    """The service of a run folder: its requests, tokens, worker and signing key. One process at a time may hold it."""

    def __init__(self, run: Path, settings: ServiceSettings) -> None:
        self.run, self.settings = run, settings.named()
        config = read_config(run / "config.toml")
        self.engine, self.federation = str(config.get("engine", "simulation")), str(config["id"])
        self._lock = only_writer(make_folder(run / FOLDER))
        self._lock.__enter__()
        schema = subject_requests.SCHEMA + batches.SCHEMA + callbacks.SCHEMA
        self.requests = SubjectRequests(open_state(run, schema), run / FOLDER / NAME)
        self.batches = Batches(self.requests)
        self.tokens = TokenStore(open_state(run, tokens.SCHEMA))
        self.call_log = CallLog(run / FOLDER / call_log.FOLDER, parse_duration(settings.keep_calls))
        self.access = Access(self.tokens, settings.rate)
        self.sessions = Sessions(self.tokens)
        key, certificate = (Path(name) if name else None for name in (settings.signing_key, settings.signing_cert))
        self.key = CurrentKey(run, key, certificate)
        self.chain = ReceiptChain(run)
        self.worker = Worker(run)
        self.notifications = Notifications(self.requests, CallbackStore(self.requests.db), settings.url)
        client = CallbackClient(self.settings.callback_targets, settings.callback_private)
        own = CallbackStore(open_state(run, callbacks.SCHEMA))
        self.sender = CallbackSender(own, client, lambda body: self.key.get().sign(body), self.settings.domain)
        completion = Completion(
            self.federation, QueueFiles(run), self.batches, self.chain, self.key, self.notifications
        )
        self.dispatcher = Dispatcher(
            completion, settings.batching, status=lambda: self.worker.status, wake=self.worker.wake
        )

    @property
    def callbacks(self) -> CallbackStore:
        """The callbacks, for the current thread to read."""
        return CallbackStore(self.requests.reader)

    def start(self) -> None:
        """Start the worker and the threads."""
        self.worker.start()
        self.dispatcher.start()
        self.sender.start()

    def stop(self) -> None:
        """Stop the threads and the worker; an erasure that runs is continued later."""
        self.dispatcher.stop()
        self.sender.close()
        self.worker.stop()
        self.call_log.close()
        self.requests.close()
        self._lock.__exit__(None, None, None)

    def problems(self) -> list[str]:
        """What is in the way of carrying out requests."""
        found = list(self.dispatcher.warnings)
        status = self.worker.status
        if not self.worker.alive:
            found.append("The worker process is not running; it is started again.")
        elif status is None:
            found.append("The worker process has not reported yet.")
        elif self.worker.silent_seconds > SILENT_SECONDS:
            found.append(f"The worker process has not reported for {self.worker.silent_seconds:.0f} seconds.")
        elif status.error or status.obstacle:
            found.append(status.error or status.obstacle or "")
        if self.call_log.problem is not None:
            found.append(f"The log of calls lacks {self.call_log.lost} calls. {self.call_log.problem}")
        return found

    def signature_headers(self, body: bytes) -> Mapping[str, str]:
        """The standard's signature of an answer or a callback."""
        signature = b64encode(self.key.get().sign(body)).decode()
        return {"X-OpenDSR-Processor-Domain": self.settings.domain, "X-OpenDSR-Signature": signature}
