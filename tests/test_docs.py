"""The documentation is true: its commands and snippets run, its links lead somewhere.

Each page runs from top to bottom in a folder of its own, as a reader would, with the recipes and
real graphs beside it. To be quick, commands run in this process, ranks are forked, and every
training is cut to `EPOCHS`.
"""

import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from fixed_rates import FixedRates
from jobs import start_forked
from pages import GUIDES, ROOT, Block, blocks, check_command, commands

from gnndist import crew
from gnndist.cli import VERBS, cli, main
from gnndist.inspection.rates import Rates

EPOCHS = 3
RECIPES = sorted((ROOT / "datasets").glob("*/README.md"))
RUNNABLE = [
    page for page in GUIDES if any(b.language in ("console", "python") for b in blocks(page))
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def desk(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Any:
    """A folder to work in, where a reader has the repository's scripts and the raw data."""
    for folder in ("datasets", "partition", "benchmarks", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "data").symlink_to(data_dir)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(crew.LocalCrew, "__init__", _forked)
    fixed = classmethod(lambda cls, again=False: FixedRates())  # measuring them takes a while
    monkeypatch.setattr(Rates, "of_this_machine", fixed)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def _forked(self: crew.LocalCrew, ranks: int, start: Any = None) -> None:
    self._ranks, self._start, self._store = ranks, start_forked, None


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_a_page_runs_from_top_to_bottom(
    page: Path, desk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.skipped or block.missing():
            continue
        where = f"{name_of(page)}, line {block.line}"
        if block.file is not None:
            (desk / block.file).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            exec(compile(block.text, where, "exec"), namespace)
        elif block.language == "console":
            for line in commands(block.text):
                code = run(line, monkeypatch)
                assert code == 0, f"{where}: {line}\n{capfd.readouterr().err}"


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """A command in this process; its exit code."""
    words = shlex.split(line, comments=True)
    if words[:3] == ["python", "-m", "gnndist"]:
        words = words[2:]
    if words[0] == "python":
        monkeypatch.setattr(sys, "argv", words[1:])
        runpy.run_path(words[1], run_name="__main__")
        return 0
    assert words[0] == "gnndist", f"{line}: mark its block as `console skip`"
    if words[1] == "train" and "--resume" not in words and "--explain" not in words:
        words += ["--epochs", str(EPOCHS)]
    monkeypatch.setattr(sys, "argv", words)
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("page", [*GUIDES, *RECIPES], ids=name_of)
def test_commands_name_what_exists(page: Path) -> None:
    shells = [b for b in blocks(page) if b.language in ("console", "sh")]
    lines = [line for block in shells for line in commands(block.text)]
    assert lines or page not in RECIPES
    for line in lines:
        check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "gnndist trian stores/x",
        "gnndist train stores/x --layer 3",
        "gnndist train stores/x --model",
        "gnndist partition x",
        "gnndist train stores/x --config datasets/cora/none.toml --out r",
        "python benchmarks/none.py",
        "make coffee",
        "pip install 'gnndist[none]'",
        "torchrun --nnodes 2 -m gnndist train stores/x --layer 3",
        "frobnicate",
    ],
)
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_command(line)


@pytest.mark.parametrize("page", [*GUIDES, *RECIPES], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)}: {target}"


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


def test_the_api_reference_is_up_to_date() -> None:
    api = runpy.run_path(str(ROOT / "docs" / "api.py"))
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert api["page"]() == text, "run python docs/api.py"


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_a_screen_and_shows_an_example(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["gnndist", *verb.split(), "--help"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert any("Example" in line for line in lines)
    assert any(line.strip().startswith(f"gnndist {verb}".strip()) for line in lines)


def test_help_examples_are_true(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ["", *VERBS]:
        monkeypatch.setattr(sys, "argv", ["gnndist", *verb.split(), "--help"])
        main()
        said = re.sub(r"\\\n\s*", " ", capsys.readouterr().out)
        for line in re.findall(r"^\s+(gnndist .+)$", said, re.MULTILINE):
            check_command(line)


def test_help_all_shows_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gnndist", "train", "--help-all"])
    main()
    said = capsys.readouterr().out
    command = cli.get_command(None, "train")  # type: ignore[arg-type]
    assert command is not None
    for param in command.params:
        if param.param_type_name == "option" and not getattr(param, "hidden", False):
            assert max(param.opts, key=len) in said


def test_blocks_are_read_as_they_are_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console skip\n$ a --b \\\n    c  # why\nd\n```\ntext\n"
        "```python needs:none_such\nx\n```\n"
    )
    first, second = blocks(page)
    assert first == Block("console", ["skip"], "$ a --b \\\n    c  # why\nd\n", 1)
    assert [shlex.split(c, comments=True) for c in commands(first.text)] == [["a", "--b", "c"]]
    assert first.skipped
    assert second.missing() == "none_such"
