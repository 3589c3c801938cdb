"""Command lines of the verbs in Python: an option that takes one value is given once."""

import argparse


class _Once(argparse.Action):
    """argparse's own `store` keeps the last value and drops the others without a word."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = vars(namespace).setdefault("_given", set())
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string}: given twice; it takes one value")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def make_parser(**described) -> argparse.ArgumentParser:
    """An ArgumentParser that refuses the second value of an option that takes one."""
    parser = argparse.ArgumentParser(**described)
    for name in (None, "store"):
        parser.register("action", name, _Once)
    return parser
