"""The text of rules, as nft(8) writes them, for reports; forms without a case here stay compact JSON."""

from typing import Any

import msgspec

_LONGEST = 1000


def rule_text(statements: list[Any], comment: str, handle: int) -> str:
    """Return a rule's text, with its comment and its handle."""
    words = [text for statement in statements if (text := statement_text(statement))]
    words += [f'comment "{comment}"'] if comment else []
    return " ".join([*words, f"# handle {handle}"] if handle else words)


def statement_text(listed: Any) -> str:
    """Return a statement's text."""
    text = " ".join(listed.split()) if isinstance(listed, str) else _statement(listed)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _statement(listed: Any) -> str:
    match listed:
        case {"match": {"op": op, "left": left, "right": right}}:
            written = "" if op in ("==", "in") else f"{op} "
            return f"{_value(left)} {written}{_value(right)}"
        case {"jump": {"target": target}} | {"goto": {"target": target}}:
            return f"{next(iter(listed))} {target}"
        case {"vmap": {"key": key, "data": data}}:
            return f"{_value(key)} vmap {_value(data)}"
        case {"mangle": {"key": key, "value": value}}:
            return f"{_value(key)} set {_value(value)}"
        case {"set": {"op": op, "elem": element, "set": name}}:
            return f"{op} {name} {{ {_value(element)} }}"
    return _other(listed)


def _other(listed: Any) -> str:
    match listed:
        case {"dnat": dict(target)} | {"snat": dict(target)}:
            return f"{next(iter(listed))} {_target(target)}"
        case {"redirect": {"port": port}} | {"masquerade": {"port": port}}:
            return f"{next(iter(listed))} to :{_value(port)}"
        case {"masquerade": {"flags": flags}}:
            return f"masquerade {_value(flags)}"
        case {"reject": {"type": kind, "expr": expression}}:
            return f"reject with {kind} {expression}"
        case {"counter": str(name)}:
            return f'counter name "{name}"'
        case {"log": {"prefix": prefix}}:
            return f'log prefix "{prefix}"'
        case {"limit": {"rate": rate, "per": per}}:
            unit = f" {listed['limit'].get('rate_unit', '')}".rstrip()
            return f"limit rate {'over ' if listed['limit'].get('inv') else ''}{rate}{unit}/{per}"
        case {"limit": str(name)} | {"quota": str(name)}:
            return f'{next(iter(listed))} name "{name}"'
        case {"reject": {"type": kind}}:
            return f"reject with {kind}"
        case {"xt": {"type": kind, "name": name}}:
            return f'xt {kind} "{name}"'
        case {"counter": _} | {"accept": None} | {"drop": None} | {"return": None} | {"log": None}:
            return str(next(iter(listed)))
        case dict() if len(listed) == 1 and next(iter(listed.values())) is None:
            return str(next(iter(listed)))
    return _json(listed)


def _target(target: dict[str, Any]) -> str:
    address = target.get("addr", "")
    family = f"{target['family']} " if "family" in target else ""
    port = f":{_value(target['port'])}" if "port" in target else ""
    written = _value(address) if address else ""
    if port and ":" in written and isinstance(address, str):
        written = f"[{written}]"
    flags = f" {_value(target['flags'])}" if "flags" in target else ""
    return f"{family}to {written}{port}{flags}"


def _value(value: Any) -> str:
    """Return an expression's text."""
    match value:
        case bool():
            return "exists" if value else "missing"
        case str() | int():
            return str(value)
        case list():
            return ",".join(map(_value, value))
        case dict() if len(value) == 1:
            ((form, inner),) = value.items()
            return _form(form, inner, value)
    return _json(value)


def _form(form: str, inner: Any, whole: Any) -> str:
    match form, inner:
        case "payload", {"protocol": protocol, "field": field} if len(inner) == 2:  # noqa: PLR2004 - these two
            return f"{protocol} {field}"
        case "meta", {"key": key}:
            return f"{key}" if isinstance(key, str) and key in _BARE_META else f"meta {key}"
        case "ct", {"key": key}:
            return f"ct {inner['dir']} {key}" if "dir" in inner else f"ct {key}"
        case "fib", {"result": result, "flags": flags}:
            return f"fib {' . '.join(map(str, [flags] if isinstance(flags, str) else flags))} {result}"
        case "numgen", {"mode": mode, "mod": modulus}:
            offset = f" offset {inner['offset']}" if inner.get("offset") else ""
            return f"numgen {mode} mod {modulus}{offset}"
        case "jhash", {"mod": modulus, "expr": expression}:
            hashed = expression.get("concat", [expression]) if isinstance(expression, dict) else [expression]
            seed = f" seed {inner['seed']:#x}" if type(inner.get("seed")) is int else ""
            return f"jhash {' . '.join(map(_value, hashed))} mod {modulus}{seed}"
        case (("exthdr" | "ip option" | "tcp option"), {"name": name}):
            return " ".join(str(word) for word in (form, name, inner.get("field")) if word)
        case (("&" | "|" | "^" | "<<" | ">>"), list(operands)):
            return f" {form} ".join(_operand(operand) for operand in operands)
    return _constant(form, inner, whole)


_BARE_META = frozenset({"iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup"})


def _operand(operand: Any) -> str:
    text = _value(operand)
    if isinstance(operand, int) and not isinstance(operand, bool):
        return f"{operand:#010x}"
    return f"({text})" if isinstance(operand, dict) and not operand.keys().isdisjoint({"&", "|", "^"}) else text


def _constant(form: str, inner: Any, whole: Any) -> str:
    match form, inner:
        case "concat", list():
            return " . ".join(map(_value, inner))
        case "set", list():
            return f"{{ {', '.join(map(_item, inner))} }}"
        case "prefix", {"addr": address, "len": length}:
            return f"{_value(address)}/{length}"
        case "range", [first, last]:
            return f"{_value(first)}-{_value(last)}"
        case "map", {"key": key, "data": data}:
            return f"{_value(key)} map {_value(data)}"
        case "elem", {"val": key}:
            return f"{_value(key)} timeout {inner['timeout']}s" if "timeout" in inner else _value(key)
    return _json(whole)


def _item(item: Any) -> str:
    if isinstance(item, list) and len(item) == 2:  # noqa: PLR2004 - a key and a value
        key, value = item
        return (
            f"{_value(key)} : {_statement(value) if isinstance(value, dict) and _is_verdict(value) else _value(value)}"
        )
    return _value(item)


def _is_verdict(value: dict[str, Any]) -> bool:
    return not value.keys().isdisjoint({"accept", "drop", "jump", "goto", "return", "continue"})


def _json(listed: Any) -> str:
    return msgspec.json.encode(listed).decode()
