"""From a name or a path to a checked `Graph`: which reader, which defaults, which split."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnndist.data.digits import read_digits
from gnndist.data.edge_list import read_edge_list
from gnndist.data.features import normalize_rows
from gnndist.data.files import must_exist, suffixes
from gnndist.data.layouts import read_npz
from gnndist.data.matrix_market import read_matrix_market
from gnndist.data.metis_graph import read_metis
from gnndist.data.ogb import LAYOUTS, read_ogb
from gnndist.data.ogb_download import ensure_downloaded
from gnndist.data.planetoid import read_planetoid
from gnndist.data.registry import Dataset, find, unknown
from gnndist.data.splits import SplitScheme, make_split
from gnndist.data.validation import validate
from gnndist.data.vertex_ids import IdKind
from gnndist.data.vertex_tables import VertexFiles, read_vertex_files
from gnndist.errors import ConfigError, DataError
from gnndist.graph import Graph

Progress = Callable[[str], None]
"""called with a line when a stage begins"""
DEFAULT_ROOT = Path("data")
"""where raw files of named data sets are looked for when no root is given"""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the caller of `load` asked for; None: the data set's own default."""

    root: Path
    symmetrize: bool | None
    split_index: int
    normalize_features: bool | None
    files: VertexFiles
    id_kind: IdKind | None
    yes: bool
    seed: int
    scratch: Path | None
    progress: Progress


def load(
    source: str | Path,
    *,
    root: Path | None = None,
    symmetrize: bool | None = None,
    split: str | None = None,
    split_seed: int | None = None,
    split_index: int = 0,
    normalize_features: bool | None = None,
    features: Path | None = None,
    labels: Path | None = None,
    header: bool | None = None,
    id_kind: IdKind | None = None,
    yes: bool = False,
    seed: int = 0,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Graph:
    """The graph `source` names, checked by `validate`.

    Edges are a set: equal ones are merged (their weights added), self-loops kept, and
    `Graph.edge_counts` says how many of each there were.

    Parameters
    ----------
    source:
        a name from `datasets()`, ``synthetic:NAME[@SCALE]``, or a path: ``.npz`` (see
        `read_npz`), METIS ``.graph[.gz]``, Matrix Market ``.mtx[.gz]``, a list of edges
        ``.csv``, ``.tsv``, ``.txt[.gz]`` (see `read_edge_list`).
    root:
        folder in which the raw files of a named data set lie (or a folder of its own in it);
        default ``data``.
    symmetrize:
        add the reverse of every edge. Default: the data set's own; for a path, yes.
    split:
        ``random`` (60/20/20 of the labelled vertices) or ``per-class:N`` (N training and 30
        validation vertices a class, the rest for test), instead of any split the data has.
        Default: the data's own, else the data set's scheme, else ``random``.
    split_seed:
        what a split that is dealt out depends on, alone; default 0.
    split_index:
        which of the splits of a file that has several.
    normalize_features:
        divide each row of features by its sum. Default: for the Planetoid graphs alone.
    features, labels:
        files of features and labels for a path that has none, or instead of its own (see
        `VertexFiles`).
    header:
        whether tables of text begin with a line of names; default: look.
    id_kind:
        ``integer`` or ``string`` ids in a list of edges; default: look at its first row.
    yes:
        download an OGB data set that is missing without asking.
    seed:
        for synthetic graphs.
    scratch:
        folder for the parts of a large graph that do not stay in memory (unnamed files, gone
        with the process); default: the system's. One on a disk, not in memory, is wanted.
    progress:
        called with a line when a stage begins.

    Raises
    ------
    DataError
        an unknown name (known ones are listed), a missing or malformed file, a graph that
        contradicts itself.
    ConfigError
        an option that the data set has no use for or does not allow.
    """
    options = LoadOptions(
        root=DEFAULT_ROOT if root is None else Path(root),
        symmetrize=symmetrize,
        split_index=split_index,
        normalize_features=normalize_features,
        files=VertexFiles(
            features=None if features is None else must_exist(Path(features), "features"),
            labels=None if labels is None else must_exist(Path(labels), "labels"),
            header=header,
        ),
        id_kind=id_kind,
        yes=yes,
        seed=seed,
        scratch=scratch,
        progress=progress or (lambda line: None),
    )
    dataset, scale = _named(str(source))
    if dataset is not None:
        if features is not None or labels is not None:
            raise ConfigError(f"{dataset.name} has features and labels of its own")
        options.progress(f"reading {source}")
        graph = _read_named(dataset, scale, options)
    else:
        path = Path(source)
        if not path.exists():
            raise unknown(str(source)) if path.name == str(source) else _missing(path)
        options.progress(f"reading {path}")
        graph = _read_path(path, options)
    usual = dataset is not None and dataset.normalize_features
    if usual if normalize_features is None else normalize_features:
        graph = _normalized(graph)
    graph = _with_split(graph, dataset, split, split_seed)
    return validate(graph, str(source))


def _normalized(graph: Graph) -> Graph:
    if graph.features is None:
        raise ConfigError(f"{graph.name} has no features to normalize")
    return graph.with_(features=normalize_rows(graph.features))


def _missing(path: Path) -> DataError:
    return DataError(f"{path}: no file here, and no data set has this name")


def _named(source: str) -> tuple[Dataset | None, str | None]:
    """The data set a name means, and the scale after its ``@``."""
    name, at, scale = source.partition("@")
    dataset = find(name)
    if dataset is not None and at and dataset.kind != "synthetic":
        raise ConfigError(f"data set {source!r}: a scale is allowed on synthetic ones alone")
    if dataset is None and source.startswith("synthetic:"):
        raise unknown(source)
    return dataset, scale if at else None


def _read_named(dataset: Dataset, scale: str | None, options: LoadOptions) -> Graph:
    symmetrize = dataset.symmetrize if options.symmetrize is None else options.symmetrize
    if dataset.kind == "digits":
        return read_digits(symmetrize=symmetrize)
    if dataset.kind == "synthetic":
        return _synthetic(dataset, scale, options)
    if dataset.kind == "ogb":
        return _ogb(dataset, symmetrize, options)
    if dataset.kind == "npz":
        path = _file(dataset, dataset.file, options.root)
        graph = read_npz(
            path,
            symmetrize=symmetrize,
            split_index=options.split_index,
            scratch=options.scratch,
        )
        return graph.with_(name=dataset.name)
    return read_planetoid(
        _file(dataset, f"ind.{dataset.file}.graph", options.root).parent,
        dataset.file,
        symmetrize=symmetrize,
    )


def _ogb(dataset: Dataset, symmetrize: bool, options: LoadOptions) -> Graph:
    root = options.root
    if root.name == LAYOUTS[dataset.name].folder:  # the data set's own folder was named
        root = root.parent
    ensure_downloaded(dataset.name, root, yes=options.yes)
    return read_ogb(
        dataset.name,
        root,
        symmetrize=symmetrize,
        scratch=options.scratch,
        progress=options.progress,
    )


def _synthetic(dataset: Dataset, scale: str | None, options: LoadOptions) -> Graph:
    from gnndist.data import synthetic

    try:
        factor = 1.0 if scale is None else float(scale)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < float("inf"):
        raise ConfigError(f"scale {scale!r} of {dataset.name}: allowed are numbers above 0")
    if options.symmetrize is False:
        raise ConfigError(f"{dataset.name} is undirected: it cannot be read as directed")
    graph: Graph = synthetic.generate(dataset.file, scale=factor, seed=options.seed)
    return graph


def _file(dataset: Dataset, file: str, root: Path) -> Path:
    """`file` under `root`: in it, or in a folder for the data set or its family."""
    own = (dataset.name, dataset.name.replace("-", "_"), dataset.kind)
    places = [root, *(root / p for p in own), *(root / p / "raw" for p in own)]
    files = [f for f in (file, dataset.file_elsewhere) if f]
    for path in (place / f for place in places for f in files):
        if path.is_file():
            return path
    raise DataError(
        f"{dataset.name}: no file {' or '.join(files)} in {root} or in {root / dataset.kind}: "
        f"get it from {dataset.origin} and say where it lies with --root (root=)"
    )


def _read_path(path: Path, options: LoadOptions) -> Graph:
    """The graph in the file `path`, by its suffix."""
    symmetrize = True if options.symmetrize is None else options.symmetrize
    scratch, files = options.scratch, options.files
    suffix = suffixes(path)
    if suffix in (".csv", ".tsv", ".txt"):
        return read_edge_list(
            path, files, symmetrize=symmetrize, id_kind=options.id_kind, scratch=scratch
        )
    if suffix == ".npz":
        graph = read_npz(
            path, symmetrize=symmetrize, split_index=options.split_index, scratch=scratch
        )
    elif suffix == ".graph":
        graph = read_metis(path)
    elif suffix == ".mtx":
        graph = read_matrix_market(path, symmetrize=symmetrize, scratch=scratch)
    else:
        raise DataError(
            f"{path}: its name ends in {path.suffix!r}: allowed are .npz, .graph, .mtx, .csv, "
            ".tsv and .txt, all but the first also with .gz"
        )
    names = np.arange(graph.num_vertices)
    return graph.with_(**read_vertex_files(files, names, "integer"))


def _with_split(
    graph: Graph, dataset: Dataset | None, split: str | None, seed: int | None
) -> Graph:
    """`graph` with its own split, or one dealt out where it has none or another is asked for."""
    if graph.labels is None:
        if split is not None:
            raise ConfigError(f"split {split!r}: {graph.name} has no labels to split")
        return graph
    if split is None and graph.splits:
        if seed is not None:
            raise ConfigError(
                f"split seed {seed}: {graph.name} has a split of its own; "
                "to replace it ask for split 'random' or 'per-class:N' as well"
            )
        return graph
    scheme = SplitScheme.parse(split or (dataset and dataset.split) or "random")
    return graph.with_(splits=make_split(graph, scheme, 0 if seed is None else seed))
