"""Which addresses are public, which hosts may be read, and what a robots.txt allows."""

from __future__ import annotations

import time

import pytest

from conductor_cli.core.web_access import WebRules, is_public_address, robots_allow


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.192",
        "::ffff:192.0.0.192",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::1",
        "2002:a00:1::1",
        "2001:0:7f00:1::1",
        "2001:db8::1",
        "no address",
    ],
)
def test_an_address_of_some_own_network_is_not_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:2800:21f::1", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public_address(address)


def test_a_host_is_named_with_or_without_its_port() -> None:
    rules = WebRules(private_hosts=("Wiki.intern", "127.0.0.1:8080", "[::1]"))
    assert rules.is_named("wiki.intern", 443)
    assert rules.is_named("127.0.0.1", 8080)
    assert not rules.is_named("127.0.0.1", 8081)
    assert rules.is_named("::1", 80)
    assert not rules.is_named("evil-wiki.intern", 443)


def test_a_host_must_be_in_each_list_of_domains() -> None:
    rules = WebRules(domains=(("example.com", "python.org"), ("docs.python.org",)))
    assert rules.is_in_domains("docs.python.org")
    assert not rules.is_in_domains("example.com")
    assert not rules.is_in_domains("docs.python.org.evil.example")
    assert not WebRules(domains=((),)).is_in_domains("example.com")
    assert WebRules().is_in_domains("example.com")


ROBOTS = """
User-agent: otherbot
Disallow: /

User-agent: *
Disallow: /private/   # not for programs
Disallow: /*.pdf$
Disallow: /search?*q=
Allow: /private/open
"""


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/", True),
        ("/private/a", False),
        ("/private/open/a", True),
        ("/a/b.pdf", False),
        ("/a/b.pdf.html", True),
        ("/search?x=1&q=2", False),
        ("/search", True),
    ],
)
def test_the_longest_pattern_of_a_robots_txt_decides(path: str, is_allowed: bool) -> None:
    assert robots_allow(ROBOTS, "conductor-llm", path) is is_allowed


def test_a_group_of_ones_own_name_counts_in_place_of_that_for_all() -> None:
    robots = "User-agent: *\nDisallow: /\n\nUser-agent: other\nUser-agent: Conductor-LLM\nAllow: /"
    assert robots_allow(robots, "conductor-llm", "/a")
    assert not robots_allow(robots, "another", "/a")
    assert robots_allow("", "conductor-llm", "/a")


def test_a_hostile_pattern_takes_no_time() -> None:
    robots = "User-agent: *\nDisallow: /" + "*a" * 500 + "b$"
    start = time.process_time()
    assert robots_allow(robots, "conductor-llm", "/" + "a" * 2000)
    assert time.process_time() - start < 1
