"""Names of cards, and cards that the device data base has not."""

import math

from heterog.base.errors import HeterogError
from heterog.base.values import number_in, shown

# As src/launch/gpu_type.cc: what a rank's GPU is called is compared with the plan's device.
_FAMILIES = ("NVIDIA ", "Tesla ", "GeForce ")
_NAMES = {"GTX-TITAN-X": "TITAN-X-Maxwell", "TITAN-X-(Pascal)": "TITAN-X-Pascal",
          "H100-80GB-HBM3": "H100-SXM5-80GB", "H200": "H200-SXM5-141GB"}  # fmt: skip
_GIB = 1 << 30


def device_type(driver_name: str) -> str:
    for family in _FAMILIES:
        driver_name = driver_name.removeprefix(family)
    name = driver_name.replace(" ", "-")
    return _NAMES.get(name, name)


# Figure: (its key in devices.json, its unit).
_FIGURES = {"fp32": ("fp32_flops_per_second", 1e12), "fp16": ("half_flops_per_second", 1e12),
            "tf32": ("tf32_flops_per_second", 1e12), "fp64": ("fp64_flops_per_second", 1e12),
            "bandwidth": ("memory_bytes_per_second", 1e9), "memory": ("memory_bytes", _GIB),
            "cache": ("cache_bytes", 1 << 20), "sms": ("multiprocessors", 1)}  # fmt: skip
_NEEDED = ("fp32", "bandwidth", "memory")


def parse_card(text: str) -> tuple[str, dict[str, float], str | None]:
    """"NAME:fp32=35.6,bandwidth=936,memory=24,…": name, figures, and the card that it is like."""
    name, colon, rest = text.partition(":")
    units = "fp32, fp16, tf32, fp64 in TFLOP/s, bandwidth in GB/s, memory in GiB, cache in MiB, sms"
    if not name.strip() or not colon:
        raise HeterogError(f"--card {shown(text)}: give NAME:fp32=…,bandwidth=…,memory=…; {units}")
    figures: dict[str, float] = {}
    like = None
    for part in rest.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key == "like":
            like = value
            continue
        if key not in _FIGURES:
            raise HeterogError(f"--card {shown(text)}: no figure {key!r}; there are {units}, and like=CARD")
        figure = number_in(value)
        least = 0.0 if key in ("tf32", "cache") else 1e-6
        if figure is None or not least <= figure <= 1e6:
            raise HeterogError(f"--card {shown(text)}: {key} is {shown(value)}; give a number from {least:g} to 1e6")
        figures[key] = figure
    missing = [key for key in _NEEDED if key not in figures]
    if missing:
        raise HeterogError(f"--card {shown(text)}: {', '.join(missing)} is missing; {units}")
    return device_type(name.strip()), figures, like


def estimated(name: str, figures: dict[str, float], like: str | None, known: dict[str, dict]) -> dict:
    """An entry of devices.json: figures as given, constants of the card most like it."""
    if like is not None and like not in known:
        raise HeterogError(f"--card {name}: like={like}: no such card; devices.json has {', '.join(known)}")
    model = known[like] if like is not None else known[_nearest(figures, known)]
    entry = {"name": name}
    given = " ".join(f"{key} {figures[key]:g}" for key in figures)
    entry["source"] = (
        f"estimated: data-sheet figures given by hand ({given}); constants and what was not given as of "
        f"{model['name']}"
    )
    values = {_FIGURES[key][0]: figures[key] * _FIGURES[key][1] for key in figures}
    share = figures["fp32"] * 1e12 / model["fp32_flops_per_second"]
    values.setdefault("tf32_flops_per_second", 0)
    values.setdefault("half_flops_per_second", values["fp32_flops_per_second"])
    values.setdefault("fp64_flops_per_second", values["fp32_flops_per_second"] / 32)
    values.setdefault("multiprocessors", max(1, round(model.get("multiprocessors", 1) * share)))
    values.setdefault("cache_bytes", model.get("cache_bytes", 0))
    for key in ("memory_bytes", "multiprocessors", "cache_bytes"):
        values[key] = round(values[key])
    values["reserve_bytes"] = min(model["reserve_bytes"], values["memory_bytes"] // 4)
    as_of_model = ("launch_seconds", "half_efficiency_flop", "collective_slowdown", "step_deviation")
    for key in (*as_of_model, "efficiency", "calibration", "sustained"):
        if key in model:
            values[key] = model[key]
    if "bf16_flops_per_second" in model:  # without units for it, as a part of single precision
        values["bf16_flops_per_second"] = model["bf16_flops_per_second"] * share
    return entry | values


def _nearest(figures: dict[str, float], known: dict[str, dict]) -> str:
    """By speed, and by how bandwidth and tensor cores stand to it."""

    def place(fp32: float, half: float, bandwidth: float) -> list[float]:
        return [math.log(fp32) / 2, math.log(half / fp32), math.log(bandwidth / fp32)]

    own = place(figures["fp32"] * 1e12, figures.get("fp16", figures["fp32"]) * 1e12, figures["bandwidth"] * 1e9)

    def distance(entry: dict) -> float:
        its = place(entry["fp32_flops_per_second"], entry["half_flops_per_second"],
                    entry["memory_bytes_per_second"])  # fmt: skip
        return math.dist(own, its)

    cards = [entry for name, entry in known.items() if not name.startswith("CPU")]
    return min(cards, key=distance)["name"]
