"""Formats numbers and counts of things."""


def format_number(count: int) -> str:
    """Return a number with a space between thousands."""
    return f"{count:,}".replace(",", " ")


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{format_number(count)} {noun if count == 1 else plural}"
