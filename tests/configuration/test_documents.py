"""Files that are not what they should be: no YAML, another kind, fields that nobody knows, keys that stand twice."""

import re
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.configuration.table import FIELDS
from knft.errors import ConfigurationError, KnftError
from tests.configuration.loading import KUBEADM, config, load
from tests.support.broken_files import BROKEN

WANTED = "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1)"
FOREIGN = {
    "a list": ("- a\n", f"it holds a list, but must be a {WANTED}"),
    "text": ("mode nftables", f"it holds text, but must be a {WANTED}"),
    "a number": ("5", f"it holds a number, but must be a {WANTED}"),
    "empty": ("", f"the file is empty; it must be a {WANTED}"),
    "a comment": ("# nothing\n", f"the file is empty; it must be a {WANTED}"),
    "an empty document first": (f"---\n---\n{config()}", f"the file is empty; it must be a {WANTED}"),
    "no version": ("kind: KubeProxyConfiguration",
                   "apiVersion is missing; it must be kubeproxy.config.k8s.io/v1alpha1"),
    "no kind": ("apiVersion: kubeproxy.config.k8s.io/v1alpha1", "kind is missing; it must be KubeProxyConfiguration"),
    "another version": (
        config().replace("v1alpha1", "v1alpha2"),
        "apiVersion is 'kubeproxy.config.k8s.io/v1alpha2', but must be kubeproxy.config.k8s.io/v1alpha1",
    ),
    "another kind": (
        config().replace("KubeProxyConfiguration", "KubeletConfiguration"),
        "kind is 'KubeletConfiguration', but must be KubeProxyConfiguration",
    ),
    "a ConfigMap around it": (
        "apiVersion: v1\nkind: ConfigMap\ndata: {config.conf: ''}",
        "apiVersion is 'v1', but must be kubeproxy.config.k8s.io/v1alpha1",
    ),
    "a version that is a list": ("apiVersion: []",
                                 "apiVersion is a list, but must be kubeproxy.config.k8s.io/v1alpha1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_configuration_is_told(name: str) -> None:
    text, said = FOREIGN[name]
    with pytest.raises(ConfigurationError) as raised:
        load(text=text)
    assert str(raised.value) == f"config.conf: {said}"


@pytest.mark.parametrize("form", [form for form in BROKEN if not form.startswith(("empty", "only"))])
def test_a_broken_file_is_told_in_one_line(form: str) -> None:
    """The forms of broken manifests: bombs, brackets, tabs, binary junk."""
    data, said = BROKEN[form]
    with pytest.raises(ConfigurationError) as raised:
        load(text=data)
    message = str(raised.value)
    assert message.startswith("config.conf: ")
    assert "\n" not in message
    if said.startswith("not YAML"):
        assert message == f"config.conf: {said}"


def test_junk_is_told_in_one_line() -> None:
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
    settings = load(text=config(fields))
    assert settings.config.masquerade_bit == 3
    unknown = [re.fullmatch(r"config.conf: (.*): unknown field, ignored", warning) for warning in settings.warnings]
    assert sorted(found.group(1) for found in unknown if found) == [
        "KubeProxyConfiguration.'a b'",
        "KubeProxyConfiguration.Mode",
        "KubeProxyConfiguration.iptables.randomFully",
        "KubeProxyConfiguration.logging.vmodule[0].more",
        "KubeProxyConfiguration.resourceContainer",
        "KubeProxyConfiguration.udpIdleTimeout",
    ]


def test_warnings_about_unknown_fields_are_limited() -> None:
    settings = load(text=config("\n".join(f"field{number}: 1" for number in range(10_000))))
    assert len([warning for warning in settings.warnings if "unknown field" in warning]) == 20
    assert "config.conf: and 9980 more" in settings.warnings


def test_a_key_that_stands_twice_is_warned_of_and_the_last_counts() -> None:
    settings = load(text=config("oomScoreAdj: 1\noomScoreAdj: 2"))
    assert settings.oom_score_adj == 2
    assert "config.conf: line 4: duplicate key 'oomScoreAdj'; using the last value" in settings.warnings


def test_a_second_document_is_warned_of() -> None:
    settings = load(text=f"{config('oomScoreAdj: 1')}\n---\n{config('oomScoreAdj: 2')}")
    assert settings.oom_score_adj == 1
    assert "config.conf: it has 2 documents; only the first is used" in settings.warnings


def test_anchors_are_taken() -> None:
    settings = load(text=config("iptables: &a {syncPeriod: 20s}\nmode: nftables\nnftables: *a"))
    assert settings.config.sync_period == 20.0


def test_json_is_taken() -> None:
    text = '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "oomScoreAdj": 0x10}'
    assert load(text=text).oom_score_adj == 16


def test_windows_line_ends_are_taken() -> None:
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
def test_whatever_a_file_holds_ends_in_settings_or_in_words(sections: dict[str, Any]) -> None:
    document = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", **sections}
    with suppress(KnftError):
        load(text=yaml.safe_dump(document, default_style='"'))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_breaks_in_a_file_ends_in_settings_or_in_words(data: st.DataObject) -> None:
    good = KUBEADM.read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 20)))
    with suppress(KnftError):
        load(text=good[:start] + data.draw(st.binary(max_size=8)) + good[end:])
