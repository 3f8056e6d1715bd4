"""gnndist: rank 0 of a job of some ranks, which starts the others itself.

It trains as `gnndist train` does: the same trainer on the same store, in the environment that its
launcher gives a rank.
"""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from peers.child import claim_stdout, memory, serve
from peers.problem import Problem

import gnndist
from gnndist.comm import Comm
from gnndist.launch import joined
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

PATIENCE_S = 3600.0
"""how long ranks wait for one another: the other contenders run meanwhile"""


def start_others(ranks: int) -> list[subprocess.Popen[bytes]]:
    """Start ranks 1 … of this same command and make this process rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, "-m", "peers.gnndist_peer", *sys.argv[1:]]

    def environment(rank: int) -> dict[str, str]:
        return job | {"RANK": str(rank), "LOCAL_RANK": str(rank)}

    others = [
        subprocess.Popen(command, env=os.environ | environment(rank), stdin=subprocess.DEVNULL)
        for rank in range(1, ranks)
    ]
    os.environ.update(environment(0))
    return others


def make_trainer(problem: Problem, comm: Comm) -> Trainer:
    config = TrainConfig(
        model=problem.model,
        layers=problem.layers,
        hidden=problem.hidden,
        **({"heads": problem.heads} if problem.model == "gat" else {}),
        dropout=problem.dropout,
        lr=problem.lr,
        dtype=problem.dtype,
        seed=problem.seed,
        device="cpu",
    )
    trainer = Trainer.create(Store.open(problem.store), config, comm, torch.device("cpu"))
    trainer.model.load_state_dict(state_of(problem))
    return trainer


def state_of(problem: Problem) -> dict[str, torch.Tensor]:
    """The first weights under the names of gnndist's layers."""
    names = {
        "gcn": {"weight": "lin.weight", "bias": "bias"},
        "sage": {"weight": "lin_l.weight", "bias": "lin_l.bias", "self": "lin_r.weight"},
        "gat": {"weight": "lin.weight", "bias": "bias", "source": "att_src", "target": "att_dst"},
    }[problem.model]
    state = {}
    for name, weight in problem.weights().items():
        layer, _, part = name.partition(".")
        tensor = torch.from_numpy(weight)
        # Attention vectors have a leading dimension of 1 in the layer.
        vector = part in ("source", "target")
        state[f"convs.{layer}.{names[part]}"] = tensor[None] if vector else tensor
    return state


@dataclass
class Job:
    """One rank's part of the epochs that rank 0 is told to run."""

    trainer: Trainer
    comm: Comm
    seconds: list[float] = field(default_factory=list)

    def signal(self, go: bool) -> bool:
        """Wait until rank 0 says whether there is another epoch."""
        flag = torch.tensor([float(go)])
        self.comm.all_reduce(flag)
        self.comm.meter.take()
        return bool(flag > 0)

    def report(self) -> dict[str, Any]:
        """Memory by rank, bytes that all ranks sent and the longest wait for an exchange."""
        reading = self.comm.meter.take()
        mine = (memory(), reading.bytes_sent, reading.wait_s)
        ranks = self.comm.all_gather(mine)
        return {
            "memory": [m for m, _, _ in ranks],
            "bytes_sent": sum(b for _, b, _ in ranks),
            "wait_s": max(w for _, _, w in ranks),
        }


def main() -> None:
    channel = claim_stdout()
    problem, threads, ranks = Problem.read(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    others = start_others(ranks) if ranks > 1 and "RANK" not in os.environ else []
    with joined(torch.device("cpu"), threads=threads, timeout_s=PATIENCE_S) as comm:
        job = Job(trainer=make_trainer(problem, comm), comm=comm)
        if comm.rank == 0:
            versions = {"gnndist": gnndist.__version__, "torch": torch.__version__}
            serve(
                channel,
                versions,
                job.trainer.step,
                ready=lambda: job.signal(go=True) and None,
                report=job.report,
            )
            job.signal(go=False)
        else:
            epoch = 0
            while job.signal(go=False):
                epoch += 1
                job.trainer.step(epoch)
                job.report()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
