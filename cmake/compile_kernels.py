"""Compiles a CUDA source for every major kind of GPU, by the NVRTC of PyTorch's wheel, and writes what
it made as a C++ source.

    compile_kernels.py SOURCE.cu NAME OUT.cc --include FOLDER

NAME: of the table in runtime/gpu/compiled_kernels.h. FOLDER: where headers are that the source names.
Needs neither a GPU nor a CUDA toolkit.
"""

import argparse
import ctypes
import sys
from pathlib import Path


def library():
    import nvidia

    found = [path for root in nvidia.__path__ for path in sorted(Path(root).glob("cu*/lib/libnvrtc.so.*"))]
    if not found:
        sys.exit("compile_kernels.py: no libnvrtc.so; the preset cuda needs the PyTorch wheel for CUDA 13")
    return ctypes.CDLL(str(found[0]))


def check(nvrtc, code, what):
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"compile_kernels.py: {what}: {nvrtc.nvrtcGetErrorString(code).decode()}")


def architectures(nvrtc) -> list[int]:
    """Of each major compute capability the lowest: its code runs on the others. 75, 80, 90, …"""
    count = ctypes.c_int()
    check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "architectures")
    known = (ctypes.c_int * count.value)()
    check(nvrtc, nvrtc.nvrtcGetSupportedArchs(known), "architectures")
    lowest = {}
    for each in sorted(known):
        lowest.setdefault(each // 10, each)
    return list(lowest.values())


def compiled(nvrtc, source: Path, include: Path, architecture: int) -> bytes:
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None), source)
    options = [f"--gpu-architecture=sm_{architecture}".encode(), f"--include-path={include}".encode()]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if code:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"compile_kernels.py: {source} for sm_{architecture}:\n{log.value.decode()}")
    size = ctypes.c_size_t()
    check(nvrtc, nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), source)
    made = ctypes.create_string_buffer(size.value)
    check(nvrtc, nvrtc.nvrtcGetCUBIN(program, made), source)
    return made.raw


def main(source: Path, name: str, out: Path, include: Path):
    nvrtc = library()
    text = ['// Written by cmake/compile_kernels.py.\n#include "runtime/gpu/compiled_kernels.h"\n\n#include <array>\n\n'
            "namespace heterog::runtime {\nnamespace {\n\n"]  # fmt: skip
    kinds = architectures(nvrtc)
    for kind in kinds:
        numbers = ",".join(map(str, compiled(nvrtc, source, include, kind)))
        text.append(f"alignas(16) constexpr unsigned char kCode{kind}[] = {{{numbers}}};\n")
    rows = ", ".join(f"CompiledKernels{{{kind // 10}, {kind % 10}, kCode{kind}}}" for kind in kinds)
    text.append(f"constexpr std::array kKernels = {{{rows}}};\n\n}}  // namespace\n\n"
                f"const std::span<const CompiledKernels> {name} = kKernels;\n\n}}  // namespace heterog::runtime\n")  # fmt: skip
    out.write_text("".join(text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("--include", type=Path, required=True)
    main(**vars(parser.parse_args()))
