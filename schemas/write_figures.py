"""Write figures in texts for people. In: a number. Out: readable digits."""

DIGITS = 4


def figure(value: float) -> str:
    """Return a figure with four digits, or all integer digits from 1,000, with commas and never an exponent.

    Below 1 it has four decimals, so values below 0.00005 read as 0.
    """
    if abs(value) >= 10 ** (DIGITS - 1) - 0.05:  # Also if it rounds up to it.
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.{DIGITS}g}"
    return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".").removesuffix("-0") or "0"
