"""How reports draw: the style of lines, legends, SVG. Needs the extra ``plots``."""

from regraft.report_page.drawing_style import STYLE, LineStyle, add_legend, plot_with_bars, svg_text

__all__ = [
    "STYLE",
    "LineStyle",
    "add_legend",
    "plot_with_bars",
    "svg_text",
]
