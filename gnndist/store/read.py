"""Files → rows: any run of vertices of a store, read from the files that hold it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnndist.errors import StoreError
from gnndist.graph import Array
from gnndist.store.files import checksum
from gnndist.store.manifest import FileEntry, Manifest, read_manifest

if TYPE_CHECKING:
    import torch


class Store:
    """A store opened for reading. Rows are global ids a..b−1; every array handed out is a copy."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.cell_offsets: NDArray[np.int64] = np.array(manifest.cell_offsets, np.int64)
        self.cell_edges: NDArray[np.int64] = np.array(manifest.cell_edges, np.int64)
        self.cell_train: NDArray[np.int64] = np.array(manifest.cell_train, np.int64)

    @classmethod
    def open(cls, path: str | Path, *, partial: bool = False) -> "Store":
        """Open the store in directory `path`.

        Parameters
        ----------
        path:
            what `write_store` made.
        partial:
            a host may lack files whose rows its ranks do not read.

        Raises
        ------
        StoreError
            not a store, cut short, of another format version, or its manifest was altered.
            The content of the other files is checked by `verify`.
        """
        store = cls(Path(path), read_manifest(Path(path)))
        for name, entry in store.manifest.files.items():
            file = store.path / name
            if not file.is_file():
                if partial:
                    continue
                raise StoreError(f"{file} is missing: the store is cut short")
            size = file.stat().st_size
            if size != entry.size:
                raise StoreError(f"{file} has {size} bytes, the manifest says {entry.size}")
        return store

    @property
    def num_vertices(self) -> int:
        return self.manifest.num_vertices

    @property
    def num_edges(self) -> int:
        return self.manifest.num_edges

    @property
    def fingerprint(self) -> str:
        return self.manifest.fingerprint

    def cell_work(self) -> NDArray[np.int64]:
        """[cells] what the partition balanced: edges + vertex_work × vertices."""
        vertex_work = int(self.manifest.partitioning["vertex_work"])
        work: NDArray[np.int64] = self.cell_edges + vertex_work * np.diff(self.cell_offsets)
        return work

    def edges(self, a: int, b: int) -> tuple[NDArray[np.int64], Array, Array | None]:
        """Rows a..b−1 of the adjacency.

        Returns
        -------
        indptr: int64 [b − a + 1], from 0
        indices: int32 or int64, in-neighbours as global ids, ascending within a row
        edge_weight: float32, or None where every edge counts 1
        """
        indptr = np.zeros(b - a + 1, np.int64)
        indices: list[Array] = []
        weights: list[Array] = []
        for group, start, stop, first in self._pieces(a, b):
            ends = self._load("indptr", group)[start - first : stop - first + 1]
            low, high = int(ends[0]), int(ends[-1])
            # The end of the rows before this piece, plus this piece's own ends.
            indptr[start - a : stop - a + 1] = ends - low + indptr[start - a]
            indices.append(self._load("indices", group)[low:high])
            if self.manifest.weighted:
                weights.append(self._load("edge_weight", group)[low:high])
        dtype = np.dtype(self.manifest.dtypes["indices"])
        return (
            indptr,
            np.concatenate([*indices, np.empty(0, dtype)]),
            np.concatenate([*weights, np.empty(0, np.float32)]) if self.manifest.weighted else None,
        )

    def features(self, a: int, b: int) -> "torch.Tensor":
        """[b − a, F] float32, float16 or bfloat16, as stored.

        Raises
        ------
        StoreError
            the store has no features.
        """
        import torch

        self._need("features")
        dtype = {"bfloat16": torch.bfloat16, "<f2": torch.float16, "<f4": torch.float32}[
            self.manifest.dtypes["features"]
        ]
        out = torch.empty((b - a, self.manifest.num_features), dtype=dtype)
        bits = out.view(torch.int16 if dtype.itemsize == 2 else torch.int32).numpy()
        for group, start, stop, first in self._pieces(a, b):
            rows = self._load("features", group)[start - first : stop - first]
            bits[start - a : stop - a] = rows.view(bits.dtype)
        return out

    def labels(self, a: int, b: int) -> Array:
        """[b − a] int64, −1 unlabelled; or [b − a, C] float32, NaN unlabelled."""
        return self._rows("labels", a, b)

    def split(self, a: int, b: int) -> NDArray[np.uint8]:
        """[b − a]: 0 none, 1 train, 2 valid, 3 test."""
        return self._rows("split", a, b)

    def original_ids(self, a: int, b: int) -> NDArray[np.int64]:
        """[b − a]: the vertices' numbers in the graph that was partitioned."""
        return self._rows("original_ids", a, b)

    def vertex_names(self, a: int, b: int) -> Array:
        """[b − a]: the user's own ids; the original ids where there were no others."""
        name = "vertex_names" if "vertex_names" in self.manifest.dtypes else "original_ids"
        return self._rows(name, a, b)

    def verify(self, a: int = 0, b: int | None = None) -> None:
        """Compare the checksums of the files that hold rows a..b−1 with the manifest's.

        Raises
        ------
        StoreError
            naming the file and both checksums.
        """
        b = self.num_vertices if b is None else b
        for name, entry in self.files_of_rows(a, b).items():
            file = self.path / name
            try:
                found = checksum(file)
            except FileNotFoundError as error:
                raise StoreError(
                    f"{file} is missing, which holds some of the rows {a} to {b}: this is part of "
                    "a store, packed for other ranks"
                ) from error
            except OSError as error:
                raise StoreError(f"{file} cannot be read: {error}") from error
            if found != entry.xxh3_128:
                raise StoreError(
                    f"{file} was altered: its checksum is {found}, "
                    f"the manifest says {entry.xxh3_128}"
                )

    def files_of_rows(self, a: int, b: int) -> dict[str, FileEntry]:
        """The files that hold rows a..b−1."""
        groups = {group for group, *_ in self._pieces(a, b)}
        return {
            name: entry
            for name, entry in self.manifest.files.items()
            if int(name.removesuffix(".npy").rpartition("-")[2]) in groups
        }

    def _rows(self, name: str, a: int, b: int) -> Array:
        """Rows of an array that has one for each vertex."""
        self._need(name)
        parts = [
            self._load(name, group)[start - first : stop - first]
            for group, start, stop, first in self._pieces(a, b)
        ]
        if not parts:
            return self._load(name, 0)[:0].copy()
        return np.concatenate(parts)

    def _pieces(self, a: int, b: int) -> Iterator[tuple[int, int, int, int]]:
        """(group, start, stop, first row of the group) of the files that hold rows a..b−1."""
        if not 0 <= a <= b <= self.num_vertices:
            raise StoreError(f"rows {a} to {b}: {self.path} has rows 0 to {self.num_vertices}")
        for group in range(self.manifest.groups):
            first, after = self.manifest.group_rows(group)
            start, stop = max(a, first), min(b, after)
            if start < stop:
                yield group, start, stop, first

    def _need(self, name: str) -> None:
        if name not in self.manifest.dtypes:
            raise StoreError(f"{self.path} has no {name}: the graph was stored without")

    def _load(self, name: str, group: int) -> Array:
        """A file, memory-mapped read-only."""
        file = self.path / f"{name}-{group:02d}.npy"
        try:
            array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"{file} cannot be read: {error}") from error
        return np.asarray(array)
