"""Comments are cut where the kernel cuts them: at 128 bytes (NFTNL_UDATA_COMMENT_MAXLEN), not one later."""

import pytest

from knft.nft.codec.elements import comment_text
from knft.nft.expressions import Drop
from knft.nft.objects import Entry

LENGTHS = {0: 0, 127: 127, 128: 128, 129: 128, 130: 128, 1000: 128}


@pytest.mark.parametrize(("given", "expected"), LENGTHS.items())
def test_a_comment_has_at_most_128_bytes(given: int, expected: int) -> None:
    """That of an element, which is cut as soon as it exists, and that of a rule, as it is written."""
    assert expected == len(Entry(Drop(), "c" * given).comment)
    assert expected == len(comment_text("c" * given))
