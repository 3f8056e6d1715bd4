"""From a name or a path to a checked `Graph`: which reader, which defaults, which split."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnndist.data.digits import read_digits
from gnndist.data.files import suffixes
from gnndist.data.layouts import read_npz
from gnndist.data.metis_graph import read_metis
from gnndist.data.planetoid import read_planetoid
from gnndist.data.registry import Dataset, find, unknown
from gnndist.data.splits import SplitScheme, make_split
from gnndist.data.validation import validate
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
    yes: bool
    seed: int
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
    yes: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Graph:
    """The graph `source` names, checked by `validate`.

    Edges are a set: equal ones are merged (their weights added), self-loops kept, and
    `Graph.edge_counts` says how many of each there were.

    Parameters
    ----------
    source:
        a name from `datasets()`, ``synthetic:NAME[@SCALE]``, or a path: ``.npz`` (see
        `read_npz`), METIS ``.graph[.gz]``.
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
    yes:
        download an OGB data set that is missing without asking.
    seed:
        for synthetic graphs.
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
        yes=yes,
        seed=seed,
        progress=progress or (lambda line: None),
    )
    dataset, scale = _named(str(source))
    if dataset is not None:
        options.progress(f"reading {source}")
        graph = _read_named(dataset, scale, options)
    else:
        path = Path(source)
        if not path.exists():
            raise unknown(str(source)) if path.name == str(source) else _missing(path)
        options.progress(f"reading {path}")
        graph = read_path(path, options)
    graph = _with_split(graph, dataset, split, split_seed)
    return validate(graph, str(source))


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
    if dataset.kind == "planetoid":
        chosen = options.normalize_features
        return read_planetoid(
            _file(dataset, f"ind.{dataset.file}.graph", options.root).parent,
            dataset.file,
            normalize_features=dataset.normalize_features if chosen is None else chosen,
            symmetrize=symmetrize,
        )
    if dataset.kind == "npz":
        path = _file(dataset, dataset.file, options.root)
        graph = read_npz(path, symmetrize=symmetrize, split_index=options.split_index)
        return graph.with_(name=dataset.name)
    if dataset.kind == "synthetic":
        return _synthetic(dataset, scale, options)
    raise DataError(f"{dataset.name}: no reader yet")


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


def read_path(path: Path, options: LoadOptions) -> Graph:
    """The graph in the file `path`, by its suffix."""
    symmetrize = True if options.symmetrize is None else options.symmetrize
    suffix = suffixes(path)
    if suffix == ".npz":
        return read_npz(path, symmetrize=symmetrize, split_index=options.split_index)
    if suffix in (".graph", ".metis"):
        return read_metis(path)
    raise DataError(f"{path}: its name ends in {path.suffix!r}: allowed are .npz, .graph[.gz]")


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
