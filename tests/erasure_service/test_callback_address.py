"""Only URLs of allowed hosts are accepted, and only public addresses are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.callback_address import CallbackError, is_public, validate
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.errors import ConfigError
from tests.erasure_service.receivers import HOST, PRIVATE

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://hooks.example.org", "https://hooks.example.org/"),
        ("HTTPS://Hooks.Example.ORG.:443/a?b=c", "https://hooks.example.org/a?b=c"),
        ("https://hooks.example.org:8443?x", "https://hooks.example.org:8443/?x"),
        ("https://BÜCHER.example/x", "https://xn--bcher-kva.example/x"),
        ("https://xn--bcher-kva.example:444/", "https://xn--bcher-kva.example:444/"),
        ("https://10.0.0.7/", "https://10.0.0.7/"),
        ("http://[0:0::1]:8000/x", "http://[::1]:8000/x"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("https://[::1]/x", "https://[::1]/x"),
    ],
)
def test_urls_of_allowed_hosts(url: str, normal: str) -> None:
    private = ["10.0.0.7", "[::1]", "[::1]:8000"]
    allowed = [HOST, f"{HOST}:8443", "bücher.example", "BÜCHER.example:444", *private]
    assert validate(url, allowed, private) == normal
    assert validate(normal, allowed, private) == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example.org/", "not https"),
        ("ftp://hooks.example.org/", "not https"),
        ("https://evil.org/", "not one of the allowed"),
        ("https://hooks.example.org:8443/", "port 8443 is not one of the allowed"),
        ("https://hooks.example.org:80/", "port 80 is not one of the allowed"),
        ("http://hooks.example.org:443/", "port 443 is not one of the allowed"),
        ("https://hooks.example.org.evil.org/", "not one of the allowed"),
        ("https://sub.hooks.example.org/", "not one of the allowed"),
        ("https://user:password@hooks.example.org/", "user name"),
        ("https://evil.org\\@hooks.example.org/", "no URL"),
        ("https://hooks.example.org/#part", "fragment"),
        ("https://hooks.example.org:0/", "port 0"),
        ("https://hooks.example.org:99999/", "port is invalid"),
        ("https://hooks.example.org:x/", "port is invalid"),
        ("https://hooks.example.org/a b", "no URL"),
        ("https://hooks.example.org/\r\nX: y", "no URL"),
        ("https://hooks.example.org\n/", "no URL"),
        ("https://hooks.example.org/ü", "no URL"),
        ("https://hooks.example.org/" + "a" * 3000, "no URL"),
        ("https:///a", "no URL"),
        ("//hooks.example.org/", "no URL"),
        ("", "no URL"),
        ("https://[::1%25eth0]/", "invalid"),
        ("https://a..b/", "invalid"),
        ("https://[::1/", "invalid"),
        *((f"https://{host}/", "is an address") for host in ("127.0.0.1", "[::1]", "2130706433", "127.1", "0x7f.1")),
        *((f"https://{host}/", "is an address") for host in ("１２７.0.0.1", "0177.0.0.1", "127.0.0.1.")),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(CallbackError, match=reason) as error:
        validate(url, [HOST, "127.0.0.1"])
    assert error.value.hint


def test_a_port_holds_for_its_host_only_and_privacy_for_its_port_only() -> None:
    allowed = ["a.example:8443", "b.example:8444", "b.example"]
    for url in ("https://a.example/", "https://a.example:8444/", "https://b.example:8443/"):
        with pytest.raises(CallbackError, match="not one of the allowed"):
            validate(url, allowed)
    with pytest.raises(CallbackError, match="not https"):
        validate("http://b.example:8444/", allowed, ["b.example"])
    with pytest.raises(CallbackError, match="is an address"):
        validate("https://10.0.0.7:22/", ["10.0.0.7:22"], ["10.0.0.7"])


@pytest.mark.parametrize("host", ["https://hooks.example.org", "hooks.example.org/a", "a:0", "a:65536", "a:b", "", "*"])
def test_a_setting_that_is_no_host_is_refused_with_what_to_give(host: str) -> None:
    for name in ("callback_hosts", "callback_private"):
        with pytest.raises(ConfigError, match="A callback host is invalid") as error:
            ServiceSettings(**{name: (host,)})  # type: ignore[arg-type]
        assert "without https://" in error.value.hint


@given(st.text() | st.from_regex(r"https?://[^/]*hooks.example.org[^/]*/.*"))
def test_no_text_gets_past_the_allowed_hosts(text: str) -> None:
    try:
        url = validate(text, [HOST])
    except CallbackError:
        return
    assert url.isascii()
    assert url.startswith(f"https://{HOST}/")


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_known(address: str) -> None:
    assert is_public(address)
