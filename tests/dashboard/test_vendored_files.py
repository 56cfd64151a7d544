"""The page's static files: copies of libraries match their table, and nothing is loaded from other hosts."""

import hashlib
import re
from pathlib import Path

from regraft.dashboard.web_app import STATIC

VENDOR = STATIC / "vendor"


def test_copies_of_libraries_are_unchanged_and_have_their_licence() -> None:
    """Every vendored file is in the table with its checksum, and there are no others."""
    table = (VENDOR / "SOURCES.md").read_text(encoding="utf-8")
    sums = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", table, re.MULTILINE))
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDOR.iterdir()}
    del found["SOURCES.md"]
    assert found == sums
    assert {"cytoscape.LICENSE", "uPlot.LICENSE"} <= found.keys()


def own_files() -> list[Path]:
    return [file for file in STATIC.iterdir() if file.is_file()]


def test_the_page_loads_nothing_from_elsewhere() -> None:
    """Our files contain no address of another host, except the names of the SVG and HTML standards."""
    for file in own_files():
        hosts = set(re.findall(r"https?://([^/\"'\s]+)", file.read_text(encoding="utf-8")))
        assert hosts <= {"www.w3.org"}, file.name


def test_nothing_from_the_state_can_become_markup() -> None:
    """Our scripts set text, never HTML, and the page has no inline script or style."""
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    for file in own_files():
        if file.suffix == ".js":
            assert not forbidden.search(file.read_text(encoding="utf-8")), file.name
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)


def test_every_imported_module_exists() -> None:
    """No build step would find a wrong name."""
    for file in own_files():
        if file.suffix != ".js":
            continue
        text = file.read_text(encoding="utf-8")
        for names, module in re.findall(r"import \{([^}]+)\} from \"\./([\w.]+)\"", text):
            exported = (STATIC / module).read_text(encoding="utf-8")
            for name in names.split(","):
                pattern = rf"export (?:function|class|const) {re.escape(name.strip())}\b"
                assert re.search(pattern, exported), f"{file.name} imports {name.strip()} from {module}"
