"""The network that a prediction assumes: "10Gbit", "50us", how many ranks share a host."""

import re
from dataclasses import dataclass

from gnndist.errors import ConfigError

_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True)
class Network:
    """Hosts that each have one full-duplex link to a switch that never blocks.

    Ranks 0..k − 1 are on the first host, the next k on the second, and so on. Messages between
    ranks of one host do not use its link.
    """

    bandwidth: float = 1.25e9
    """bytes a second that a host can send, and at the same time receive"""
    latency: float = 50e-6
    """seconds from one host to another, on top of the bytes' own time"""
    ranks_per_host: int = 1

    def __post_init__(self) -> None:
        if self.ranks_per_host < 1:
            raise ConfigError(f"{self.ranks_per_host} ranks a host: allowed are 1 and more")

    def host(self, ranks: int) -> list[int]:
        """[ranks] the host of each rank."""
        return [rank // self.ranks_per_host for rank in range(ranks)]


def parse_bandwidth(text: str) -> float:
    """Bytes a second from "10Gbit", "200 Mbit/s" or "1.25GB".

    Raises
    ------
    ConfigError
        for anything else.
    """
    found = re.fullmatch(r"([0-9.]+)\s*([kmgt]?)(bit|b|byte)(/s|ps)?", text.strip(), re.IGNORECASE)
    number = _number(found.group(1)) if found else 0.0
    if found is None or number <= 0:
        raise ConfigError(
            f"bandwidth {text!r}: allowed are figures such as 10Gbit, 200Mbit, 1.25GB"
        )
    unit = found.group(3)
    in_bits = unit.lower() == "bit" or unit == "b"
    return number * _PREFIX[found.group(2).lower()] / (8 if in_bits else 1)


def parse_latency(text: str) -> float:
    """Seconds from "50us", "0.2 ms" or "0".

    Raises
    ------
    ConfigError
        for anything else.
    """
    found = re.fullmatch(r"([0-9.]+)\s*(ns|us|µs|ms|s)?", text.strip())
    number = _number(found.group(1)) if found else -1.0
    if found is None or number < 0 or (number > 0 and found.group(2) is None):
        raise ConfigError(f"latency {text!r}: allowed are figures such as 50us, 0.2ms")
    return number * _SECONDS[found.group(2) or "s"]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
