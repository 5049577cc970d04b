"""Configuration files that are not YAML or another kind, and unknown fields, duplicate keys and second documents."""

import re
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.configuration.table import FIELDS
from knft.errors import ConfigurationError, KnftError
from tests.support.broken_files import BROKEN
from tests.support.loaded_settings import KUBEADM, config_text, load

EXPECTED_KIND = "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1)"
NO_VERSION = "apiVersion is missing; it must be kubeproxy.config.k8s.io/v1alpha1"
NO_KIND = "kind is missing; it must be KubeProxyConfiguration"
VERSION_1 = "apiVersion is 'v1', but must be kubeproxy.config.k8s.io/v1alpha1"
INVALID_DOCUMENTS = {
    "a list": ("- a\n", f"it holds a list, but must be a {EXPECTED_KIND}"),
    "text": ("mode nftables", f"it holds text, but must be a {EXPECTED_KIND}"),
    "a number": ("5", f"it holds a number, but must be a {EXPECTED_KIND}"),
    "empty": ("", f"the file is empty; it must be a {EXPECTED_KIND}"),
    "a comment": ("# nothing\n", f"the file is empty; it must be a {EXPECTED_KIND}"),
    "an empty document first": (f"---\n---\n{config_text()}", f"the file is empty; it must be a {EXPECTED_KIND}"),
    "neither version nor kind": (
        "{}",
        f"{NO_VERSION}\nconfig.conf: {NO_KIND}",
    ),
    "no version": ("kind: KubeProxyConfiguration", NO_VERSION),
    "no kind": ("apiVersion: kubeproxy.config.k8s.io/v1alpha1", NO_KIND),
    "another version": (
        config_text().replace("v1alpha1", "v1alpha2"),
        "apiVersion is 'kubeproxy.config.k8s.io/v1alpha2', but must be kubeproxy.config.k8s.io/v1alpha1",
    ),
    "another kind": (
        config_text().replace("KubeProxyConfiguration", "KubeletConfiguration"),
        "kind is 'KubeletConfiguration', but must be KubeProxyConfiguration",
    ),
    "a ConfigMap around it": (
        "apiVersion: v1\nkind: ConfigMap\ndata: {config.conf: ''}",
        f"{VERSION_1}\nconfig.conf: kind is 'ConfigMap', but must be KubeProxyConfiguration",
    ),
    "a version that is a list": ("kind: KubeProxyConfiguration\napiVersion: []",
                                 "apiVersion is a list, but must be kubeproxy.config.k8s.io/v1alpha1"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID_DOCUMENTS)
def test_document_of_another_kind_is_an_error(name: str) -> None:
    text, message = INVALID_DOCUMENTS[name]
    with pytest.raises(ConfigurationError) as raised:
        load(text=text)
    assert str(raised.value) == f"config.conf: {message}"


@pytest.mark.parametrize("form", [form for form in BROKEN if not form.startswith(("empty", "only"))])
def test_malformed_file_is_a_one_line_error(form: str) -> None:
    """The files are those of the tests of manifests: expanding aliases, nested brackets, tabs, binary data."""
    data, expected = BROKEN[form]
    with pytest.raises(ConfigurationError) as raised:
        load(text=data)
    message = str(raised.value)
    assert message.startswith("config.conf: ")
    assert "\n" not in message
    if expected.startswith("not YAML"):
        assert message == f"config.conf: {expected}"


def test_binary_file_is_a_one_line_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^config.conf: not YAML: byte 1: .*$"):
        load(text=bytes(range(256)))


def test_unknown_fields_are_ignored_with_a_warning() -> None:
    fields = """
        resourceContainer: /kube-proxy
        Mode: ipvs
        iptables: {masqueradeBit: 3, randomFully: {deep: [er]}}
        udpIdleTimeout: 250ms
        logging: {vmodule: [{filePattern: a, verbosity: 1, more: 2}]}
        "a b": 1
    """
    settings = load(text=config_text(fields))
    assert settings.config.masquerade_bit == 3
    unknown = [
        re.fullmatch(r"config.conf: (.*): unknown field, ignored(; did you mean .*\?)?", warning)
        for warning in settings.warnings
    ]
    assert sorted(match.group(1) for match in unknown if match) == [
        "KubeProxyConfiguration.'a b'",
        "KubeProxyConfiguration.Mode",
        "KubeProxyConfiguration.iptables.randomFully",
        "KubeProxyConfiguration.logging.vmodule[0].more",
        "KubeProxyConfiguration.resourceContainer",
        "KubeProxyConfiguration.udpIdleTimeout",
    ]


def test_warnings_about_unknown_fields_are_limited() -> None:
    settings = load(text=config_text("\n".join(f"field{number}: 1" for number in range(10_000))))
    assert len([warning for warning in settings.warnings if "unknown field" in warning]) == 20
    assert "config.conf: not shown: 9980 more" in settings.warnings


def test_duplicate_key_gives_a_warning_and_the_last_value_applies() -> None:
    settings = load(text=config_text("oomScoreAdj: 1\noomScoreAdj: 2"))
    assert settings.oom_score_adj == 2
    assert "config.conf: line 4: duplicate key 'oomScoreAdj'; using the last value" in settings.warnings


def test_second_document_gives_a_warning() -> None:
    settings = load(text=f"{config_text('oomScoreAdj: 1')}\n---\n{config_text('oomScoreAdj: 2')}")
    assert settings.oom_score_adj == 1
    assert "config.conf: it has 2 documents; only the first is used" in settings.warnings


def test_anchors_are_accepted() -> None:
    settings = load(text=config_text("iptables: &a {syncPeriod: 20s}\nmode: nftables\nnftables: *a"))
    assert settings.config.sync_period == 20.0


def test_json_is_accepted() -> None:
    text = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "oomScoreAdj": 0x10}'
    assert load(text=text).oom_score_adj == 16


def test_windows_line_ends_are_accepted() -> None:
    text = KUBEADM.read_text()
    assert load(text=text.replace("\n", "\r\n")) == load(text=text)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["0s", "-1h", "::"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(sorted({part for path in FIELDS for part in path.split(".")}))
_SECTIONS = st.dictionaries(_NAMES, st.dictionaries(_NAMES, _VALUES, max_size=4) | _VALUES, max_size=6)


@given(_SECTIONS)
@settings(max_examples=300, deadline=None)
def test_any_document_gives_settings_or_a_knft_error(sections: dict[str, Any]) -> None:
    document = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", **sections}
    with suppress(KnftError):
        load(text=yaml.safe_dump(document, default_style='"'))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_corrupted_file_gives_settings_or_a_knft_error(data: st.DataObject) -> None:
    valid = KUBEADM.read_bytes()
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, min(len(valid), start + 20)))
    with suppress(KnftError):
        load(text=valid[:start] + data.draw(st.binary(max_size=8)) + valid[end:])
