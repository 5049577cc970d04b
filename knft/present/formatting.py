"""Formats counts for reports, and escapes untrusted text."""

import re

from knft.counts import format_count

_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, characters that hide or reorder text, and surrogates, which UTF-8 cannot encode."""


def escape_invisible(text: str) -> str:
    r"""Return untrusted text with escapes such as ``\x1b`` or ``\u202e`` for characters that are not visible."""
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def truncated(text: str, max_length: int) -> str:
    """Return a text; of a longer one, its beginning and the number of omitted characters."""
    omitted = len(text) - max_length
    return text if omitted <= 0 else f"{text[:max_length]}… ({format_count(omitted, 'more character')})"


def format_packet_kinds(count: int) -> str:
    """Return a number of packet classes, as readers know them."""
    return f"{count} {'kind' if count == 1 else 'kinds'} of packets"
