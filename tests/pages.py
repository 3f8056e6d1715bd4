"""The blocks of a documentation page, and whether the commands in them could run.

```console       commands, a line each (`\\` at the end continues it; `$ ` before it is allowed)
```console skip  commands that a test does not run: they need a network, hosts, or hours
```python        runs after the page's earlier ones, in the same namespace; one that begins with the
                 comment `# name.py` is written to that file too
```toml          one that begins with the comment `# name.toml` is written to that file
needs:MODULE     after the language: skipped where the module does not import
"""

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SYSTEM = {"ssh", "rsync", "sbatch", "squeue", "scp", "tail", "cat", "cd", "git", "export", "srun"}
"""programs that pages may name and that are not ours to check"""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    words: list[str]
    """what stands after the language"""
    text: str
    line: int

    @property
    def skipped(self) -> bool:
        return "skip" in self.words

    @property
    def file(self) -> str | None:
        """The file that it is to be written to."""
        found = re.match(r"# ([\w-]+\.(?:py|toml))\n", self.text)
        return found[1] if found else None

    def missing(self) -> str | None:
        """A module that it needs and that does not import here."""
        for word in self.words:
            kind, _, module = word.partition(":")
            if kind == "needs":
                try:
                    importlib.import_module(module)
                except ImportError:
                    return module
        return None


def blocks(page: Path) -> list[Block]:
    """In order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2].split(), found[3], text.count("\n", 0, found.start()) + 1)
        for found in BLOCK.finditer(text)
    ]


def commands(text: str) -> Iterator[str]:
    """The command lines of a console block, continued lines joined, comments left out."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words:
            yield line


def check_command(line: str) -> None:
    """Fail where a command names a verb, option, file, target or extra that does not exist."""
    for part in re.split(r"\s(?:&&|\|\||;|\|)\s", line):
        words = shlex.split(part, comments=True)
        words = words[: next((k for k, w in enumerate(words) if w in (">", ">>")), None)]
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # the environment of a command
            words = words[1:]
        if words:
            _check_words(words, line)


def _check_words(words: Sequence[str], line: str) -> None:
    program, *rest = words
    if program == "gnndist":
        check_verb(rest)
    elif "-m" in rest and rest[rest.index("-m") + 1 :][:1] == ["gnndist"]:
        check_verb(rest[rest.index("-m") + 2 :])
    elif program == "python" and rest and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).is_file(), f"{line}: there is no {rest[0]}"
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text()
        for target in rest:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{line}: no target {target}"
    elif program == "pip":
        _check_install(line)
    elif program == ".ci/run":
        assert (ROOT / program).is_file()
    else:
        assert program in SYSTEM, f"{line}: a program that this test does not know"


def check_verb(words: Sequence[str]) -> None:
    """Fail where `gnndist WORDS` would be refused for its options."""
    from gnndist.cli import VERBS, cli

    if not words or words[0] in ("--help", "--version"):
        return
    verb, *rest = words
    if verb == "VERB":
        return
    assert verb in VERBS, f"gnndist {verb}: no such verb"
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    if {"--help", "-h", "--help-all"} & set(rest):
        return
    try:
        command.make_context(verb, list(rest))
    except click.ClickException as error:
        pytest.fail(f"gnndist {shlex.join(words)}: {error.format_message()}")
    for config in (Path(w) for w in rest if w.startswith("datasets/") and w.endswith(".toml")):
        assert (ROOT / config).is_file(), f"gnndist {shlex.join(words)}: there is no {config}"


def _check_install(line: str) -> None:
    """Extras that exist, whether the package is named or is this checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for names in re.findall(r"(?:gnndist|\.)\[([\w,]+)\]", line):
        unknown = set(names.split(",")) - set(project["optional-dependencies"])
        assert not unknown, f"{line}: no extra {unknown}"
