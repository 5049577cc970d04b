"""Marks at the parts of addresses that differ."""

import pytest

from knft.present.highlight import highlighted


@pytest.mark.parametrize(
    ("text", "other", "marked"),
    [
        ("reaches 10.244.1.17:8080", "reaches 10.244.1.18:8080", "reaches 10.244.1.<mark>17</mark>:8080"),
        ("reaches 10.0.0.1:80, 10.0.0.2:80", "reaches 10.0.0.1:80", "reaches 10.0.0.1:80, <mark>10.0.0.2:80</mark>"),
        ("reaches [fd00::17]:80", "reaches [fd00::17]:8080", "reaches [fd00::17]:<mark>80</mark>"),
        ("affinity 600 s", "affinity 10800 s", "affinity <mark>600</mark> s"),
        ("reaches 10.0.0.1:80", "is rejected", "reaches 10.0.0.1:80"),
        ("reaches <b>1", "reaches <b>2", "reaches &lt;b&gt;<mark>1</mark>"),
        ("reaches 10.0.0.1:80", "reaches 10.0.0.1:80", "reaches 10.0.0.1:80"),
    ],
)
def test_only_changed_parts_of_addresses_are_marked(text: str, other: str, marked: str) -> None:
    assert highlighted(text, other) == marked
