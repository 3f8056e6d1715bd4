"""Which hosts a job runs on and how they are reached."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from gnndist.errors import ConfigError
from gnndist.network import is_here

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
AGENT = "gnndist.hosts.agent"


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The hosts of a job, in the order of their ranks.

    Raises
    ------
    ConfigError
        no host, one named twice, no ranks, or a host that only this machine knows.
    """

    names: tuple[str, ...]
    """as the remote shell takes them: a name, an address, or user@name"""
    ranks_per_host: int = 1
    remote_shell: str = SSH
    """a command that takes a host and a command line for its shell, as ssh does"""
    remote_python: str = field(default_factory=lambda: sys.executable)
    """the interpreter there that has gnndist"""
    port: int = 0
    """of the first host, where all ranks meet; 0: any that is free"""

    def __post_init__(self) -> None:
        if not self.names or not all(self.names):
            raise ConfigError(f"--hosts {','.join(self.names)!r}: allowed are names, a,b,c")
        for name in self.names:
            if self.names.count(name) > 1:
                raise ConfigError(
                    f"--hosts names {name} twice: for several ranks a host use --ranks-per-host"
                )
            if len(self.names) > 1 and address_part(name) in ("localhost", "127.0.0.1", "::1"):
                raise ConfigError(
                    f"--hosts names {name}, which means another machine on every host: "
                    "use the name that the other hosts know it by"
                )
        if self.ranks_per_host < 1:
            raise ConfigError(f"--ranks-per-host {self.ranks_per_host}: allowed are 1 and more")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"--port {self.port}: allowed are 0 to 65535")

    @classmethod
    def parse(cls, names: str, **options: object) -> "Hosts":
        """From a list separated by commas; options that are None keep their defaults."""
        given = {name: value for name, value in options.items() if value is not None}
        return cls(names=tuple(name.strip() for name in names.split(",")), **given)  # type: ignore[arg-type]

    @property
    def ranks(self) -> int:
        return len(self.names) * self.ranks_per_host

    def ranks_of(self, host: int) -> range:
        """The ranks of the host'th host."""
        first = host * self.ranks_per_host
        return range(first, first + self.ranks_per_host)

    def command(self, host: int) -> list[str]:
        """What starts the agent of the host'th host."""
        if is_here(address_part(self.names[host])):
            return [sys.executable, "-P", "-m", AGENT]
        line = f"exec {shlex.quote(self.remote_python)} -P -m {AGENT}"
        return [*shlex.split(self.remote_shell), self.names[host], line]


def address_part(name: str) -> str:
    """A host's name without the user's."""
    return name.rpartition("@")[2]


FORWARDED = ("GNNDIST_", "GLOO_", "NCCL_", "TORCH_", "OMP_", "MKL_", "KMP_", "NUMBA_", "CUDA_")
FORWARDED_TOO = ("PYTHONPATH", "THP_MEM_ALLOC_ENABLE")


def forwarded(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What other hosts get of this machine's environment; the rest is theirs."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(FORWARDED) or name in FORWARDED_TOO
    }
