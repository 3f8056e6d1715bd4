"""The socket at which the ranks of all hosts meet, and whether every host can reach it.

The first host's agent listens before any rank starts, so that the port is theirs for certain and a
host that cannot reach it is named at once. Whoever connects says which address it took and is
answered with the job's token; rank 0 then takes the socket over. Both ends note the interface that
the connection went over: gloo binds to it.
"""

import errno
import socket
from contextlib import suppress

from gnndist.errors import ConfigError
from gnndist.network import own_addresses

REACH_S = 5.0
"""how long one attempt to connect may take"""


class Meeting:
    """The first host's socket.

    Raises
    ------
    ConfigError
        if the port is taken.
    """

    def __init__(self, port: int, token: str) -> None:
        self._token = token.encode()
        both = socket.has_dualstack_ipv6()
        try:
            self.socket = socket.create_server(
                ("", port),
                family=socket.AF_INET6 if both else socket.AF_INET,
                dualstack_ipv6=both,
                backlog=1024,
            )
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                what = "is taken" if error.errno == errno.EADDRINUSE else "needs privileges"
                raise ConfigError(f"port {port} {what}: choose another --port") from error
            raise ConfigError(f"cannot listen on port {port}: {error.strerror}") from error
        self.port: int = self.socket.getsockname()[1]
        self.interfaces: dict[str, str] = {}
        """the address that another host took → the interface here that it came in by"""

    def answer(self) -> None:
        """Answer one host that waits."""
        with suppress(OSError):
            connection, _ = self.socket.accept()
            with connection:
                connection.settimeout(REACH_S)
                address = _line(connection)
                connection.sendall(self._token + b"\n")
                interface = own_addresses().get(_plain(connection.getsockname()[0]))
                if interface is not None:
                    self.interfaces[address] = interface


def reach(address: str, port: int, token: str) -> str:
    """Connect to the first host at an address; the interface here that leads to it, if known.

    Raises
    ------
    OSError
        saying why it cannot be reached.
    """
    try:
        with socket.create_connection((address, port), timeout=REACH_S) as connection:
            connection.sendall(address.encode() + b"\n")
            if _line(connection) != token:
                raise OSError("something else answers there")
            return own_addresses().get(_plain(connection.getsockname()[0]), "")
    except socket.gaierror as error:
        raise OSError("unknown name") from error
    except TimeoutError as error:
        raise OSError("no answer") from error


def _line(connection: socket.socket) -> str:
    text = b""
    while not text.endswith(b"\n") and len(text) < 1024 and (block := connection.recv(256)):
        text += block
    return text.decode(errors="replace").strip()


def _plain(address: str) -> str:
    """An IPv4 address as it is, though an IPv6 socket has it."""
    return address.removeprefix("::ffff:")
