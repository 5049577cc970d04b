"""Expressions and statements, encoded as JSON and text."""

from typing import Any, assert_never

from knft.nft import expressions as nft

Json = dict[str, Any]


def expression_json(expression: Any) -> Any:  # noqa: ANN401 - JSON has every type
    """Return an expression, or the right side of a comparison, as libnftables JSON."""
    match expression:
        case nft.Payload(protocol, field):
            return {"payload": {"protocol": protocol, "field": field}}
        case nft.Meta(key):
            return {"meta": {"key": key}}
        case nft.Ct(key):
            return {"ct": {"key": key}}
        case nft.FibType(source_or_destination):
            return {"fib": {"result": "type", "flags": [source_or_destination]}}
        case nft.RandomNumber(modulus, offset):
            return {"numgen": {"mode": "random", "mod": modulus, "offset": offset}}
        case nft.Constant(value):
            return {"numgen": {"mode": "random", "mod": 1, "offset": value}}
        case nft.Hash(fields, modulus, seed):
            hashed = fields[0] if len(fields) == 1 else nft.Concat(fields)
            return {"jhash": {"mod": modulus, "seed": seed, "expr": expression_json(hashed)}}
        case nft.Concat(parts):
            return {"concat": [expression_json(part) for part in parts]}
        case nft.Reference(container):
            return f"@{container}"
        case nft.Interface(name):
            return name
        case nft.Network(cidr):
            address, _, length = cidr.partition("/")
            return {"prefix": {"addr": address, "len": int(length)}}
        case _:
            return expression


def expression_text(expression: Any) -> str:  # noqa: ANN401 - the right side may be a string
    """Return an expression, or the right side of a comparison, as nft text."""
    match expression:
        case nft.Payload(protocol, field):
            return f"{protocol} {field}"
        case nft.Meta(key):
            return f"meta {key}"
        case nft.Ct(key):
            return f"ct {key}"
        case nft.FibType(source_or_destination):
            return f"fib {source_or_destination} type"
        case nft.RandomNumber(modulus, offset):
            return f"numgen random mod {modulus}" + (f" offset {offset}" if offset else "")
        case nft.Constant(value):
            return f"numgen random mod 1 offset {value}"
        case nft.Hash(fields, modulus, seed):
            return f"jhash {expression_text(nft.Concat(fields))} mod {modulus} seed {seed:#x}"
        case nft.Concat(parts):
            return " . ".join(expression_text(part) for part in parts)
        case nft.Reference(container):
            return f"@{container}"
        case nft.Interface(name):
            return f'"{name}"'
        case nft.Network(cidr):
            return cidr
        case _:
            return str(expression)


_MARK, _PRIORITY = {"meta": {"key": "mark"}}, {"meta": {"key": "priority"}}


def statement_json(statement: nft.Statement) -> Json:
    """Return a statement as libnftables JSON."""
    match statement:
        case nft.Match(left, right, op):
            return _match_json(op, expression_json(left), expression_json(right))
        case nft.MarkIsSet(mask):
            return _match_json("!=", {"&": [_MARK, mask]}, 0)
        case nft.SetMark(mask):
            return {"mangle": {"key": _MARK, "value": {"|": [_MARK, mask]}}}
        case nft.FlipMark(mask):
            return {"mangle": {"key": _MARK, "value": {"^": [_MARK, mask]}}}
        case nft.ClearPriority():
            return {"mangle": {"key": _PRIORITY, "value": "none"}}
        case nft.SetPriorityFromMap(key, name):
            value = {"map": {"key": expression_json(key), "data": f"@{name}"}}
            return {"mangle": {"key": _PRIORITY, "value": value}}
        case nft.Jump(chain):
            return {"jump": {"target": chain}}
        case nft.Goto(chain):
            return {"goto": {"target": chain}}
        case nft.Count():
            return {"counter": None}
        case nft.Drop():
            return {"drop": None}
        case nft.Return():
            return {"return": None}
        case nft.Reject():
            return {"reject": None}
        case nft.RejectWithReset():
            return {"reject": {"type": "tcp reset"}}
        case nft.Masquerade():
            return {"masquerade": {"flags": ["fully-random"]}}
        case nft.VerdictMap(key, name):
            return {"vmap": {"key": expression_json(key), "data": f"@{name}"}}
        case nft.DnatFromMap(family, key, name):
            target = {"map": {"key": expression_json(key), "data": f"@{name}"}}
            return {"dnat": {"family": family, "addr": target}}
        case nft.Update(name, key, seconds):
            element = {"elem": {"val": expression_json(key), "timeout": seconds}}
            return {"set": {"op": "update", "elem": element, "set": f"@{name}"}}
        case _:
            assert_never(statement)


def _match_json(op: str, left: object, right: object) -> Json:
    return {"match": {"op": op, "left": left, "right": right}}


def statement_text(statement: nft.Statement) -> str:
    """Return a statement as nft text."""
    match statement:
        case nft.Match(left, right, op):
            sign = "!= " if op == "!=" else ""
            return f"{expression_text(left)} {sign}{expression_text(right)}"
        case nft.MarkIsSet(mask):
            return f"meta mark & {mask:#010x} != 0"
        case nft.SetMark(mask):
            return f"meta mark set meta mark | {mask:#010x}"
        case nft.FlipMark(mask):
            return f"meta mark set meta mark ^ {mask:#010x}"
        case nft.ClearPriority():
            return "meta priority set none"
        case nft.SetPriorityFromMap(key, name):
            return f"meta priority set {expression_text(key)} map @{name}"
        case nft.Jump(chain):
            return f"jump {chain}"
        case nft.Goto(chain):
            return f"goto {chain}"
        case nft.Count():
            return "counter"
        case nft.Drop():
            return "drop"
        case nft.Return():
            return "return"
        case nft.Reject():
            return "reject"
        case nft.RejectWithReset():
            return "reject with tcp reset"
        case nft.Masquerade():
            return "masquerade fully-random"
        case nft.VerdictMap(key, name):
            return f"{expression_text(key)} vmap @{name}"
        case nft.DnatFromMap(family, key, name):
            return f"dnat {family} to {expression_text(key)} map @{name}"
        case nft.Update(name, key, seconds):
            return f"update @{name} {{ {expression_text(key)} timeout {seconds}s }}"
        case _:
            assert_never(statement)
