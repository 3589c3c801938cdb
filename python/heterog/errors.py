"""The one exception of the exporter: what is wrong, where, and what to do, in one line."""


class ExportError(Exception):
    """A model, its inputs, its loss or its optimizer cannot be exported."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))
