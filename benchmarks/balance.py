"""Whether ranks have equal work: each rank's processor seconds, by the weight of a vertex.

    python benchmarks/balance.py npz/wordnet30.npz --root DATA --ranks 2,4

The graph is partitioned with `--vertex-work 1` and with `--vertex-work measured`, and trained on
ranks of one thread, the stores taking turns. `cores` is the processor time of an epoch, busiest
rank ÷ mean, which other programs on the machine disturb less than the clock; medians over rounds.
`edges` and `vertices` are counted likewise; `halo` is the sum over ranks of remote vertices read
÷ vertices.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gnndist.store import Store

WORK = ("1", "measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graph")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = [f"--layers={options.layers}", f"--hidden={options.hidden}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for work in WORK:
            make_store(options, folder / work, work, model if work == "measured" else [])
        print(f"{'ranks':>5} {'weight':>7} {'halo':>6} {'edges':>6} {'vertices':>9} {'cores':>6}")
        for ranks in map(int, options.ranks.split(",")):
            rounds: dict[str, list[dict[str, float]]] = {work: [] for work in WORK}
            for number in range(options.rounds):
                for work in WORK:
                    run = folder / f"run-{work}-{ranks}-{number}"
                    rounds[work].append(train(folder / work, run, ranks, options.epochs, model))
            for work in WORK:
                say(ranks, Store.open(folder / work), rounds[work])


def make_store(options: argparse.Namespace, out: Path, work: str, model: list[str]) -> None:
    path = options.root / options.graph
    graph = str(path) if path.is_file() else options.graph
    where = [f"--out={out}", f"--root={options.root}"]
    command("partition", graph, *where, f"--vertex-work={work}", *model)


def train(store: Path, run: Path, ranks: int, epochs: int, model: list[str]) -> dict[str, float]:
    """Figures of one training: busiest rank ÷ mean."""
    often = [f"--epochs={epochs}", f"--eval-every={epochs}"]
    one_thread = ["--threads=1", "--device=cpu", f"--ranks={ranks}", f"--out={run}"]
    command("train", str(store), *model, *often, *one_thread)
    found = json.loads((run / "ranks.json").read_text())["ranks"]
    names = {"edges": "edges", "vertices": "vertices", "cores": "cpu_s"}
    figures = {name: busiest(found, key) for name, key in names.items()}
    return figures | {"halo": sum(r["halo"] for r in found) / sum(r["vertices"] for r in found)}


def busiest(ranks: list[dict[str, Any]], key: str) -> float:
    amounts = [float(rank[key]) for rank in ranks]
    return max(amounts) / statistics.mean(amounts)


def say(ranks: int, store: Store, rounds: list[dict[str, float]]) -> None:
    work = store.manifest.partitioning["vertex_work"]
    halo, edges, vertices, cores = (
        statistics.median(one[name] for one in rounds)
        for name in ("halo", "edges", "vertices", "cores")
    )
    print(
        f"{ranks:>5} {work:>7} {halo:>6.3f} {edges:>6.3f} {vertices:>9.3f} {cores:>6.3f}",
        flush=True,
    )


def command(*arguments: str) -> None:
    """`gnndist ARGUMENTS`; its last words if it fails."""
    words = [sys.executable, "-m", "gnndist", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())


if __name__ == "__main__":
    main()
