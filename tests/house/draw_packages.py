"""Draw the packages and their modules from the imports into ARCHITECTURE.md: ``python -m tests.house.draw_packages``.

In: the source. Out: a Mermaid figure between two marks of the page, and a table of modules, layers and imports. A test
compares the page with them. An arrow points from the importing to the imported package; one that other arrows imply is
not drawn, but counted.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- drawn by tests.house.draw_packages -->", "<!-- end of what is drawn -->"
PACKAGES = ("regraft", "producers", "streaming", "controller", "alerts", "dashboard", "infra", "overlay", "schemas")
INSIDE = ("alerts", "dashboard", "overlay")  # Real folders of regraft/; the others are linked from there.
TABLE = ("regraft", "controller", "producers", "streaming", "overlay", "infra")

Graph = dict[str, set[str]]


def _imports(path: Path) -> set[str]:
    """Return the project's modules that a file imports, at the top or in a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            is_package = (ROOT / "regraft" / Path(*node.module.split(".")[1:])).is_dir()
            found |= {f"{node.module}.{each.name}" for each in node.names} if is_package else {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return {_at_home(name) for name in found if name.split(".")[0] == "regraft"}


def _at_home(module: str) -> str:
    """Return a module's name by its folder: ``regraft.schemas.x`` is the module x of the package schemas."""
    rest = module.removeprefix("regraft.")
    return rest if rest.split(".")[0] in PACKAGES else module


def _modules(package: str) -> dict[str, set[str]]:
    folder = ROOT / "regraft" / package if package in INSIDE else ROOT / package
    return {
        ".".join((package, *path.relative_to(folder).with_suffix("").parts)): _imports(path)
        for path in sorted(folder.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
        and "__pycache__" not in path.parts
        and not (package == "regraft" and path.relative_to(folder).parts[0] in INSIDE)
    }


def package_graph() -> Graph:
    """Return which package imports which."""
    graph: Graph = {name: set() for name in PACKAGES}
    for package in PACKAGES:
        for imported in _modules(package).values():
            graph[package] |= {name.split(".")[0] for name in imported} - {package}
    return graph


def module_graph(package: str) -> Graph:
    """Return which module of a package imports which; a subpackage counts as one module."""
    graph: Graph = {}
    for path, imported in _modules(package).items():
        module = path.split(".")[1]
        own = {name.split(".")[1] for name in imported if name.split(".")[0] == package and "." in name}
        graph.setdefault(module, set()).update(own - {module})
    return {module: known & graph.keys() for module, known in graph.items()}


def layers(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the layer of each node: one above the highest that it imports. Raises ValueError if there is a cycle."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        ready = [name for name, known in graph.items() if name not in found and known <= found.keys()]
        if not ready:
            raise ValueError(f"a cycle among {', '.join(sorted(graph.keys() - found.keys()))}")
        found |= {name: 1 + max((found[one] for one in graph[name]), default=0) for name in ready}
    return found


def _direct(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows that no longer path implies."""
    beyond = {name: _reached(graph, known) for name, known in graph.items()}
    return sorted(
        (name, one) for name, known in graph.items() for one in known if not any(one in beyond[via] for via in known)
    )


def _reached(graph: Mapping[str, set[str]], names: set[str]) -> set[str]:
    found, frontier = set(names), list(names)
    while frontier:
        fresh = graph[frontier.pop()] - found
        found |= fresh
        frontier += fresh
    return found


def _mermaid(graph: Mapping[str, set[str]]) -> list[str]:
    height = layers(graph)
    names = sorted(graph, key=lambda name: (-height[name], name))
    arrows = [f"  {name} --> {one}" for name, one in _direct(graph)]
    return ["```mermaid", "flowchart TD", *(f"  {name}" for name in names), *arrows, "```"]


def drawn() -> str:
    """Return the text between the marks."""
    rows = []
    for package in TABLE:
        graph = module_graph(package)
        rows.append(
            f"| `{package}/` | {len(graph)} | {max(layers(graph).values())} | {sum(map(len, graph.values()))} |"
        )
    table = ["| package | modules | layers | imports |", "| --- | --- | --- | --- |", *rows]
    return "\n".join(["", "Packages, from the command line down to the records:", "", *_mermaid(package_graph()), "",
                      *table, ""])  # fmt: skip


def page_with(figures: str) -> str:
    """Return the page with these figures between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{figures}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Update the page."""
    PAGE.write_text(page_with(drawn()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
