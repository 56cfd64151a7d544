"""How reports draw: the style of lines, and SVG. Needs the extra ``plots``."""

from regraft.backtests.draw_backtest import STYLE, svg_text

__all__ = [
    "STYLE",
    "svg_text",
]
