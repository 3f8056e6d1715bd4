"""Training over links of a given rate: epoch time, exposed wait, and what overlap and savings give.

    python benchmarks/network.py --graph synthetic:arxiv --json network.json

Hosts are network namespaces of this machine, one rank each, on a switch whose links have the rate
(tc tbf); it needs root and iproute2. Three-layer GCN of width 256, dropout .5. Every time is the
median over epochs of the slowest rank's.

exchange   what an epoch's exchanges take with nothing beside them
exposed    what of it an epoch waits for
wire       bytes by the interface's counter ÷ bytes that the ranks say they sent (in the exchanges
           alone, so without gradient sums)
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from links.hosts import Ranks, on_hosts, on_loopback
from rich.console import Console
from rich.table import Table

from gnndist.data import load
from gnndist.store import Store, write_store
from gnndist.units import duration, size

WITHOUT = dict.fromkeys(("cover", "linear_first", "propagate_once", "active_sets"), False)
VARIANTS: dict[str, dict[str, Any]] = {
    "both": {},
    "no overlap": {"overlap": False},
    "no savings": WITHOUT,
    "neither": {"overlap": False, **WITHOUT},
}
MODEL = {"model": "gcn", "layers": 3, "hidden": 256, "dropout": 0.5, "device": "cpu"}
LOOPBACK = "loopback"


def measure(ranks: Ranks, variant: str, epochs: int, warmup: int) -> dict[str, Any]:
    """The figures of one variant at the links' present rate."""
    replies = ranks.run(config={**MODEL, **VARIANTS[variant]}, epochs=epochs, warmup=warmup)
    losses = {tuple(e["loss"] for e in reply["epochs"]) for reply in replies}
    assert len(losses) == 1, "ranks disagree about the loss"

    def slowest(key: str) -> float:
        each = zip(*([e[key] for e in reply["epochs"]] for reply in replies), strict=True)
        return statistics.median(max(values) for values in each)

    alone = [reply["alone"] for reply in replies]
    sent = sum(reply["epochs"][-1]["sent"] for reply in replies)
    said, counted = sum(a["sent"] for a in alone), sum(a["counted"] for a in alone)
    return {
        "epoch_s": slowest("epoch_s"),
        "wait_s": slowest("wait_s"),
        "reduce_s": slowest("reduce_s"),
        "exchange_s": max(a["seconds"] for a in alone),
        "bytes_sent": sent,
        "counted_ratio": counted / said if said else None,
        "loss": replies[0]["epochs"][-1]["loss"],
        "ranks": replies,
    }


def run(store: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """rate → variant → figures."""
    found: dict[str, dict[str, Any]] = {}
    with on_loopback(store, options.hosts, options.threads) as ranks:
        found[LOOPBACK] = {"both": measure(ranks, "both", options.epochs, options.warmup)}
    with on_hosts(store, options.hosts, options.threads) as (ranks, net):
        for rate in options.rates.split(","):
            net.limit(rate)
            found[rate] = {}
            for variant in options.variants.split(","):
                figures = measure(ranks, variant, options.epochs, options.warmup)
                found[rate][variant] = figures
                print(f"{rate}, {variant}: {duration(figures['epoch_s'])} an epoch", flush=True)
    return found


def table(found: dict[str, dict[str, Any]]) -> Table:
    columns = ("link", "variant", "epoch", "sent", "exchange", "exposed", "share", "sums", "wire")
    rows = Table(*columns)
    for rate, variants in found.items():
        for variant, f in variants.items():
            rows.add_row(
                rate,
                variant,
                duration(f["epoch_s"]),
                size(f["bytes_sent"]),
                duration(f["exchange_s"]),
                duration(f["wait_s"]),
                f"{f['wait_s'] / f['exchange_s']:.0%}",
                duration(f["reduce_s"]),
                "" if rate == LOOPBACK else f"{f['counted_ratio']:.3f}",
            )
    return rows


def checks(found: dict[str, dict[str, Any]]) -> list[tuple[str, float, float]]:
    """(what, measured, at most)."""
    rows = []
    fast = found[LOOPBACK]["both"]["epoch_s"]
    if (gbit := found.get("1gbit")) and "both" in gbit:
        both = gbit["both"]
        rows.append(("1 Gbit/s: exposed ÷ exchange", both["wait_s"] / both["exchange_s"], 0.15))
        rows.append(("1 Gbit/s: epoch ÷ loopback's", both["epoch_s"] / fast, 1.1))
    for rate, limit in (("1gbit", 0.7), ("200mbit", 0.5)):
        variants = found.get(rate, {})
        if "both" in variants and "neither" in variants:
            ratio = variants["both"]["epoch_s"] / variants["neither"]["epoch_s"]
            rows.append((f"{rate}: with both ÷ with neither", ratio, limit))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--graph", default="synthetic:arxiv", help="as `gnndist partition` takes it"
    )
    parser.add_argument("--store", type=Path, help="a store of it that is there already")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="a rank")
    parser.add_argument("--rates", default="10gbit,1gbit,200mbit")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder) / "store"
        if options.store is None:
            write_store(load(options.graph), store)
        name = Store.open(store).manifest.name
        found = run(store, options)
    console = Console(width=100)
    console.print(
        f"{name}, {options.hosts} hosts × {options.threads} threads, {os.cpu_count()} cores"
    )
    console.print(table(found))
    for what, measured, limit in checks(found):
        verdict = "" if measured <= limit else "   more than wanted"
        console.print(f"{what}: {measured:.2f} (at most {limit}){verdict}", highlight=False)
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options), "found": found}, default=str))


if __name__ == "__main__":
    main()
