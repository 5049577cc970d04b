"""Files that cannot be decoded: their bytes, and the expected messages."""

import json

from tests.support.bad_manifests import service, text

_GOOD = text(service("web", 5))
_SPEC = json.dumps(service("web", 5)["spec"])
_LAUGHS = "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 10)}]\n" for level in range(12)
)

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "only white space": (b" \n\n", "the file is empty"),
    "cut in the middle of a mapping": (
        _GOOD.encode() + b"---\nkind: Service\nspec: {ports: [{port: 8",
        "not YAML: line 12, column 1: did not find expected ',' or '}', while parsing a flow mapping",
    ),
    "cut in the middle of a text": (
        b'kind: "Serv',
        "not YAML: line 1, column 12: found unexpected end of stream, while scanning a quoted scalar",
    ),
    "tabs": (
        b"kind: Service\nspec:\n\tports: []\n",
        "not YAML: line 3: tab used for indentation; YAML allows only spaces",
    ),
    "a line that is indented too far": (
        b"kind: Service\n  spec: {}\n",
        "not YAML: line 2, column 7: mapping values are not allowed in this context",
    ),
    "a merge conflict": (
        b"<<<<<<< HEAD\nkind: Service\n",
        "not YAML: line 2, column 5: mapping values are not allowed in this context",
    ),
    "a template that was not filled in": (
        b"metadata:\n  name: {{ .Values.name }}\n",
        (
            "not YAML: line 2, column 25: expected a key, found a mapping or a list; an unfilled template placeholder "
            "such as {{ name }} looks like this"
        ),
    ),
    "an alias for nothing": (
        b"a: *b\n",
        "not YAML: line 1, column 4: undefined alias *b",
    ),
    "an alias for itself": (
        b"a: &b [*b]\n",
        "not YAML: line 1, column 8: undefined alias *b",
    ),
    "a billion laughs": (_LAUGHS.encode(), "not YAML: line 6, column 10: aliases expand to more than 200000 values"),
    "a tag that would make an object": (
        b"a: !!python/object/apply:os.system [reboot]\n",
        "not YAML: line 1, column 4: unknown tag 'tag:yaml.org,2002:python/object/apply:os.system'",
    ),
    "a tag that is not known": (b"a: !secret x\n", "not YAML: line 1, column 4: unknown tag '!secret'"),
    # PyYAML 6.0.4 itself refuses a thousand.
    "nine hundred brackets": (
        b"a: " + b"[" * 900,
        "not YAML: line 1, column 103: values are nested more than 100 deep",
    ),
    "a hundred thousand dashes": (
        b"- " * 100_000,
        "not YAML: line 1, column 201: values are nested more than 100 deep",
    ),
    "a hundred thousand braces": (
        b'{"a":' * 100_000,
        "not JSON: values are nested too deeply",
    ),
    "JSON that is cut": (
        json.dumps(service("web", 5)).encode()[:-20],
        "not JSON: it ends inside a value",
    ),
    "JSON that is not closed rightly": (
        b'{"kind": "Service"]',
        (
            "not JSON (JSON is malformed: expected ',' or '}' (byte 18)), and not YAML: line 1, column 19: "
            "did not find expected ',' or '}', while parsing a flow mapping"
        ),
    ),
    "JSON, twice": (
        b'{"kind": "A"}\n{"kind": "B"}\n',
        (
            "not JSON (JSON is malformed: trailing characters (byte 15)), and not YAML: line 2, column 1: "
            "did not find expected <document start>"
        ),
    ),
    "JSON with a lone surrogate": (
        b'{"kind": "\\ud800"}',
        (
            "not JSON (Input data was truncated), and not YAML: line 1, column 13: "
            "found invalid Unicode character escape code, while parsing a quoted scalar"
        ),
    ),
    "bytes of no text": (
        bytes(range(128, 256)),
        "not YAML: byte 1: invalid leading UTF-8 octet; expected UTF-8 text",
    ),
    "an archive": (
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
        "not YAML: byte 1: control characters are not allowed; expected UTF-8 text",
    ),
    "Latin-1": ("a: ü".encode("latin-1"), "not YAML: byte 4: invalid leading UTF-8 octet; expected UTF-8 text"),
    "UTF-16 without a mark": (
        _GOOD.encode("utf-16-le"),
        "not YAML: byte 2: control characters are not allowed; expected UTF-8 text",
    ),
    "a null byte": (b"kind: S\x00", "not YAML: byte 8: control characters are not allowed; expected UTF-8 text"),
}

READABLE: dict[str, bytes] = {
    "UTF-8 with a mark": b"\xef\xbb\xbf" + _GOOD.encode(),
    "UTF-16 with a mark": _GOOD.encode("utf-16"),
    "Windows line ends": _GOOD.replace("\n", "\r\n").encode(),
    "JSON with a mark": b"\xef\xbb\xbf" + json.dumps(service("web", 5)).encode(),
    "JSON in UTF-16": json.dumps(service("web", 5)).encode("utf-16"),
    "flow style": f"{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {_SPEC}}}".encode(),
    "JSON with a number out of range": json.dumps(service("web", 5)).replace("{", '{"x": 1e999, ', 1).encode(),
    "a document end and comments": f"# first\n---\n# second\n{_GOOD}...\n# third\n".encode(),
}
"""A Service with cluster IP 10.96.0.5 in forms that are unusual, and fine."""
