"""Real hosts on one machine: network namespaces with addresses of their own, joined by a switch.

Each host has a namespace with one interface, eth0. The switch is a bridge in a namespace of its
own, so no packet leaves what is made here. Links have a rate (tc tbf, both ways) and can be cut.
A host's processes see its name: they run in a UTS namespace too.
"""

import ctypes
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from gnndist.crew import PORT_SOCKET

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
BURST_S = 0.004
"""how much of a link's rate may pass at once: what the kernel's clock needs at 10 Gbit/s"""


def why_not() -> str | None:
    """Why this system does not allow namespaces, if it does not."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"no {tool} (iproute2) here"
    probe = f"gnnd-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    link = f"ip -n {probe} link add p0 type veth peer name p1"
    made = subprocess.run(link.split(), capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return f"no virtual links here: {made.stderr.strip()}" if made.returncode else None


class Network:
    """Some hosts on a switch; everything is gone when the block ends."""

    def __init__(self, hosts: int, *, rate: str | None = None, prefix: str = "gnnd") -> None:
        self._prefix = f"{prefix}-{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        self.names = [f"host{chr(ord('a') + k)}" for k in range(hosts)]
        self.addresses = [f"10.77.0.{k + 1}" for k in range(hosts)]
        self._rate = rate
        self._mounts: dict[int, list[tuple[str, str]]] = {}

    def namespace(self, host: int) -> str:
        return f"{self._prefix}-{self.names[host]}"

    def __enter__(self) -> "Network":
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _make(self) -> None:
        run(f"ip netns add {self._switch}")
        run(f"ip -n {self._switch} link add br0 type bridge")
        run(f"ip -n {self._switch} link set br0 up")
        for host, address in enumerate(self.addresses):
            space = self.namespace(host)
            run(f"ip netns add {space}")
            run(f"ip -n {space} link set lo up")
            run(f"ip -n {space} link add eth0 type veth peer name port{host} netns {self._switch}")
            run(f"ip -n {self._switch} link set port{host} master br0 up")
            run(f"ip -n {space} address add {address}/24 dev eth0")
            run(f"ip -n {space} link set eth0 up")
            folder = Path("/etc/netns") / space
            folder.mkdir(parents=True)
            lines = [f"{a} {n}" for a, n in zip(self.addresses, self.names, strict=True)]
            (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        if self._rate is not None:
            self.limit(self._rate)

    def limit(self, rate: str) -> None:
        """Limit every link, each way, to a rate such as 1gbit."""
        number = float(rate.removesuffix("gbit").removesuffix("mbit"))
        bits = number * (1e9 if rate.endswith("gbit") else 1e6)
        burst = max(128 << 10, int(bits / 8 * BURST_S))
        tbf = f"root tbf rate {rate} burst {burst} latency 100ms"
        for host in range(len(self.names)):
            run(f"tc -n {self.namespace(host)} qdisc replace dev eth0 {tbf}")
            run(f"tc -n {self._switch} qdisc replace dev port{host} {tbf}")

    def cut(self, host: int) -> None:
        """Pull the cable: packets vanish, connections stay open."""
        run(f"ip -n {self._switch} link set port{host} down")

    def restore(self, host: int) -> None:
        run(f"ip -n {self._switch} link set port{host} up")

    def processes(self, host: int) -> list[int]:
        """Process ids of everything that runs on a host."""
        found = run(f"ip netns pids {self.namespace(host)}")
        return [int(pid) for pid in found.split()]

    def kill(self, host: int) -> None:
        """Kill everything that runs on a host."""
        for pid in self.processes(host):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def bytes_sent(self, host: int) -> int:
        """What a host's interface has sent, headers included."""
        folder = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(run(f"ip netns exec {self.namespace(host)} cat {folder}"))

    def remove(self) -> None:
        spaces = [self._switch, *(self.namespace(host) for host in range(len(self.names)))]
        there = {line.split()[0] for line in run("ip netns list").splitlines() if line}
        for host in range(len(self.names)):
            if self.namespace(host) in there:
                self.kill(host)
        for space in spaces:
            if space in there:
                run(f"ip netns delete {space}")
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)

    # --- how a launcher gets there --------------------------------------------------------------

    def shell(self, folder: Path) -> str:
        """A command that works as ssh does: HOST, COMMAND LINE."""
        script = folder / "netns-shell"
        cases = "\n".join(
            f"  {name}|{address}) space={self.namespace(host)} name={name};;"
            for host, (name, address) in enumerate(zip(self.names, self.addresses, strict=True))
        )
        script.write_text(
            f'#!/bin/sh\ncase $1 in\n{cases}\n  *) echo "unknown host $1" >&2; exit 255;;\nesac\n'
            "shift\n"
            'exec ip netns exec "$space" unshare --uts sh -c "hostname $name; $*"\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return str(script)

    def mount(self, host: int, source: Path, target: Path) -> None:
        """Let a host's processes see one folder where the others see another."""
        self._mounts.setdefault(host, []).append((str(source), str(target)))

    def _place(self, host: int) -> "Place":
        mounts = tuple(self._mounts.get(host, ()))
        return Place(namespace=self.namespace(host), name=self.names[host], mounts=mounts)

    def run_on(self, host: int, work: Callable[..., None], *args: Any) -> Any:
        """A process on a host that runs ``work(*args)``, forked from a warm one."""
        from processes import fork_server

        process = fork_server().Process(target=_work, args=(self._place(host), work, args))
        process.start()
        return process

    def connect(self, command: Sequence[str], stdin: int, stdout: int, stderr: int) -> "Forked":
        """An agent on the host that a command names, forked from a warm process."""
        from processes import fork_server

        wanted = command[-2]
        known = self.names if wanted in self.names else self.addresses
        pipes = [Connection(os.dup(fd), writable=fd != stdin) for fd in (stdin, stdout, stderr)]
        host = known.index(wanted)
        process = fork_server().Process(
            target=_agent, args=(self._place(host), *pipes, dict(os.environ))
        )
        process.start()
        for pipe in pipes:
            pipe.close()
        return Forked(process)


class Forked:
    """A forked agent, as a link sees its remote shell."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()


@dataclass(frozen=True, kw_only=True)
class Place:
    """What makes a process one of a host's."""

    namespace: str
    name: str
    mounts: tuple[tuple[str, str], ...] = ()

    def enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/var/run/netns/{self.namespace}") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) or libc.unshare(CLONE_NEWUTS | CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace}")
        socket.sethostname(self.name)
        platform._uname_cache = None  # it remembers the name that the fork server has
        run("mount --make-rprivate /")
        run(f"mount --bind /etc/netns/{self.namespace}/hosts /etc/hosts")
        for source, target in self.mounts:
            run(f"mount --bind {source} {target}")


def _work(place: Place, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.setsid()
    place.enter()
    work(*args)


def _agent(
    place: Place,
    stdin: Connection,
    stdout: Connection,
    stderr: Connection,
    environment: dict[str, str],
) -> None:
    os.setsid()
    place.enter()
    os.environ.clear()
    os.environ.update(environment)
    for target, pipe in enumerate((stdin, stdout, stderr)):
        os.dup2(pipe.fileno(), target)
        pipe.close()
    from gnndist.hosts import agent

    agent.main(start=_fork_rank)


class _Child:
    """A rank forked from its agent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _fork_rank(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> _Child:
    pid = os.fork()
    if pid:
        return _Child(pid)
    from jobs import run_here

    os.setsid()
    kept = environment.get(PORT_SOCKET)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2 and entry.name != kept:
            with suppress(OSError):
                os.close(int(entry.name))
    run_here(arguments, environment, log)
    os._exit(0)


def run(command: str) -> str:
    """Run a command; what it prints.

    Raises
    ------
    RuntimeError
        with what it said, if it failed.
    """
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
    return done.stdout


def wait_until(true: Any, timeout_s: float = 30) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
