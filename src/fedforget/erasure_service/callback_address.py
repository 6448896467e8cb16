"""Where callbacks may go: URLs are checked when a request is made, addresses again when a callback is sent.

Without these checks, whoever may make a request could have the service call machines that only it can reach.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from fedforget.errors import ConfigError

LONGEST_URL = 2048
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\\x00-\x20\x7f]+)((?=[/?#])[!-\[\]-~]*)?")
#: An allowed host: a name, or an address, which has brackets if it is one of IPv6 with a port.
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*):([0-9]{1,5})")
DEFAULT_PORTS = {"https": 443, "http": 80}
#: A host in the form in which it is compared, and its port; None for the default port of the URL's scheme.
Target = tuple[str, int | None]
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
#: The system reads hosts whose last part is such a number as IPv4 addresses: 127.1, 0x7f000001, 2130706433.
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
#: Not for use on the internet, though Python 3.11 does not know.
_SPECIAL_V6 = IPv6Network("3fff::/20")
_SPECIAL_V4 = IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24")


class CallbackError(ConfigError):
    """A callback's URL is not accepted, or may not be called now."""


def validate(url: str, allowed_hosts: Collection[str], private_hosts: Collection[str] = ()) -> str:
    """The URL with its host in the form that is called; an error if callbacks may not go there.

    A host must be one of ``allowed_hosts``. Only hosts that are also in ``private_hosts`` may be addresses, have
    addresses in private networks, or be called without TLS. Both hold for one port: that after the host's name, as in
    ``hooks.example.org:8443``, else the scheme's own. International names compare as IDNA 2003 encodes them.
    """
    found = _URL.fullmatch(url) if len(url) <= LONGEST_URL else None
    if found is None:
        raise _refused(url, f"it is no URL of at most {LONGEST_URL} characters, visible ASCII except for the host")
    scheme, authority = found[1].lower(), found[2]
    if "@" in authority:
        raise _refused(url, "it has a user name")
    if "#" in url:
        raise _refused(url, "it has a fragment")
    try:
        parts = urlsplit(url)
        host, given = normal_host(parts.hostname or ""), parts.port
    except ValueError as error:
        raise _refused(url, f"its host or port is invalid ({error})") from error
    if scheme not in DEFAULT_PORTS:
        raise _refused(url, "it is not https")
    if given == 0:
        raise _refused(url, "port 0 cannot be called")
    port = given or DEFAULT_PORTS[scheme]
    private = covers(targets(private_hosts), scheme, host, port)
    if is_address(host) and not private:
        raise _refused(url, f"its host is an address and, with port {port}, not one of the private hosts")
    if not covers(targets(allowed_hosts), scheme, host, port):
        raise _refused(url, f"the host {host} with port {port} is not one of the allowed callback hosts")
    if scheme == "http" and not private:
        raise _refused(url, "it is not https, which only private hosts may leave out")
    shown = f"[{host}]" if ":" in host else host
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{shown}{'' if port == DEFAULT_PORTS[scheme] else f':{port}'}{parts.path or '/'}{query}"


def normal_host(host: str) -> str:
    """A host name in lower case and ASCII, or an address in its shortest form; ValueError if it is neither."""
    try:
        address = str(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        name = host.encode("idna").decode("ascii").lower().removesuffix(".")
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise ValueError(f"{host!r} is not a host name") from None
        return name
    if "%" in address:
        raise ValueError(f"{host!r} names an interface of this machine")
    return address


def is_address(host: str) -> bool:
    """Whether a host is an address, in any form that the system accepts as one."""
    return ":" in host or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def is_public(address: str) -> bool:
    """Whether an address is on the public internet, also where it carries another address in itself."""
    ip = ip_address(address)
    if isinstance(ip, IPv4Address):
        special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL_V4)
        return ip.is_global and not special
    embedded = _embedded(ip)
    if embedded is not None:
        return is_public(str(embedded))
    return ip in _GLOBAL_UNICAST and ip.is_global and ip not in _SPECIAL_V6 and ip.scope_id is None


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this address reach in the end: mapped, NAT64 or 6to4."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


def targets(hosts: Collection[str]) -> frozenset[Target]:
    """The hosts of a setting in the form in which they are compared."""
    try:
        return frozenset(map(_target, hosts))
    except ValueError as error:
        raise CallbackError(
            f"A callback host is invalid: {error}.",
            "Give a host without https:// and without a path, such as hooks.example.org, or hooks.example.org:8443 for "
            "another port than 443.",
        ) from error


def covers(allowed: Collection[Target], scheme: str, host: str, port: int) -> bool:
    """Whether a host may be called at a port."""
    return (host, port) in allowed or (port == DEFAULT_PORTS[scheme] and (host, None) in allowed)


def _target(text: str) -> Target:
    found = _HOST.fullmatch(text)
    if found is None:
        return normal_host(text), None
    if not 0 < int(found[2]) < 1 << 16:
        raise ValueError(f"{text!r} has no valid port")
    return normal_host(found[1]), int(found[2])


def _refused(url: str, reason: str) -> CallbackError:
    shown = url if len(url) <= 100 else f"{url[:100]}..."
    return CallbackError(
        f"Callbacks cannot go to {shown!r}: {reason}.",
        "Give an https URL of a host that the operator has allowed for callbacks, with its port if it is not 443.",
    )
