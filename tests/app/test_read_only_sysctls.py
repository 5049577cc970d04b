"""A daemon whose container cannot write sysctls serves nevertheless, and says which one differs."""

import logging

import pytest

from knft.app import run
from knft.errors import ReadOnlySysctlError, UnsupportedError
from tests.support.loaded_settings import load


@pytest.mark.parametrize("error", [ReadOnlySysctlError("the text"), UnsupportedError("the text")])
def test_only_read_only_sysctls_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: UnsupportedError
) -> None:
    def refuse(_: object) -> list[str]:
        raise error

    monkeypatch.setattr(run, "_set_conntrack", refuse)
    settings = load("--manifests", ".", "--node", "node-1")
    if isinstance(error, ReadOnlySysctlError):
        with caplog.at_level(logging.WARNING):
            run._set_conntrack_if_writable(settings)
        assert caplog.messages == ["the text; continuing with the current values"]
    else:
        with pytest.raises(UnsupportedError):
            run._set_conntrack_if_writable(settings)
