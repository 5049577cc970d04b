"""Replaces credentials in texts for logs. Each function takes linear time, since other programs choose the texts."""

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"

_AUTHORIZATION = re.compile(
    r"(?i)(\bbearer[ \t]++"
    r"|\bauthorization[\"']?[ \t]*+[:=][ \t]*+[\"']?[ \t]*+(?:(?:basic|bearer)[ \t]*+)?)[A-Za-z0-9._~+/=-]{8,}"
)
_JWT = re.compile(
    # A service account's token, for example: three parts; the first begins like a JSON object. The lookahead reads the
    # first two parts once, and not once for each "eyJ" in the first.
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-]{4,}+\.)"
    r"[A-Za-z0-9_-]*?eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]*+"
)
_ASSIGNED = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|token|credential|(?:api|access|private)[_-]?key)[\w-]{0,20}+"
    r"[\"']?[ \t]*+[:=][ \t]*+)(?:\"[^\"]*+\"?|'[^']*+'?|\S++)"
)
_USER_INFO = re.compile(r"(://)[^/\s@]++@")
_PEM = re.compile(r"-----BEGIN[^-]{0,40}PRIVATE KEY-----.*", re.DOTALL)


def hide_credentials(text: str) -> str:
    """Return a text with everything that looks like a token replaced."""
    return _JWT.sub(HIDDEN, _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text))


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """Return another program's text without tokens, private keys, values of passwords, and the ``known`` secrets."""
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _ASSIGNED.sub(rf"\g<1>{HIDDEN}", _PEM.sub(HIDDEN, hide_credentials(text)))
    return _USER_INFO.sub(rf"\g<1>{HIDDEN}@", text)
