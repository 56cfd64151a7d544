"""The site has every page that it lists, and what its pages link to."""

import re
from pathlib import Path

from tests.house.build_site import ROOT, lay_out


def test_each_page_of_the_site_is_laid_out_with_what_it_links_to(tmp_path: Path) -> None:
    """MkDocs, which checks links and anchors, only runs in `make docs`."""
    count = lay_out(tmp_path)
    laid_out = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert len(laid_out) == count
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "infra" / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(named) > 20
    assert named <= laid_out
    documents = {str(file.relative_to(ROOT)) for file in ROOT.glob("docs/*.md")}
    assert documents <= named
    assert {"regraft/dashboard/drawings/running-dark.png", "LICENSE"} <= laid_out
