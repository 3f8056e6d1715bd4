"""Fetching an OGB archive, from a file: address in place of a server."""

import zipfile

import ogb_layout
import pytest

from gnndist.data import load, ogb_download
from gnndist.errors import DataError

pytest.importorskip("pandas")


@pytest.fixture
def server(tmp_path):
    """A folder that holds arxiv.zip as OGB's server does; its address."""
    made = ogb_layout.write_ogb("ogbn-arxiv", tmp_path / "made")
    folder = tmp_path / "server"
    folder.mkdir()
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        for path in made.folder.rglob("*"):
            archive.write(path, "arxiv" / path.relative_to(made.folder))
    return folder


def fetch(root, server, **options):
    ogb_download.ensure_downloaded("ogbn-arxiv", root, url=server.as_uri(), **options)


def test_downloads_unpacks_and_cleans_up(tmp_path, server, monkeypatch, capsys):
    ogb_layout.go_offline(monkeypatch)
    root = tmp_path / "root"
    fetch(root, server, yes=True)
    assert "about 0.1 GB" in capsys.readouterr().err
    assert [p.name for p in root.iterdir()] == ["ogbn_arxiv"]
    assert load("ogbn-arxiv", root=root).num_vertices == 60


def test_does_nothing_where_the_data_is(tmp_path, monkeypatch):
    ogb_layout.go_offline(monkeypatch)
    ogb_layout.write_ogb("ogbn-arxiv", tmp_path)
    ogb_download.ensure_downloaded("ogbn-arxiv", tmp_path, yes=False)


@pytest.mark.parametrize(("answer", "there"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_asks_at_a_terminal(answer, there, tmp_path, server, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda *prompt: answer.strip())
    if there:
        fetch(tmp_path / "root", server, yes=False)
    else:
        with pytest.raises(DataError, match="the answer was no"):
            fetch(tmp_path / "root", server, yes=False)
    assert (tmp_path / "root" / "ogbn_arxiv").is_dir() == there


def test_continues_nothing_and_keeps_nothing_of_a_bad_archive(tmp_path, server):
    (server / "arxiv.zip").write_bytes(b"PK not a zip")
    with pytest.raises(DataError, match=r"arxiv.zip: not a sound zip archive"):
        fetch(tmp_path / "root", server, yes=True)
    assert [p.name for p in (tmp_path / "root").iterdir()] == ["arxiv.zip"]


def test_a_server_that_is_not_there_is_an_error_of_ours(tmp_path, server):
    (server / "arxiv.zip").unlink()
    with pytest.raises(DataError, match=r"arxiv.zip cannot be downloaded"):
        fetch(tmp_path / "root", server, yes=True)
