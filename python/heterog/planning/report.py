"""The page of `heterog report` for a plan."""

import os
import tempfile

from heterog.base.cache_files import folder_of_process
from heterog.base.errors import HeterogError
from heterog.base.given import FilePath
from heterog.base.reading import MOST_WRITTEN_BYTES, read_text
from heterog.base.run_verb import run_verb
from heterog.planning.problem import Problem, path_of


def report_page(problem: Problem, plan: FilePath) -> str:
    """The page as HTML."""
    with tempfile.TemporaryDirectory(dir=folder_of_process()) as folder:
        # The page calls the plan by its file's name.
        named, page = os.path.join(folder, "plan.json"), os.path.join(folder, "page.html")
        try:
            os.symlink(os.path.abspath(path_of("plan", plan)), named)
        except OSError as error:
            raise HeterogError(f"{named}: {error.strerror}") from error
        run_verb(["report", *problem.arguments(), f"--plan={named}", f"--out={page}"])
        return read_text(page, MOST_WRITTEN_BYTES)
