"""ServiceSettings: how the erasure service listens, batches requests and calls back."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import time, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.callback_address import targets
from fedforget.erasure_service.durations import parse_duration
from fedforget.errors import ConfigError
from fedforget.runtime.settings import build_from

LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of ``fedforget serve``, as in its configuration file.

    Durations are text such as ``24h``. ``rate`` is the number of calls a second that a token may make. Callbacks go to
    ``callback_hosts``, and to ``callback_private`` also at private addresses and without TLS. ``approval``: an operator
    approves each request. The log of calls is kept for ``keep_calls``. ``insecure`` allows to listen beyond this
    machine without TLS; ``public_url`` is the address in answers, if a proxy has another one. ``proxies`` are addresses
    and networks whose X-Forwarded headers are trusted.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    tls_cert: str = ""
    tls_key: str = ""
    insecure: bool = False
    behind_proxy: bool = False
    proxies: tuple[str, ...] = ()
    public_url: str = ""
    domain: str = ""
    batch_every: str = ""
    batch_at: str = ""
    batch_size: int = 0
    deadline: str = "30d"
    approval: bool = False
    callback_hosts: tuple[str, ...] = ()
    callback_private: tuple[str, ...] = ()
    rate: float = 500.0
    signing_key: str = ""
    signing_cert: str = ""
    audits: tuple[str, ...] = ("audits",)
    keep_calls: str = "90d"
    log_format: str = "text"

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port is {self.port}.", "Give a number up to 65535; 0 takes a free one.")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("Only one of tls_cert and tls_key is given.", "Give both: --tls-cert and --tls-key.")
        if self.proxies and not self.behind_proxy:
            raise ConfigError("proxies are given without behind_proxy.", "Give --behind-proxy too.")
        self._check_proxies()
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise ConfigError(f"public_url is {self.public_url!r}.", "Give the address of a proxy: https://HOST.")
        if self.log_format not in ("text", "json"):
            raise ConfigError(f"log_format is {self.log_format!r}.", "Give text or json.")
        if not self.rate > 0:
            raise ConfigError(f"rate is {self.rate}.", "Give calls a second, above 0.")
        if self.batch_size < 0:
            raise ConfigError(f"batch_size is {self.batch_size}.", "Give 0 (no such limit) or more.")
        _ = targets(self.callback_targets), self.batching, parse_duration(self.keep_calls)

    @classmethod
    def build(cls, given: Mapping[str, Any], file: Path | None = None) -> ServiceSettings:
        """The settings in a TOML file, and those given otherwise, which take precedence; None is not given."""
        values = {} if file is None else _read(file)
        known = {field.name for field in fields(cls)}
        for name in [name for name in values if "-" in name and name.replace("-", "_") in known]:
            values[name.replace("-", "_")] = values.pop(name)
        return build_from(
            cls, {**values, **{name: value for name, value in given.items() if value is not None}}, "serve"
        )

    @property
    def batching(self) -> Batching:
        """When requests are carried out."""
        at = None
        if self.batch_at:
            try:
                at = time.fromisoformat(self.batch_at)
            except ValueError as error:
                raise ConfigError(
                    f"batch_at is {self.batch_at!r}.", "Give an hour of the day, such as 02:30."
                ) from error
        every = parse_duration(self.batch_every) if self.batch_every else timedelta(0)
        return Batching(every, at, self.batch_size, parse_duration(self.deadline))

    @property
    def callback_targets(self) -> tuple[str, ...]:
        """The hosts that may be called back."""
        return (*self.callback_hosts, *self.callback_private)

    @property
    def trusted_proxies(self) -> tuple[str, ...]:
        """The addresses and networks whose X-Forwarded headers are trusted; without any, a proxy on this machine."""
        return self.proxies or LOOPBACK

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """The address of the service, as others reach it."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    def named(self) -> ServiceSettings:
        """With the name of this machine as the domain, if none is given."""
        return self if self.domain else replace(self, domain=socket.getfqdn())

    def _check_proxies(self) -> None:
        for proxy in self.proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                hint = "Give an address or a network, such as 10.0.0.5 or 10.0.0.0/24."
                raise ConfigError(f"{proxy!r} in proxies is invalid: {error}.", hint) from error

    def check_exposure(self, tokens: int) -> None:
        """Refuse to listen beyond this machine without tokens and TLS, or if clients could forge their addresses."""
        if self.is_local:
            return
        if self.behind_proxy and not self.proxies:
            raise ConfigError(
                f"host is {self.host}, beyond this machine, and proxies is empty: any client could forge its address "
                "with X-Forwarded-For.",
                "Give the address of the proxy: --proxies 10.0.0.5.",
            )
        if not tokens:
            raise ConfigError(
                f"host is {self.host}, beyond this machine, and there are no valid tokens.",
                "Make one first: fedforget token add RUN --role operator --name NAME",
            )
        if not (self.is_tls or self.behind_proxy or self.insecure):
            raise ConfigError(
                f"host is {self.host}, beyond this machine, without TLS.",
                "Give --tls-cert and --tls-key, or --behind-proxy if a proxy adds TLS; --insecure allows it without.",
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Give a TOML file with settings of serve.") from error
