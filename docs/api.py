"""Write docs/api.md: the public interface, from signatures and docstrings.

    python docs/api.py            write it
    python docs/api.py --check    say whether it is up to date (exit code 1 if not)

Sources are read as text (`ast`), so that the page does not depend on the Python that writes it.
"""

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from gnndist.training.config import TrainConfig

PAGE = Path(__file__).with_name("api.md")
WIDTH = 92
CONTENT: Sequence[tuple[str, Sequence[str], str]] = (
    (
        "gnndist",
        ("Graph", "train", "resume", "TrainConfig"),
        "Graphs, and training from Python.",
    ),
    (
        "gnndist.errors",
        (
            *("GnndistError", "DataError", "StoreError", "ConfigError", "RunError"),
            *("JobFailed", "JobStopped"),
        ),
        "What goes wrong. All are also in `gnndist`.",
    ),
    ("gnndist.data", ("load", "datasets", "Dataset", "validate"), "Graphs from files and names."),
    ("gnndist.data.frameworks", ("from_pyg", "from_dgl"), "Graphs from other libraries."),
    (
        "gnndist.partitioning",
        ("partition", "Cells"),
        "Graphs to cells. `write_store` calls it; few programs need it themselves.",
    ),
    (
        "gnndist.inspection.measured_work",
        ("measure_work",),
        "What `gnndist partition --vertex-work measured` calls.",
    ),
    ("gnndist.store", ("write_store", "Store", "Manifest"), "The partitioned graph on disk."),
    (
        "gnndist.nn",
        (
            *("GCNConv", "SAGEConv", "GINConv", "GATConv", "GATv2Conv", "SGConv", "APPNP"),
            *("BatchNorm", "LayerNorm", "Dropout", "JumpingKnowledge", "Sequential", "Stack"),
        ),
        "Layers, called as `layer(graph, h)`. Names, defaults, initialisation and state_dicts are "
        "torch_geometric's.",
    ),
    (
        "gnndist.nn.zoo",
        ("gcn", "sage", "gin", "sgc", "Appnp"),
        "What `--model` names; `gat` and `gatv2` take the arguments of `gcn` and `heads`, "
        "`output_heads`, `attention_dropout`.",
    ),
    (
        "gnndist.rankgraph",
        ("RankGraph", "Vertices"),
        "What a model's `forward(graph, x)` is given.",
    ),
    ("gnndist.bipartite", ("Bipartite",), "A rank's edges as other libraries' layers take them."),
    ("gnndist.operators", ("Aggregation",), "Linear aggregations, for `RankGraph.aggregate`."),
    ("gnndist.training.rundir", ("RunDir",), "What a run left behind."),
)
HIDDEN = {"forward", "extra_repr", "reset_parameters"}


def page() -> str:
    """The whole of api.md."""
    parts = [
        "# API reference\n",
        "<!-- Written by docs/api.py from the docstrings: change those, then run it. -->\n",
        "Shapes: N vertices, E edges, F features, C classes; n, n_in and n_out are a rank's own "
        "rows. [Concepts](concepts.md) says what the words mean.\n",
        "\n".join(
            f"- [`{module}`](#{module.replace('.', '')}): "
            + ", ".join(f"[`{name}`](#{name.lower()})" for name in names)
            for module, names, _ in CONTENT
        )
        + "\n",
    ]
    for module, names, about in CONTENT:
        parts.append(f"## {module}\n\n{about}\n")
        for name in names:
            parts += entry(name, getattr(importlib.import_module(module), name))
    return "\n".join(parts)


def entry(name: str, item: Any) -> Iterator[str]:
    """One class or function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(item))).body[0]
    yield f"### {name}\n"
    if isinstance(tree, ast.FunctionDef):
        yield code(signature(name, tree))
        yield markdown(ast.get_docstring(tree) or "")
        return
    assert isinstance(tree, ast.ClassDef), name
    methods = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    made = next((m for m in methods if m.name == "__init__"), None)
    if made is not None and not name.endswith(("Failed", "Stopped")):
        yield code(signature(name, made, returns=False))
    yield markdown(ast.get_docstring(tree) or "")
    if item is TrainConfig:
        yield option_table()
    else:
        yield from attributes(tree)
    for method in methods:
        if method.name.startswith("_") or method.name in HIDDEN or not ast.get_docstring(method):
            continue
        kinds = {ast.unparse(d) for d in method.decorator_list}
        if kinds & {"property", "cached_property"}:
            continue
        owner = f"{name}." if "classmethod" in kinds else ""
        yield f"#### {name}.{method.name}\n"
        yield code(signature(owner + method.name, method))
        yield markdown(ast.get_docstring(method) or "")


def attributes(tree: ast.ClassDef) -> Iterator[str]:
    """Fields with the text below each, and properties."""
    found = []
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, kind = node.target.id, ast.unparse(node.annotation)
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
        elif isinstance(node, ast.FunctionDef) and any(
            ast.unparse(d) in ("property", "cached_property") for d in node.decorator_list
        ):
            name, kind = node.name, ast.unparse(node.returns) if node.returns else ""
            text = ast.get_docstring(node) or ""
        else:
            continue
        if name.startswith("_"):
            continue
        said = f": {' '.join(text.split())}" if text else ""
        found.append(f"- `{name}: {kind.strip(chr(39))}`{said}")
    if found:
        yield "Attributes:\n"
        yield "\n".join(found) + "\n"


def option_table() -> str:
    """The options of a training, as the command line and TOML files know them."""
    rows = ["| option | default | allowed | |", "|---|---|---|---|"]
    for item in fields(TrainConfig):
        known = item.metadata["option"]
        default = item.default
        shown = str(default).lower() if isinstance(default, bool) else default
        allowed = "true, false" if isinstance(default, bool) else known.range()
        if allowed.startswith("any"):
            allowed = ""
        star = " *" if known.may_change else ""
        rows.append(f"| `{item.name}`{star} | {shown} | {allowed} | {known.help} |")
    note = "\\* may change when a run is resumed. `--some-option` on the command line, "
    return "\n".join(rows) + f"\n\n{note}`some_option` in TOML and in Python.\n"


def signature(name: str, tree: ast.FunctionDef, *, returns: bool = True) -> str:
    """`name(arguments) -> result`, one argument a line where it is long."""
    arguments = list(shown_arguments(tree.args))
    result = f" -> {ast.unparse(tree.returns)}" if returns and tree.returns else ""
    result = result.replace("'", "")
    whole = f"{name}({', '.join(arguments)}){result}"
    if len(whole) <= WIDTH:
        return whole
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{lines}){result}"


def shown_arguments(args: ast.arguments) -> Iterator[str]:
    """Each argument with its type and default, without self."""
    missing: list[ast.expr | None] = [None] * (len(args.args) - len(args.defaults))
    for arg, default in zip(args.args, [*missing, *args.defaults], strict=True):
        if arg.arg not in ("self", "cls"):
            yield shown(arg, default)
    if args.vararg is not None:
        yield "*" + shown(args.vararg, None)
    elif args.kwonlyargs:
        yield "*"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield shown(arg, default)
    if args.kwarg is not None:
        yield "**" + shown(args.kwarg, None)


def shown(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(arg.annotation).strip(chr(39))}" if arg.annotation else ""
    return f"{arg.arg}{kind}" + (f" = {ast.unparse(default)}" if default else "")


def code(text: str) -> str:
    return f"```py\n{text}\n```\n"


def markdown(docstring: str) -> str:
    """A numpy-style docstring as Markdown."""
    lines = docstring.splitlines()
    out: list[str] = []
    section = ""
    for at, line in enumerate(lines):
        under = lines[at + 1] if at + 1 < len(lines) else ""
        if under and set(under) == {"-"} and len(under) >= 4:
            section = line
            out += [f"**{line}**", ""]
        elif line and set(line) == {"-"} and len(line) >= 4:
            continue
        elif not line or line[0] == " ":
            out.append(line)
        elif section == "Parameters" and line.endswith(":"):
            names = ", ".join(f"`{name}`" for name in line[:-1].split(", "))
            out.append(f"- {names}:")
        elif section == "Raises" and re.fullmatch(r"[A-Z][\w, ]+", line):
            out.append(f"- `{line}`:")
        elif section == "Returns" and (match := re.match(r"(\w+): ", line)):
            out.append(f"- `{match[1]}`: {line[match.end() :]}")
        elif section:
            out += ["", line]
            section = ""
        else:
            out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    text = page()
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is not up to date: run python docs/api.py")


if __name__ == "__main__":
    main()
