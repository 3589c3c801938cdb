"""Connections that the kernel paces, as clouds cap a flow."""

import subprocess
from pathlib import Path

# For the connections that a rank makes, and those that it accepts.
PACED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
static void pace(int line) {
  unsigned int rate = (unsigned int)strtoul(getenv("PACED_BYTES"), 0, 10);
  if (line >= 0) setsockopt(line, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}
int accept4(int on, struct sockaddr* from, socklen_t* size, int flags) {
  int (*next)(int, struct sockaddr*, socklen_t*, int) = dlsym(RTLD_NEXT, "accept4");
  int line = next(on, from, size, flags);
  pace(line);
  return line;
}
int connect(int line, const struct sockaddr* to, socklen_t size) {
  int (*next)(int, const struct sockaddr*, socklen_t) = dlsym(RTLD_NEXT, "connect");
  pace(line);
  return next(line, to, size);
}
"""


def pacing(folder: Path, bytes_per_second: float) -> dict:
    """Variables of a program all of whose connections are held to so much. Needs gcc."""
    source, library = folder / "paced.c", folder / "paced.so"
    source.write_text(PACED, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": library.resolve(), "PACED_BYTES": int(bytes_per_second)}
