"""The version that exported files name as their producer."""

VERSION = "0.1.0"
