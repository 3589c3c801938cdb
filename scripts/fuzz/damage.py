"""Ways to damage a file: its bytes, its words, what it says. Each gives the same for the same `rng`."""

import gzip
import json
import random
import struct

NUMBERS = [0, 1, -1, 2, 3, 7, 255, 256, 65536, 2**20, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1,
           2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 0.5, -0.0, 1e-320,
           1e308, 1e18, 1e-9]
STRINGS = ["", "x", "\x00", "\n", "é", "../../etc/x", "/", "a" * 5000, "%0", "%1", "%999999", "#B",
           "#-B", "#999999999999B", "$1/0B", "$36B", "'x", ":inf", ":nan", ":float32", ":device",
           "forward", "backward", "update", "parameter", "input", "buffer", "gradient", "output",
           "optimizer_state", "activation", "float64", "int64", "bool", "CPU", "A100-SXM4-40GB",
           "aten.from_file.default", "aten.fill_.Scalar", "aten.view.default", "aten.mm.default",
           "aten.sum.default", "aten.empty.memory_format", "aten.resize_.default", "prim.print"]


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four of: a bit, a byte, a piece cut out, doubled, moved, overwritten; the end cut off."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not data:
            return bytes([rng.randrange(256)])
        at = rng.randrange(len(data))
        length = min(len(data) - at, rng.choice([1, 2, 4, 8, 16, 64, 256]))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[at : at + length] * rng.choice([1, 2, 50])
        elif kind == 4:
            piece = data[at : at + length]
            del data[at : at + length]
            to = rng.randrange(len(data) + 1)
            data[to:to] = piece
        elif kind == 5:
            data[at : at + length] = rng.choice([b"\xff", b"\x00", b"9", b"[", b'"']) * length
        elif rng.random() < 0.2:
            del data[at:]
    return bytes(data)


def places(value, path=()):
    """Every value inside a JSON document, as the path of keys to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))


def follow(document, path):
    for key in path:
        document = document[key]
    return document


def other_value(value, siblings, rng: random.Random):
    """Another value in place of one, mostly of the same kind."""
    if rng.random() < 0.15:
        return rng.choice([None, True, {}, [], "x", 0, -1, [[]], {"a": 1}])
    if siblings and rng.random() < 0.35:
        return rng.choice(siblings)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice([*NUMBERS, value + 1, value - 1, value * 2, -value, value * 1e9, value / 3])
    if isinstance(value, str):
        if rng.random() < 0.3 and value:
            return damage_bytes(value.encode(), rng).decode("utf-8", "replace")
        return rng.choice(STRINGS)
    if isinstance(value, list):
        change = rng.randrange(5)
        if change == 0 or not value:
            return [*value, rng.choice([0, "x", None])]
        if change == 1:
            return value[: rng.randrange(len(value))]
        if change == 2:
            return rng.sample(value, len(value))
        if change == 3:
            return value + value
        return value * min(2000, max(1, 200000 // (1 + len(value))))
    if isinstance(value, dict):
        return dict(list(value.items())[: rng.randrange(len(value) + 1)])
    return 0


def damage_json(text: str, rng: random.Random) -> str:
    """One to three changes to what the document says: values, keys, order, counts, names."""
    document = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = list(places(document))
        if not paths:
            break
        path = rng.choice(paths)
        parent, key = follow(document, path[:-1]), path[-1]
        change = rng.randrange(10)
        if change == 0:
            del parent[key]
        elif change == 1 and isinstance(parent, dict):
            parent[rng.choice([*parent, "unknown", "", "name"])] = parent.pop(key)
        elif change == 1 or change == 2 and isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), parent[key])
        elif change == 3 and isinstance(parent, list):
            other = rng.randrange(len(parent))
            parent[key], parent[other] = parent[other], parent[key]
        elif change == 4 and isinstance(parent, dict):
            # The same key of another object of its kind: another op's phase, another device's name.
            up = follow(document, path[:-2]) if len(path) > 1 else None
            if isinstance(up, list):
                same = [item[key] for item in up if isinstance(item, dict) and key in item]
                parent[key] = rng.choice(same)
        else:
            like = [follow(document, p) for p in rng.sample(paths, min(len(paths), 20))]
            like = [v for v in like if type(v) is type(parent[key]) and not isinstance(v, (dict, list))]
            parent[key] = other_value(parent[key], like, rng)
    text = json.dumps(document)
    return text.replace("Infinity", "1e999") if rng.random() < 0.5 else text


def strip_comments(text: str) -> str:
    return "\n".join(line.split("//")[0] if '"' not in line.split("//")[-1] else line
                     for line in text.splitlines())


def damage_text(data: bytes, rng: random.Random) -> bytes:
    """A JSON text, in half of the cases by its structure."""
    if rng.random() < 0.65:
        return damage_json(strip_comments(data.decode()), rng).encode()
    return damage_bytes(data, rng)


SIZES = [0, 1, 2, 3, 7, 64, "B", "2B", "B+1", "3B+2", "4B", "B-1", 2**20, 2**40]
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64",
          "bool"]  # fmt: skip


def other_size(size, rng: random.Random):
    if isinstance(size, int) and rng.random() < 0.6:
        return rng.choice([size + 1, max(size - 1, 0), 2 * size, size // 2, 16 * size])
    return rng.choice(SIZES)


def replaced(value, old, new, rng: random.Random, share: float):
    """`value` with `new` in most places of `old`, for which numbers and texts are compared as such."""
    if isinstance(value, list):
        return [replaced(item, old, new, rng, share) for item in value]
    if isinstance(value, dict):
        return {key: replaced(item, old, new, rng, share) for key, item in value.items()}
    same = type(value) is type(old) and value == old
    return new if same and rng.random() < share else value


def of_arguments(op: dict):
    """The places of an op's arguments and of the items of those that are lists."""
    for holder in (op["args"], op.get("kwargs", {})):
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(value, list):
                yield from ((value, i) for i in range(len(value)))


def claim_otherwise(document: dict, rng: random.Random) -> None:
    """One change to what a graph declares: its form stays right, and its meaning is another."""
    tensors, ops = document["tensors"], document["ops"]
    tensor, op = rng.choice(tensors), rng.choice(ops)
    shaped = [t for t in tensors if t["shape"]]
    change = rng.randrange(14)
    if change == 0:
        tensor["dtype"] = rng.choice(DTYPES)
    elif change <= 2:
        shape = rng.choice(shaped)["shape"]
        at = rng.randrange(len(shape))
        shape[at] = other_size(shape[at], rng)
    elif change == 3:
        shape = tensor["shape"]
        rng.choice([lambda: rng.shuffle(shape), lambda: shape.append(rng.choice(SIZES)),
                    lambda: shape and shape.pop(rng.randrange(len(shape)))])()  # fmt: skip
    elif change == 4:
        other = rng.choice(tensors)
        tensor["shape"], other["shape"] = other["shape"], tensor["shape"]
    elif change == 5:  # a size, in all or most places: of tensors alone, or of arguments too
        old = rng.choice(rng.choice(shaped)["shape"])
        new, share = other_size(old, rng), rng.choice([1.0, 0.9, 0.5])
        for t in tensors:
            t["shape"] = replaced(t["shape"], old, new, rng, share)
        if rng.random() < 0.7:
            text = isinstance(old, str), isinstance(new, str)
            old, new = (f"#{x}" if is_text else x for x, is_text in zip((old, new), text))
            for o in ops:
                o["args"] = replaced(o["args"], old, new, rng, share)
    elif change == 6:  # a dtype, in all or most places
        old, new, share = tensor["dtype"], rng.choice(DTYPES), rng.choice([1.0, 1.0, 0.9])
        for t in tensors:
            t["dtype"] = replaced(t["dtype"], old, new, rng, share)
        for o in ops:
            o["args"] = replaced(o["args"], f":{old}", f":{new}", rng, share)
            o["kwargs"] = replaced(o.get("kwargs", {}), f":{old}", f":{new}", rng, share)
        document["dtype"] = next(
            (t["dtype"] for t in tensors if t["role"] == "parameter"), document["dtype"])
    elif change <= 9:  # an argument
        places = list(of_arguments(op))
        if not places:
            return
        holder, key = rng.choice(places)
        value = holder[key]
        if isinstance(value, str) and value[0] == "%":
            holder[key] = f"%{rng.randrange(len(tensors))}"
        elif isinstance(value, str) and value[0] in "#$":
            holder[key] = value[0] + str(rng.choice([2, "B", "2B", "B+1", "8B", "0.5B", "1/B"]))
        elif isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int):
            holder[key] = rng.choice([value + 1, value - 1, -value, 2 * value, 0, 2**31, "#B"])
        elif isinstance(value, float):
            holder[key] = rng.choice([0.0, -value, 1e30, 2 * value, ":nan", "$1/B"])
        elif isinstance(value, list):
            holder[key] = rng.choice([value[:-1], value + value[-1:], value[::-1]])
        else:
            holder[key] = rng.choice([None, 1, True, ":float16", "#B", f"%{rng.randrange(len(tensors))}"])
    elif change == 10:
        op["op"] = rng.choice(ops)["op"]
    elif change == 11:
        outputs, others = op["outputs"], rng.choice(ops)["outputs"]
        i, j = rng.randrange(len(outputs)), rng.randrange(len(others))
        outputs[i], others[j] = others[j], outputs[i]
    elif change == 12:
        ids = [t for t in tensors if "replaces" in t or "of" in t]
        if ids:
            one, other = rng.choice(ids), rng.choice(ids)
            for key in ("replaces", "of"):
                if key in one and key in other:
                    one[key], other[key] = other[key], one[key]
    else:
        holders = [t for t in tensors if "values" in t]
        if holders:
            values = rng.choice(holders)["values"]
            key = rng.choice(list(values))
            values[key] = other_value(values[key], [], rng)


def damage_graph(data: bytes, rng: random.Random) -> bytes:
    """A graph: in half of the cases by what it declares, else as any text."""
    if rng.random() < 0.1:
        return damage_bytes(data, rng)
    text = gzip.decompress(data)
    if rng.random() < 0.45:
        return gzip.compress(damage_text(text, rng), 1)
    document = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        claim_otherwise(document, rng)
    return gzip.compress(json.dumps(document).encode(), 1)


def without_checksum(header: bytes) -> bytes:
    """The header of the earlier version of the same file, which is read unchecked: otherwise the
    checksum would answer for all the checks that come after it."""
    document = json.loads(header)
    metadata = document.get("__metadata__", {})
    metadata.pop("checksum", None)
    if metadata.get("format") == "heterog-training":
        metadata.pop("version", None)
    elif "version" in metadata:
        metadata["version"] = "1"
    return json.dumps(document, separators=(",", ":")).encode()


def damage_tensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file: its header by structure, or any of its bytes."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + size], data[8 + size :]
    if rng.random() < 0.7:
        header = without_checksum(header)
        data = struct.pack("<Q", len(header)) + header + body
    choice = rng.random()
    if choice < 0.2:
        return damage_bytes(data, rng)
    if choice < 0.4:
        return data[:8] + header + damage_bytes(body, rng)
    if choice < 0.8:
        header = damage_json(header.decode(), rng).encode()
    else:
        header = damage_bytes(header, rng)
    if rng.random() < 0.2:
        body = damage_bytes(body, rng)
    length = len(header) if rng.random() < 0.9 else rng.choice([0, 7, 2**31, 2**62, 2**64 - 1])
    return struct.pack("<Q", length) + header + body


def damage_lines(data: bytes, rng: random.Random) -> bytes:
    """A hostfile: words of it in other places, or its bytes."""
    if rng.random() < 0.5:
        return damage_bytes(data, rng)
    words = data.split()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        words[at] = rng.choice([b"slots=0", b"slots=-1", b"slots=99999999999999999999", b"slots=",
                                b"slots=1e9", b"#", b"a" * 3000, b"", b"slots=2147483648", b"-oProxyCommand=x",
                                b"-", b"a;b", b"$HOME", b"@", b"a@b@c", b"a@-b", b"fe80::1%e", *words])
    return b"".join(word + rng.choice([b" ", b"\n", b"\t", b"\r\n"]) for word in words)
