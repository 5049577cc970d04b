"""Numbers and others' words, as people may see them."""

import re

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal obeys, what turns text around or hides it, and what UTF-8 cannot write."""


def visible(text: str) -> str:
    r"""Return others' words with nothing in them that cannot be seen; it is written as ``\x1b`` or ``\u202e``."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def clipped(text: str, longest: int) -> str:
    """Return a text, or its beginning and how much is left out."""
    rest = len(text) - longest
    return text if rest <= 0 else f"{text[:longest]}… ({counted(rest, 'more character')})"


def number(count: int) -> str:
    """Return a count with its thousands apart."""
    return f"{count:,}".replace(",", " ")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where it is not one."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number(count)} {noun if count == 1 else plural}"
