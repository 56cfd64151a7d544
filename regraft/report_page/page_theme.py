"""The colours of a page in light and dark, and drawings that follow them."""

INK = "#000000"
SOFT = "#555555"
LINE = "#dddddd"
PAPER = "#ffffff"
LOAD = "#0b4f8a"
_VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", PAPER: "var(--page)", LOAD: "var(--load)"}

THEME_CSS = """:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #555; --page: #fff; --line: #ddd;
  --good: #e8f4f1; --bad: #fdecea; --load: #0b4f8a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a8a8a8; --page: #16181b; --line: #3a3d42;
  --good: #12302b; --bad: #3d1a18; --load: #8cc8ff; } }
body { color: var(--ink); background: var(--page); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); }"""


def follow_theme(svg: str) -> str:
    """Return a drawing that takes its ink and paper colours from the page; other colours stay."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg
