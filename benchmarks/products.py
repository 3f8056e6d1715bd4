"""A graph of ogbn-products' size on a small machine: time and memory beside the targets.

    python benchmarks/products.py --json products.json
    python benchmarks/products.py --scale 0.02

The user's own commands, each a child process: `gnndist partition synthetic:products` by each
method and, out of core, from a file on disk; then `gnndist train`, GraphSAGE of 3 layers of 256, on
the first store. Memory is that of a command and of all that it starts: together, beyond pages of
files (which the system takes back when it needs them), and of its largest process. A command that
dies is shown with the reason. Prints Markdown; the whole takes half an hour and 8 GB of disk.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from commands.memory import Finished, watched

from gnndist.data import load
from gnndist.units import duration

GIB = 1 << 30
FILE = "file"
"""as a method: `ldg` on an input file on disk"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a step may take, at full size."""

    seconds: float = float("inf")
    together: float = float("inf")
    """bytes"""
    beyond_files: float = float("inf")
    """bytes"""

    def missed(self, run: Finished) -> list[str]:
        """What of it the run does not meet, in words."""
        found = [run.failed] if run.failed else []
        if run.seconds > self.seconds:
            found.append(f"{duration(run.seconds)}, wanted {duration(self.seconds)}")
        for name in ("together", "beyond_files"):
            most, wanted = getattr(run.peak, name), getattr(self, name)
            if most > wanted:
                found.append(f"{gib(most)} {WORDS[name]}, wanted {wanted / GIB:g} GiB")
        return found

    def __str__(self) -> str:
        parts = [duration(self.seconds)] if np.isfinite(self.seconds) else []
        for name, words in WORDS.items():
            if np.isfinite(value := getattr(self, name)):
                parts.append(f"{value / GIB:g} GiB {words}")
        return ", ".join(parts)


WORDS = {"together": "together", "beyond_files": "beyond files"}
INLINE = Target(seconds=900, together=14 * GIB)
STREAMED = Target(beyond_files=4 * GIB)
TARGETS = {
    "metis": INLINE,
    "kaminpar": INLINE,
    "ldg": STREAMED,
    FILE: STREAMED,
    "natural": Target(),
}
TRAINING = Target(together=20 * GIB)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of the table."""

    name: str
    target: Target
    run: Finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of vertices and edges")
    parser.add_argument("--methods", default=f"kaminpar,ldg,{FILE}", help=f"{', '.join(TARGETS)}")
    parser.add_argument("--store", type=Path, help="train on this one")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="0: no training")
    parser.add_argument("--folder", type=Path, help="for stores, runs and logs, which stay there")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    dataset = "synthetic:products" + (f"@{options.scale:g}" if options.scale != 1 else "")
    if options.write is not None:
        write_file(dataset, options.write)
        return
    methods = [name for name in options.methods.split(",") if name]
    if wrong := sorted(set(methods) - set(TARGETS)):
        parser.error(f"--methods {','.join(wrong)}: allowed are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        steps = list(run_steps(dataset, methods, folder, options))
        figures = {
            "machine": machine(),
            "dataset": dataset,
            "steps": {step.name: {**asdict(step.run), "missed": missed(step)} for step in steps},
            "training": result(folder / "run") if trained(steps) else None,
        }
    print("\n".join(report(figures, steps)))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2, default=str))


def run_steps(
    dataset: str, methods: list[str], folder: Path, options: argparse.Namespace
) -> Iterator[Step]:
    """Run the commands one after the other; each is told of on standard error."""

    def step(name: str, target: Target, *command: object) -> Step:
        words = [sys.executable, *map(str, command)]
        print(f"{name}: {' '.join(words[1:])}", file=sys.stderr, flush=True)
        return Step(name=name, target=target, run=watched(words, folder / f"{name}.log"))

    gnndist: tuple[object, ...] = ("-m", "gnndist")
    store: Path | None = options.store
    for method in methods:
        source: object = dataset
        flags: tuple[object, ...] = ("--method", method, "--overwrite")
        if method == FILE:
            source = folder / "products.npz"
            yield step("input", Target(), __file__, "--write", source, "--scale", options.scale)
            flags = ("--method", "ldg", "--overwrite", "--scratch", folder)
        out = folder / f"store-{method}"
        done = step(method, TARGETS[method], *gnndist, "partition", source, "--out", out, *flags)
        yield done
        if store is None and not done.run.failed:
            store = out
    if store is not None and options.epochs:
        model = ("--model", "sage", "--layers", 3, "--hidden", 256, "--ranks", options.ranks)
        epochs = ("--epochs", options.epochs, "--eval-every", options.epochs)
        run = ("--out", folder / "run", "--overwrite")
        yield step("train", TRAINING, *gnndist, "train", store, *model, *epochs, *run)


def write_file(dataset: str, path: Path) -> None:
    """The graph as an uncompressed archive with each undirected edge once."""
    graph = load(dataset)
    source = graph.indices
    destination = np.repeat(
        np.arange(graph.num_vertices, dtype=source.dtype), np.diff(graph.indptr)
    )
    once = source < destination
    arrays: dict[str, Any] = {
        "edge_index": np.stack([source[once], destination[once]]),
        "node_feat": graph.features,
        "node_label": graph.labels,
        **graph.splits,
    }
    np.savez(path, **arrays)


def trained(steps: list[Step]) -> bool:
    return any(step.name == "train" and not step.run.failed for step in steps)


def result(run: Path) -> dict[str, Any]:
    """The figures of a finished training."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    figures: dict[str, Any] = json.loads((run / "result.json").read_text())
    return figures | {"epochs_s": [json.loads(line)["epoch_s"] for line in lines]}


def machine() -> str:
    memory = psutil.virtual_memory().total
    return f"{os.cpu_count()} cores, {gib(memory)} of memory"


def missed(step: Step) -> list[str]:
    return step.target.missed(step.run)


def gib(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count < 10 * GIB else f"{count / GIB:.1f} GiB"


def report(figures: dict[str, Any], steps: list[Step]) -> list[str]:
    """Markdown: the table, what the training came to, and what was missed."""
    lines = [f"{figures['dataset']} on {figures['machine']}:", ""]
    head = ("step", "time", "memory together", "beyond files", "largest process", "target")
    lines += ["| " + " | ".join(head) + " |", "|---" + "|---:" * 4 + "|---|"]
    for step in steps:
        run, peak = step.run, step.run.peak
        memory = (gib(n) for n in (peak.together, peak.beyond_files, peak.largest))
        target = str(step.target) or "–"
        cells = (title(step, figures), f"{run.seconds:,.0f} s", *memory, target)
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    if (training := figures["training"]) is not None:
        lines += [training_line(training), ""]
    wrong = [f"- {step.name}: {what}" for step in steps for what in missed(step)]
    return lines + (["Missed:", "", *wrong] if wrong else ["All targets are met."])


def title(step: Step, figures: dict[str, Any]) -> str:
    match step.name:
        case "train":
            ranks = f" on {figures['training']['ranks']} ranks" if figures["training"] else ""
            return f"`gnndist train`: GraphSAGE, 3 × 256{ranks}"
        case "input":
            return "(write the graph to a file)"
        case "file":
            return "`gnndist partition products.npz --method ldg`"
        case method:
            return f"`gnndist partition {figures['dataset']} --method {method}`"


def training_line(training: dict[str, Any]) -> str:
    """One sentence of figures."""
    epochs = ", ".join(f"{seconds:.3g}" for seconds in training["epochs_s"])
    accuracy = ", ".join(
        f"{split} {training[f'{split}_accuracy']:.4f}" for split in ("train", "valid", "test")
    )
    return (
        f"Training: epochs of {epochs} s; halo {training['halo'] / training['vertices']:.3f} of "
        f"the vertices; {training['bytes_sent_per_epoch'] / 1e6:,.0f} MB sent an epoch; accuracy "
        f"after {training['epochs']} epochs: {accuracy}."
    )


if __name__ == "__main__":
    main()
