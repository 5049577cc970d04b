"""The kernel accepts the call that waits for packets; where it refuses it, knft sleeps."""

import os
from types import SimpleNamespace

import pytest

from knft.kernel import grace_period
from knft.kernel.grace_period import FALLBACK_SECONDS, wait_for_grace_period


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(grace_period, "time", SimpleNamespace(sleep=seconds.append))
    return seconds


@pytest.mark.kernel
def test_kernel_accepts_the_call(slept: list[float]) -> None:
    """tests/packets/test_held_packets.py shows that it waits for packets."""
    assert wait_for_grace_period()
    assert slept == []


def test_sleeps_if_the_call_is_refused(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    monkeypatch.setitem(grace_period._MEMBARRIER, os.uname().machine, 1_000_000)
    assert not wait_for_grace_period()
    assert slept == [FALLBACK_SECONDS]


def test_sleeps_on_another_architecture(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    monkeypatch.setattr(grace_period, "_MEMBARRIER", {})
    assert not wait_for_grace_period()
    assert slept == [FALLBACK_SECONDS]


def test_32_bit_program_does_not_use_the_number_of_another_call(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(grace_period, "sys", SimpleNamespace(maxsize=(1 << 31) - 1))
    assert not wait_for_grace_period()
    assert slept == [FALLBACK_SECONDS]
