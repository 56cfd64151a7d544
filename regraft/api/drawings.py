"""How reports draw: the style of lines, and SVG. Needs the extra ``plots``."""

from regraft.report_page.drawing_style import STYLE, svg_text

__all__ = [
    "STYLE",
    "svg_text",
]
