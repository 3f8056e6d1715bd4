"""Which way hosts reach one another: names, routes and interfaces. No torch, no ranks."""

import ipaddress
import os
import socket

import psutil

from gnndist.errors import ConfigError

INTERFACE = "GLOO_SOCKET_IFNAME"
"""environment variable: the interface that gloo binds to"""
IP = (socket.AF_INET, socket.AF_INET6)


def addresses_of(name: str) -> list[str]:
    """The addresses that this host finds for a name, none if it knows none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def own_addresses() -> dict[str, str]:
    """This host's addresses that others may reach → their interfaces; those that are up."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    found = {}
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if interface in up and entry.family in IP and not _only_here(entry.address):
                found[entry.address] = interface
    return found


def is_here(name: str) -> bool:
    """Whether a host's name or address means this machine."""
    here = socket.gethostname()
    if name in (here, here.partition(".")[0]):
        return True
    own = own_addresses()
    return any(address in own or _is_loopback(address) for address in addresses_of(name))


def source_towards(address: str) -> str | None:
    """The own address from which packets to `address` leave; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def interface_towards(host: str) -> str | None:
    """The interface on the way to another host; of this host itself, the one it is known by.

    None where that cannot be told: the name is unknown here, or means a loopback address.
    """
    own = own_addresses()
    for address in addresses_of(host):
        source = source_towards(address)
        if source in own:
            return own[source]
    return None


def default_interface() -> str | None:
    """The interface that most traffic leaves by, else the first that is up."""
    own = own_addresses()
    # Documentation addresses (RFC 5737, RFC 3849): routed like any other, belonging to nobody.
    for anywhere in ("192.0.2.1", "2001:db8::1"):
        source = source_towards(anywhere)
        if source in own:
            return own[source]
    return next(iter(own.values()), None)


def choose_interface(first_host: str, *, several_hosts: bool) -> str | None:
    """The interface for traffic between ranks; None: leave it to the transport.

    What the environment names is checked and taken. Ranks of one host talk over loopback; those of
    several over the interface on the way to the first rank's host.

    Raises
    ------
    ConfigError
        if the environment names an interface that this host does not have, or loopback where there
        are several hosts.
    """
    named = os.environ.get(INTERFACE)
    if named:
        check_interface(named, several_hosts=several_hosts)
        return named
    if not several_hosts:
        return next((name for name in psutil.net_if_addrs() if name == "lo"), None)
    return interface_towards(first_host) or default_interface()


def check_interface(named: str, *, several_hosts: bool) -> None:
    """Refuse an interface that is not there or cannot reach another host."""
    there = psutil.net_if_addrs()
    for name in named.split(","):
        if name not in there:
            raise ConfigError(
                f"{INTERFACE} = {named!r}: host {socket.gethostname()} has {', '.join(there)}"
            )
        addresses = (entry.address for entry in there[name] if entry.family in IP)
        loopback = all(_only_here(address) for address in addresses)
        if several_hosts and loopback:
            usable = dict.fromkeys(own_addresses().values())
            raise ConfigError(
                f"{INTERFACE} = {named!r}: it reaches no other host; host {socket.gethostname()} "
                f"has {', '.join(usable) or 'no interface that does'}"
            )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _only_here(address: str) -> bool:
    """Whether no other host can use an address: loopback, or one that needs an interface's name."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return parsed.is_loopback or parsed.is_link_local
