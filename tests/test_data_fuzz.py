"""Every reader on damaged files: a sound graph or a DataError, never anything else.

A valid file is damaged as discs and people do it: bytes changed, dropped, doubled, swapped for
ones that mean something, lines moved, the end cut off; inside of compression as well as outside.
"""

import collections
import gzip
import io
import pickle
import shutil
import zipfile

import numpy as np
import ogb_layout
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnndist.data import load, validate
from gnndist.errors import GnndistError

pytest.importorskip("pandas")

FUZZ = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TOKENS = [
    b"", b"\n", b"\r", b"\r\n", b"\t", b" ", b",", b";", b'"', b"#", b"%", b"-", b"-1", b"0", b"1",
    b"999999", b"4294967296", b"9223372036854775807", b"9223372036854775808", b"1e999", b"nan",
    b"inf", b".", b"x", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", "é".encode(), b"NA",
]  # fmt: skip

damage = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.floats(0, 1), st.integers(0, 255)),
        st.tuples(st.just("token"), st.floats(0, 1), st.sampled_from(TOKENS)),
        st.tuples(st.just("drop"), st.floats(0, 1), st.integers(1, 9)),
        st.tuples(st.just("double"), st.floats(0, 1), st.integers(1, 40)),
        st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("swap"), st.floats(0, 1), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content, changes):
    content = bytearray(content)
    for kind, where, what in changes:
        at = int(where * len(content))
        if kind == "set":
            content[at : at + 1] = bytes([what])
        elif kind == "token":
            content[at : at + len(what)] = what
        elif kind == "drop":
            del content[at : at + what]
        elif kind == "double":
            content[at:at] = content[at : at + what]
        elif kind == "cut":
            del content[at:]
        else:
            part = content[at : at + what]
            content[at : at + 2 * what] = content[at + what : at + 2 * what] + part
    return bytes(content)


def sound_or_refused(source, **options):
    try:
        graph = load(source, **options)
    except GnndistError:
        return
    assert validate(graph, "again") is graph
    assert graph.num_vertices > 0


EDGES = "0,1\n1,2\n2,3\n3,4\n4,0\n4,4\n0,1\n"
TEXTS = {
    "e.csv": EDGES,
    "w.csv": EDGES.replace("\n", ",0.5\n"),
    "named.csv": 'source,target\n"a, b",c\nc,dé\n"a, b",dé\n',
    "e.txt": "# From To\n" + EDGES.replace(",", "\t"),
    "g.graph": "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n",
    "w.graph": "% c\n3 2 011 1\n5 2 7\n5 1 7 3 2\n5 2 2\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
@FUZZ
@given(changes=damage)
def test_text(name, packed, changes, tmp_path):
    content = damaged(TEXTS[name].encode(), changes)
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    sound_or_refused(path)


@pytest.mark.parametrize("name", ["e.csv", "g.graph"])
@FUZZ
@given(changes=damage)
def test_damage_to_gzip_itself(name, changes, tmp_path):
    path = tmp_path / f"{name}.gz"
    path.write_bytes(damaged(gzip.compress(TEXTS[name].encode() * 20), changes))
    sound_or_refused(path)


@pytest.mark.parametrize("option", ["features", "labels"])
@FUZZ
@given(changes=damage)
def test_tables_beside_the_edges(option, changes, tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    tables = {
        "features": "id,a,b\n0,1,2\n1,2,3\n2,0.5,4\n3,1e-3,5\n4,7,8\n",
        "labels": "id,kind,split\n0,x,train\n1,y,train\n2,x,valid\n3,,\n4,y,test\n",
    }
    for kind, text in tables.items():
        content = text.encode()
        (tmp_path / kind).with_suffix(".csv").write_bytes(
            damaged(content, changes) if kind == option else content
        )
    sound_or_refused(
        tmp_path / "e.csv", features=tmp_path / "features.csv", labels=tmp_path / "labels.csv"
    )


def matrix_market():
    out = io.BytesIO()
    scipy.io.mmwrite(out, sp.coo_array(np.triu(np.arange(16.0).reshape(4, 4) % 3)))
    return out.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@FUZZ
@given(changes=damage)
def test_matrix_market(packed, changes, tmp_path):
    content = damaged(matrix_market(), changes)
    path = tmp_path / ("m.mtx" + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    sound_or_refused(path)


def layouts():
    rng = np.random.default_rng(8)
    n = 9
    adjacency = sp.csr_array((rng.random((n, n)) < 0.3).astype(np.float32))
    attributes = sp.csr_array(rng.integers(0, 3, (n, 4)).astype(np.float32))
    benchmark = {"labels": np.arange(n) % 2}
    for prefix, m in (("adj", adjacency), ("attr", attributes)):
        parts = ("data", "indices", "indptr", "shape")
        benchmark |= {f"{prefix}_{k}": np.asarray(getattr(m, k)) for k in parts}
    edges = rng.integers(0, n, (2, 20))
    masks = np.arange(3)[:, None] == np.arange(n) % 3
    features = rng.standard_normal((n, 4)).astype(np.float16)
    return {
        "benchmark": benchmark,
        "edges": {
            "edge_index": edges,
            "edge_weight": rng.random(20),
            "node_feat": features,
            "node_label": np.arange(n) % 3,
            "num_nodes": np.array(n),
            "train": np.arange(4),
            "valid": np.arange(4, 6),
            "test": np.arange(6, 9),
        },
        "heterophilous": {
            "edges": edges.T,
            "node_features": features,
            "node_labels": np.arange(n) % 3,
            "train_masks": masks,
            "val_masks": np.roll(masks, 1, 0),
            "test_masks": np.roll(masks, 2, 0),
        },
        "scipy": {
            "row": edges[0],
            "col": edges[1],
            "data": np.ones(20),
            "shape": np.array([n, n]),
            "format": np.array(b"coo"),
        },
    }


LAYOUTS = layouts()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@FUZZ
@given(changes=damage)
def test_numpy_archives(layout, compressed, changes, tmp_path):
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **LAYOUTS[layout])
    (tmp_path / "a.npz").write_bytes(damaged(out.getvalue(), changes))
    sound_or_refused(tmp_path / "a.npz")


@pytest.mark.parametrize("layout", LAYOUTS)
@FUZZ
@given(changes=damage, which=st.integers(0, 7))
def test_arrays_within_an_archive(layout, changes, which, tmp_path):
    arrays = LAYOUTS[layout]
    hit = sorted(arrays)[which % len(arrays)]
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for key, array in arrays.items():
            out = io.BytesIO()
            np.save(out, array)
            content = out.getvalue()
            archive.writestr(f"{key}.npy", damaged(content, changes) if key == hit else content)
    sound_or_refused(tmp_path / "a.npz")


@FUZZ
@given(changes=damage)
def test_npy_files(changes, tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    out = io.BytesIO()
    np.save(out, np.ones((5, 3), np.float32))
    (tmp_path / "x.npy").write_bytes(damaged(out.getvalue(), changes))
    sound_or_refused(tmp_path / "e.csv", features=tmp_path / "x.npy")


def planetoid_parts():
    rng = np.random.default_rng(9)
    known, test = 504, 3
    hot = np.eye(2, dtype=np.int32)[rng.integers(0, 2, known + test)]
    features = sp.csr_matrix((rng.random((known + test, 3)) < 0.5).astype(np.float32))
    graph = collections.defaultdict(list, {i: [(i + 1) % 507] for i in range(507)})
    things = {
        "allx": features[:known],
        "tx": features[known:],
        "y": hot[:4],
        "ally": hot[:known],
        "ty": hot[known:],
        "graph": graph,
    }
    parts = {k: pickle.dumps(thing, protocol=2) for k, thing in things.items()}
    return parts | {"test.index": b"506\n504\n505\n"}


PLANETOID = planetoid_parts()


@pytest.mark.parametrize("part", PLANETOID)
@FUZZ
@given(changes=damage)
def test_planetoid(part, changes, tmp_path):
    for name, content in PLANETOID.items():
        whole = damaged(content, changes) if name == part else content
        (tmp_path / f"ind.cora.{name}").write_bytes(whole)
    sound_or_refused("cora", root=tmp_path)


@pytest.mark.parametrize("name", ogb_layout.NAMES)
@FUZZ
@given(changes=damage, which=st.integers(0, 30), inside=st.booleans())
def test_ogb(name, changes, which, inside, tmp_path_factory):
    root = tmp_path_factory.mktemp("ogb")
    tiny = ogb_layout.write_ogb(name, root, vertices=20, edges=40)
    files = sorted(p for p in tiny.folder.rglob("*") if p.suffix in (".gz", ".npz"))
    path = files[which % len(files)]
    if inside and path.suffix == ".gz":
        path.write_bytes(gzip.compress(damaged(gzip.decompress(path.read_bytes()), changes)))
    else:
        path.write_bytes(damaged(path.read_bytes(), changes))
    sound_or_refused(name, root=root)
    shutil.rmtree(root)
