"""The messages between the daemon and the worker process."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from knft.kernel.worker_messages import (
    Answer,
    Commands,
    ElementDump,
    Elements,
    Hello,
    SetPart,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)

TEXT = some.text(some.characters(exclude_categories=["Cs"]))
REQUESTS = some.one_of(
    some.builds(Commands, TEXT, some.booleans()),
    some.builds(ElementDump, some.integers(0, 255), TEXT, some.lists(TEXT).map(tuple)),
)
PARTS = some.builds(SetPart, TEXT, some.binary(), some.booleans(), some.booleans())
ANSWERS = some.one_of(
    some.builds(Hello, some.frozensets(some.integers(0, (1 << 32) - 1)), TEXT),
    some.builds(Elements, some.lists(PARTS).map(tuple)),
    some.builds(Answer, TEXT, TEXT, TEXT),
)


@given(REQUESTS)
def test_requests_arrive_unchanged(request_: Commands | ElementDump) -> None:
    found = decode_request(encode_request(request_))
    assert (type(found), found) == (type(request_), request_)


@given(ANSWERS)
def test_answers_arrive_unchanged(answer: Hello | Elements | Answer) -> None:
    found = decode_answer(encode_answer(answer))
    assert (type(found), found) == (type(answer), answer)


@pytest.mark.parametrize("size", [2, 9, 11, 20])
def test_truncated_message_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=f"a message ends after {size} bytes"):
        decode_answer(encode_answer(Answer("output"))[:size])


@pytest.mark.parametrize("message", [b"", b"x", encode_request(Commands("list ruleset"))])
def test_other_message_is_an_error(message: bytes) -> None:
    with pytest.raises(ValueError, match="unexpected message of kind"):
        decode_answer(message)
    with pytest.raises(ValueError, match="unexpected message of kind"):
        decode_request(message.replace(b"c", b"x", 1))
