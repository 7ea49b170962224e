"""What may be read from the web: which addresses, which hosts, and what robots.txt asks. Pure.

An address that a stranger chose, in a link or a redirect, may lead into the user's own network: to
a router, a database, the metadata of a cloud machine. So only public addresses are read, unless
the user has named the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

HOSTS_SETTING: Final = "web.private_hosts"
DOMAINS_SETTING: Final = "policy.web_domains"

_GLOBAL_UNICAST: Final = ip_network("2000::/3")  # All of IPv6 that is given out
_ASSIGNED: Final = ip_network("192.0.0.0/24")
"""For protocols alone, and public to a Python before 3.12.4. A cloud has its metadata there."""
_NAT64: Final = ip_network("64:ff9b::/96")  # IPv4 addresses, as networks of IPv6 alone have them


def is_public_address(text: str) -> bool:
    """Return whether an IP address is one of the public Internet, and not of some own network."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _inner_address(address)
        if inner is not None:
            return is_public_address(str(inner))
        if address not in _GLOBAL_UNICAST:
            return False
    elif address in _ASSIGNED:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner_address(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that one of IPv6 stands for; None where it stands for none."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRules:
    """Which hosts may be read.

    `private_hosts` are those that the user has named, `host` or `host:port`: they may be at any
    address. `domains` are lists of domains, and a host must be in each of them; an empty list
    forbids every host.
    """

    private_hosts: tuple[str, ...] = ()
    domains: tuple[tuple[str, ...], ...] = ()

    def is_named(self, host: str, port: int) -> bool:
        """Return whether the user has named a host, so that it may be at a private address."""
        names = {name.lower() for name in self.private_hosts}
        shown = f"[{host}]" if ":" in host else host
        return not names.isdisjoint({host, shown, f"{shown}:{port}"})

    def is_in_domains(self, host: str) -> bool:
        """Return whether the policy lets a host be read."""
        return all(_is_below(host, domains) for domains in self.domains)


def _is_below(host: str, domains: Iterable[str]) -> bool:
    """Return whether a host is one of these domains, or below one."""
    for domain in domains:
        name = domain.lower().strip(".")
        if host == name or host.endswith(f".{name}"):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _RobotsRule:
    pattern: str
    allows: bool


def robots_allow(robots: str, agent: str, path: str) -> bool:
    """Return whether a robots.txt lets `agent` read a path with its query (RFC 9309).

    The longest pattern that matches decides, and of two that are as long the one that allows. The
    patterns are a stranger's: they are matched piece by piece, and never with backtracking.
    """
    best = _RobotsRule("", allows=True)
    for rule in _rules_for(robots, agent.lower()):
        if not _matches_path(rule.pattern, path):
            continue
        is_longer = len(rule.pattern) > len(best.pattern)
        is_as_long = len(rule.pattern) == len(best.pattern)
        if is_longer or (is_as_long and rule.allows):
            best = rule
    return best.allows


def _rules_for(robots: str, agent: str) -> list[_RobotsRule]:
    """Return the rules of the groups that name an agent; where none does, those for everybody."""
    rules_by_agent: dict[str, list[_RobotsRule]] = {}
    agents: list[str] = []
    is_in_rules = False
    for line in robots.splitlines():
        field, _, value = line.partition("#")[0].partition(":")
        field = field.strip().lower()
        value = value.strip()
        if field == "user-agent":
            if is_in_rules:
                agents = []
            is_in_rules = False
            agents.append(value.lower())
            rules_by_agent.setdefault(value.lower(), [])
        elif field in {"allow", "disallow"}:
            is_in_rules = True
            if value:
                rule = _RobotsRule(value, allows=field == "allow")
                for name in agents:
                    rules_by_agent[name].append(rule)
    return rules_by_agent.get(agent, rules_by_agent.get("*", []))


def _matches_path(pattern: str, path: str) -> bool:
    """Return whether a pattern matches the beginning of a path; `*` is any text, `$` the end."""
    is_whole = pattern.endswith("$")
    first, *pieces = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    position = len(first)
    last = ""
    if is_whole and pieces:
        last = pieces.pop()
    for piece in pieces:
        start = path.find(piece, position)
        if start < 0:
            return False
        position = start + len(piece)
    if not is_whole:
        return True
    if "*" not in pattern:
        return position == len(path)
    return path.endswith(last) and len(path) - len(last) >= position


def first_private(addresses: Sequence[str]) -> str:
    """Return the first address that is not public; empty where all are."""
    for address in addresses:
        if not is_public_address(address):
            return address
    return ""
