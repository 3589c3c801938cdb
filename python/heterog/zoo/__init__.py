"""The model zoo: one registry of the training steps whose graphs lie in models/."""

from . import language, lora, other, recurrent, transformer, vision
from .spec import Published, Spec


def _registry() -> dict[str, Spec]:
    families = (vision, transformer, language, lora, recurrent, other)
    return {spec.name: spec for family in families for spec in family.specs()}


SPECS: dict[str, Spec] = _registry()


def names() -> list[str]:
    """Every model in the order of the registry, each followed by its tiny sibling."""
    return list(SPECS)


def get(name: str) -> Spec:
    if name not in SPECS:
        raise KeyError(f"zoo: no model '{name}'; there are {', '.join(SPECS)}")
    return SPECS[name]


__all__ = ["Published", "Spec", "SPECS", "get", "names"]
