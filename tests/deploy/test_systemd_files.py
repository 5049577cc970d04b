"""The files of knft.service agree with each other and with knft's defaults; tests/packages runs the service."""

import re
from pathlib import Path

from deploy.manual.__main__ import pages
from knft.configuration.settings import Settings
from tests.support.loaded_settings import load

FOLDER = Path(__file__).parents[2] / "deploy/systemd"
CREDENTIALS = "/run/credentials/knft.service"


def _settings(section: str) -> list[tuple[str, str]]:
    """Return the settings of a section of the unit, in their order."""
    text = (FOLDER / "knft.service").read_text().partition(f"[{section}]\n")[2].partition("\n[")[0]
    pairs = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, value) for name, _, value in pairs]


def test_default_configuration_is_valid_and_finds_the_credential() -> None:
    text = (FOLDER / "config.yaml").read_text()
    settings = load(text=text)
    assert settings.warnings == ()
    (loaded,) = [value for name, value in _settings("Service") if name == "LoadCredential"]
    assert settings.client.kubeconfig == f"{CREDENTIALS}/{loaded.partition(':')[0]}"
    defaults = Settings(config=settings.config)
    assert settings.conntrack == defaults.conntrack
    assert settings.healthz_bind_address == defaults.healthz_bind_address
    assert settings.metrics_bind_address == defaults.metrics_bind_address


def test_fields_that_are_comments_are_valid() -> None:
    text = re.sub(r"^#(?=\w+: )", "", (FOLDER / "config.yaml").read_text(), flags=re.MULTILINE)
    settings = load(text=text)
    assert settings.warnings == ()
    assert settings.config.node_name == "node-1"


def test_both_commands_read_one_configuration() -> None:
    commands = dict(pair for pair in _settings("Service") if "knft run" in pair[1])
    assert commands == {
        "ExecStartPre": "+/usr/bin/knft run --init-only --config=/etc/knft/config.yaml",
        "ExecStart": "/usr/bin/knft run --config=/etc/knft/config.yaml",
    }


def test_service_is_restarted_without_limit_as_the_user_of_sysusers() -> None:
    service, unit = dict(_settings("Service")), dict(_settings("Unit"))
    assert service["Restart"] == "always"
    assert unit["StartLimitIntervalSec"] == "0"
    assert service["OOMScoreAdjust"] == str(load(text=(FOLDER / "config.yaml").read_text()).oom_score_adj)
    assert f"u {service['User']} - " in (FOLDER / "knft.sysusers").read_text()


def test_unit_names_manual_pages_that_exist() -> None:
    (named,) = [value for name, value in _settings("Unit") if name == "Documentation"]
    found = {f"man:{page.file_name.replace('.', '(')})" for page in pages(0)}
    assert set(named.split()) <= found
