"""Several hosts: one job whose ranks run on machines that a remote shell such as ssh reaches.

On each host an agent (`gnndist.hosts.agent`) starts that host's ranks and tells of them through
the remote shell's standard input and output: no daemon, no port of its own. The supervisor sees
the ranks of all hosts as it sees local ones.
"""

from gnndist.hosts.crew import HostsCrew
from gnndist.hosts.link import Connect, run_shell
from gnndist.hosts.names import Hosts, forwarded
from gnndist.hosts.pack import pack

__all__ = ["Connect", "Hosts", "HostsCrew", "forwarded", "pack", "run_shell"]
