"""The files of --iptables-save, --ipset-save, --ipvsadm-save and --nft-json, as a Capture."""

from pathlib import Path
from typing import Any

from knft.comparison.captures import SAVE_PROGRAMS, Capture
from knft.errors import CaptureError, SourceError, UsageError
from knft.families import IpVersion
from knft.source.files import error_reason, format_path, read_named_file


def capture_from_options(options: dict[str, Any]) -> Capture | None:
    """Return the capture that the flags name, None without such a flag.

    Raise UsageError, SourceError or CaptureError naming flag and file.
    """
    saves: dict[IpVersion, str] = {4: options["iptables_save"], 6: options["ip6tables_save"]}
    given = {version: path for version, path in saves.items() if path is not None}
    nft = options["nft_json"]
    for flag in ("ipset_save", "ipvsadm_save"):
        if options[flag] is not None and not given:
            msg = f"--{flag.replace('_', '-')} requires --iptables-save or --ip6tables-save"
            raise UsageError(msg)
    if not given and nft is None:
        return None
    names = {SAVE_PROGRAMS[version]: f"--{SAVE_PROGRAMS[version]} {path}" for version, path in given.items()}
    others = {
        "ipset": ("--ipset-save", options["ipset_save"]),
        "ipvsadm": ("--ipvsadm-save", options["ipvsadm_save"]),
        "nft": ("--nft-json", nft),
    }
    return Capture(
        rules={version: _read_text(f"--{SAVE_PROGRAMS[version]}", path) for version, path in given.items()},
        sets="" if options["ipset_save"] is None else _read_text("--ipset-save", options["ipset_save"]),
        servers="" if options["ipvsadm_save"] is None else _read_text("--ipvsadm-save", options["ipvsadm_save"]),
        nftables=None if nft is None else _read_bytes("--nft-json", nft),
        source_names=names
        | {program: f"{flag} {path}" for program, (flag, path) in others.items() if path is not None},
        is_from_files=True,
    )


def _read_bytes(flag: str, path: str) -> bytes:
    try:
        return read_named_file(Path(path))
    except (OSError, SourceError) as error:
        msg = f"{flag}: {format_path(path)}: {error_reason(error)}"
        raise SourceError(msg) from error


def _read_text(flag: str, path: str) -> str:
    content = _read_bytes(flag, path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{flag}: {format_path(path)}: invalid UTF-8 at byte {error.start + 1}"
        raise CaptureError(msg) from error
