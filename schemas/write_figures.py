"""Write figures in texts for people. In: a number. Out: the digits that anybody can read."""

DIGITS = 4


def figure(value: float) -> str:
    """Return a figure to four digits, with a comma between thousands and never with an exponent.

    Below 1 these are four decimals, so what is less than 0.00005 reads as 0.
    """
    if abs(value) >= 10 ** (DIGITS - 1) - 0.05:  # What rounds to it, too.
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.{DIGITS}g}"
    return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".").removesuffix("-0") or "0"
