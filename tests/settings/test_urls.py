"""URLs of servers."""

import pytest

from voxtui.settings.urls import check_url, is_loopback, is_loopback_host


@pytest.mark.parametrize("url", ["http://localhost/v1", "http://127.9.9.9:1/v1", "http://[::1]/v1",
                                 "http://0.0.0.0:8000/v1"])  # fmt: skip
def test_loopback_and_unspecified_addresses_are_this_machine(url):
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["https://far.example/v1", "http://127.0.0.1.far.example/v1",
                                 "http://[::1/v1", "", "http://127.0.0.1@x.example/"])  # fmt: skip
def test_other_and_invalid_urls_are_not_this_machine(url):
    assert not is_loopback(url)


def test_which_hosts_are_this_machine():
    assert all(is_loopback_host(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "LOCALHOST"))
    assert not any(
        is_loopback_host(host) for host in ("0.0.0.0", "::", "192.168.1.2", "example.org")
    )


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000/v1", "https://far.example"])
def test_a_base_url_is_accepted(url):
    check_url("url", url)


@pytest.mark.parametrize(
    "url",
    [
        "far.example/v1",
        "ftp://far.example/v1",
        "http://:8000/v1",
        "http://far.example:0/v1",
        "http://far.example:99999/v1",
        "http://[::1/v1",
        "http://far.example/v 1",
    ],
)
def test_an_invalid_url_is_refused(url):
    with pytest.raises(ValueError, match=r"is not of the form http://HOST:PORT/v1$"):
        check_url("url", url)


@pytest.mark.parametrize(
    "url", ["https://me:secret@far.example/v1", "https://far.example/v1?key=secret"]
)
def test_a_url_with_credentials_is_refused_without_showing_them(url):
    with pytest.raises(ValueError, match="must not contain credentials") as refused:
        check_url("url", url)
    assert "secret" not in str(refused.value)
