"""Comments are truncated to 128 bytes (NFTNL_UDATA_COMMENT_MAXLEN), as the kernel does."""

import pytest

from knft.nft.codec.elements import comment_text
from knft.nft.expressions import Drop
from knft.nft.objects import Entry

LENGTHS = {0: 0, 127: 127, 128: 128, 129: 128, 130: 128, 1000: 128}


@pytest.mark.parametrize(("given", "expected"), LENGTHS.items())
def test_comments_are_truncated_to_128_bytes(given: int, expected: int) -> None:
    """An element's comment is truncated when its Entry is created, a rule's comment when the rule is encoded."""
    assert expected == len(Entry(Drop(), "c" * given).comment)
    assert expected == len(comment_text("c" * given))
