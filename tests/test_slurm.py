"""The batch script for SLURM: what it asks for, and that it trains, stops and resumes.

A stand-in for srun starts the tasks and ends them as `--kill-on-bad-exit=1` does.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from graphs import awkward

from gnndist.cli import cli
from gnndist.errors import STOPPED, ConfigError
from gnndist.hosts import task
from gnndist.store import write_store
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.rundir import RunDir

SRUN = f"""#!{sys.executable}
import os, re, signal, subprocess, sys, time
command = sys.argv[1:]
while command[0].startswith("-"):
    command.pop(0)
nodes, each = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
shared = dict(os.environ, SLURM_NTASKS=str(nodes * each))
shared["SLURM_STEP_TASKS_PER_NODE"] = f"{{each}}(x{{nodes}})"
tasks = []
for rank in range(nodes * each):
    place = dict(
        SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank % each), SLURM_NODEID=str(rank // each)
    )
    tasks.append(subprocess.Popen(command, env=shared | place))
signal.signal(signal.SIGUSR1, lambda *_: [task.terminate() for task in tasks])
codes = []
while len(codes) < len(tasks):
    codes = [task.returncode for task in tasks if task.poll() is not None]
    if any(codes):
        for task in tasks:
            task.kill()
    time.sleep(0.05)
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""


def script(*options: str) -> Result:
    return CliRunner().invoke(cli, ["slurm", *options])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(awkward(), tmp_path / "my store", cells=4).path


def test_what_the_script_asks_for(store: Path) -> None:
    asked = [*("--nodes", "2", "--ranks-per-node", "4", "--cpus-per-rank", "8")]
    asked += [*("--gpus-per-node", "4", "--time", "1-00:00:00", "--partition", "long")]
    asked += ["--sbatch", "--exclusive", "--out", "runs/a b", "--epochs", "7", "--no-cover"]
    said = script(str(store), *asked).output
    directives = [line[8:] for line in said.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        "--job-name=gnndist-a b",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--cpus-per-task=8",
        "--gpus-per-node=4",
        "--time=1-00:00:00",
        "--partition=long",
        "--signal=TERM@120",
        "--open-mode=append",
        "--output=%x-%j.log",
        "--requeue",
        "--exclusive",
    ]
    assert f"what=('{store}' --out \"$RUN\" --epochs 7 --no-cover)" in said
    subprocess.run(["bash", "-n"], input=said, text=True, check=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--nodes", "0"], "nodes = 0"),
        (["--nodes", "100"], "100 ranks: allowed are 1 to 40"),
        (["--nodes", "1", "--sbatch", "exclusive"], "'exclusive'"),
        (["--nodes", "1", "--patience", "5", "--lr", "-1"], "lr = -1"),
    ],
)
def test_what_is_refused(store: Path, options: list[str], named: str) -> None:
    result = script(str(store), "--out", "run", *options)
    assert isinstance(result.exception, ConfigError)
    assert named in str(result.exception)


def test_a_task_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert task.tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(ConfigError, match="SLURM_PROCID is not set: start this by srun"):
        task.place()
    for name, value in {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "7",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "20001",
    }.items():
        monkeypatch.setenv(name, value)
    assert task.place() == {
        "RANK": "5",
        "WORLD_SIZE": "7",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_a_task_that_was_stopped_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "place", dict)
    for code, wanted in ((STOPPED, 0), (2, 2), (0, 0)):
        monkeypatch.setattr("gnndist.cli.main", lambda code=code: sys.exit(code))
        with pytest.raises(SystemExit) as end:
            task.main()
        assert end.value.code == wanted


@pytest.mark.slow
def test_the_script_trains_stops_and_resumes(store: Path, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    tools = tmp_path / "bin"
    tools.mkdir()

    def tool(name: str, text: str) -> None:
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)

    tool("srun", SRUN)
    tool("scontrol", '#!/bin/sh\n[ "$1" = show ] && echo localhost || echo "$@" >> scontrol.log\n')
    options = ["--epochs", "100000", "--hidden", "8"]
    made = script(str(store), "--nodes", "1", "--ranks-per-node", "2", "--out", "run", *options)
    (tmp_path / "job.sh").write_text(made.output)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS_PER_NODE": "2",
    }
    job = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment)
    run = RunDir(path=tmp_path / "run")
    deadline = time.monotonic() + 120
    while not list(run.metrics()):
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.1)
    srun = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True)
    os.kill(int(srun.stdout), signal.SIGUSR1)
    assert job.wait(timeout=60) == 0
    (saved,) = Checkpoints(run.checkpoints).epochs()
    assert [line["epoch"] for line in run.metrics()] == list(range(1, saved + 1))
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {os.getpid()}\n"

    tool("srun", '#!/bin/sh\necho "$@"\ntouch run/result.json\n')
    again = subprocess.run(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "gnndist.hosts.task train --resume run --threads 1" in again.stdout
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {os.getpid()}\n"
