"""The store: a partitioned graph on disk that any number of ranks can read their rows from.

A directory of `manifest.json` and plain ``.npy`` arrays (no pickles), split by groups of cells,
memory-mapped when read. `write_store` makes one, `Store.open` reads one. It knows nothing of
ranks: vertices lie in the order of their cells, and who owns which is decided when training
starts.
"""

from gnndist.store.files import check_output
from gnndist.store.manifest import FORMAT_VERSION, Manifest
from gnndist.store.read import Store
from gnndist.store.write import write_store

__all__ = ["FORMAT_VERSION", "Manifest", "Store", "check_output", "write_store"]
