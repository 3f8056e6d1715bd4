"""The data sets known by name: what each is, where it comes from, how it is read."""

import difflib
from dataclasses import dataclass
from typing import Literal

from gnndist.errors import DataError

Kind = Literal["digits", "planetoid", "npz", "ogb", "synthetic"]
Metric = Literal["accuracy", "roc-auc"]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One data set known by name."""

    name: str
    """what `load` and the command line take"""
    kind: Kind
    """which reader reads it"""
    file: str = ""
    """its file (npz), the middle of its files' names (planetoid) or its folder (ogb)"""
    file_elsewhere: str = ""
    """another name its file goes by"""
    about: str
    """one line: what the vertices, edges and classes are"""
    size: str
    """vertices and edges, and bytes of the raw files where they matter"""
    origin: str
    """where the raw files come from"""
    licence: str
    """under which terms its owners give it out; "not stated" where they say nothing"""
    symmetrize: bool = True
    """whether the reverse of every edge is added unless asked otherwise"""
    split: str | None = None
    """how vertices are dealt out where the data has no split: ``random`` or ``per-class:N``"""
    normalize_features: bool = False
    """whether each row of features is divided by its sum unless asked otherwise"""
    metric: Metric = "accuracy"
    """what published results are given in"""


_PLANETOID = "https://github.com/kimiyoung/planetoid (folder data)"
_BENCHMARK = "https://github.com/shchur/gnn-benchmark (folder data/npz)"
_HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs (folder data)"
_OGB = "https://ogb.stanford.edu/docs/nodeprop/"


def _planetoid(name: str, about: str, size: str) -> Dataset:
    return Dataset(
        name=name,
        kind="planetoid",
        file=name,
        about=f"{about}; features row-normalised as by Kipf & Welling",
        size=size,
        origin=_PLANETOID,
        licence="MIT",
        normalize_features=True,
    )


def _benchmark(name: str, file: str, elsewhere: str, about: str, size: str) -> Dataset:
    return Dataset(
        name=name,
        kind="npz",
        file=file,
        file_elsewhere=elsewhere,
        about=about,
        size=size,
        origin=_BENCHMARK,
        licence="MIT",
        split="per-class:20",
    )


def _heterophilous(
    name: str, file: str, about: str, size: str, metric: Metric = "accuracy"
) -> Dataset:
    return Dataset(
        name=name,
        kind="npz",
        file=file,
        about=about,
        size=size,
        origin=_HETEROPHILOUS,
        licence="MIT",
        metric=metric,
    )


def _ogb(
    name: str, about: str, size: str, licence: str, symmetrize: bool, metric: Metric = "accuracy"
) -> Dataset:
    return Dataset(
        name=name,
        kind="ogb",
        file=name.replace("-", "_"),
        about=about,
        size=size,
        origin=_OGB,
        licence=licence,
        symmetrize=symmetrize,
        metric=metric,
    )


def _synthetic(name: str, like: str, size: str) -> Dataset:
    return Dataset(
        name=f"synthetic:{name}",
        kind="synthetic",
        file=name,
        about=f"made up, of the size and shape of {like}; @SCALE at the end makes it smaller",
        size=size,
        origin="generated from a seed",
        licence="none needed",
        symmetrize=True,
    )


_ALL = (
    Dataset(
        name="digits",
        kind="digits",
        about="handwritten digits, each joined to its 10 nearest neighbours; 10 classes",
        size="1,797 vertices, 17,970 edges before symmetrising",
        origin="scikit-learn (installed with this package)",
        licence="BSD-3-Clause, CC BY 4.0 (UCI)",
        split="random",
    ),
    _planetoid("cora", "papers, citations, 7 fields; public split", "2,708 vertices, 10,556 edges"),
    _planetoid(
        "citeseer", "papers, citations, 6 fields; public split", "3,327 vertices, 9,104 edges"
    ),
    _planetoid(
        "pubmed",
        "papers, citations, 3 kinds of diabetes; public split",
        "19,717 vertices, 88,651 edges",
    ),
    _benchmark(
        "amazon-photo",
        "amazon_electronics_photo.npz",
        "amazon_photo.npz",
        "photo goods, bought together, 8 categories",
        "7,650 vertices, 238,162 edges",
    ),
    _benchmark(
        "amazon-computers",
        "amazon_electronics_computers.npz",
        "amazon_computers.npz",
        "computer goods, bought together, 10 categories",
        "13,752 vertices, 491,722 edges",
    ),
    _benchmark(
        "coauthor-cs",
        "ms_academic_cs.npz",
        "coauthor_cs.npz",
        "authors of computer science, joint papers, 15 fields",
        "18,333 vertices, 163,788 edges",
    ),
    _benchmark(
        "coauthor-phy",
        "ms_academic_phy.npz",
        "coauthor_phy.npz",
        "authors of physics, joint papers, 5 fields",
        "34,493 vertices, 495,924 edges",
    ),
    _heterophilous(
        "roman-empire",
        "roman_empire.npz",
        "words of an article, by grammar, 18 syntactic roles",
        "22,662 vertices, 65,854 edges",
    ),
    _heterophilous(
        "amazon-ratings",
        "amazon_ratings.npz",
        "goods, bought together, 5 ratings",
        "24,492 vertices, 186,100 edges",
    ),
    _heterophilous(
        "minesweeper",
        "minesweeper.npz",
        "cells of a grid, whether mined",
        "10,000 vertices, 78,804 edges",
        "roc-auc",
    ),
    _heterophilous(
        "tolokers",
        "tolokers.npz",
        "workers, tasks in common, whether banned",
        "11,758 vertices, 1,038,000 edges",
        "roc-auc",
    ),
    _heterophilous(
        "questions",
        "questions.npz",
        "users, answers to each other, whether active",
        "48,921 vertices, 307,080 edges",
        "roc-auc",
    ),
    Dataset(
        name="reddit",
        kind="npz",
        file="reddit_data.npz",
        about="posts, common commenters, 41 communities; split by day",
        size="232,965 vertices, 114,615,892 edges; 1.3 GB",
        origin="https://data.dgl.ai/dataset/reddit.zip",
        licence="not stated",
    ),
    _ogb(
        "ogbn-arxiv",
        "papers, citations, 40 subjects; split by year",
        "169,343 vertices, 1,166,243 edges before symmetrising; 0.1 GB to download",
        "ODC-BY",
        True,
    ),
    _ogb(
        "ogbn-products",
        "goods, bought together, 47 categories; split by sales rank",
        "2,449,029 vertices, 61,859,140 edges before symmetrising; 1.4 GB to download",
        "Amazon licence",
        True,
    ),
    _ogb(
        "ogbn-proteins",
        "proteins, associations, 112 functions; features are means of the edges'; split by species",
        "132,534 vertices, 39,561,252 edges before symmetrising; 0.2 GB to download",
        "CC0",
        True,
        "roc-auc",
    ),
    _ogb(
        "ogbn-papers100M",
        "papers, citations, 172 subjects of the arXiv ones; split by year",
        "111,059,956 vertices, 1,615,685,872 edges before symmetrising; 57 GB to download",
        "ODC-BY",
        True,
    ),
    _ogb(
        "ogbn-mag",
        "papers, citations, 349 venues: the paper-paper relation alone; split by year",
        "736,389 vertices, 5,416,271 edges before symmetrising; 0.4 GB to download",
        "ODC-BY",
        True,
    ),
    _synthetic("arxiv", "ogbn-arxiv", "169,343 vertices, about 2.3 million edges"),
    _synthetic("products", "ogbn-products", "2.4 million vertices, about 124 million edges"),
    _synthetic("reddit", "Reddit", "232,965 vertices, about 115 million edges"),
)


def datasets() -> dict[str, Dataset]:
    """Every data set known by name."""
    return {d.name: d for d in _ALL}


def find(name: str) -> Dataset | None:
    """The data set called `name`; case, and ``_`` for ``-``, do not matter."""
    wanted = name.lower().replace("_", "-")
    return next((d for d in _ALL if d.name.lower() == wanted), None)


def unknown(name: str) -> DataError:
    """The error for a name that is neither a data set nor a file."""
    known = [d.name for d in _ALL]
    close = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return DataError(
        f"data set {name!r}: neither a file nor a name known here{hint} "
        f"(known are {', '.join(known)})"
    )
