"""The kernels of GPUs compile for those that the project is for, and have the names that they are called by."""

import itertools
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cmake"))

import compile_kernels  # noqa: E402

GPU = ROOT / "src/runtime/gpu"


def nvrtc():
    try:
        return compile_kernels.library()
    except (ImportError, SystemExit) as error:
        pytest.skip(f"PyTorch's wheel here brings no NVRTC: {error}")


def names_that_are_called() -> set[str]:
    text = (GPU / "dropout_on_gpu.cc").read_text()
    plain = re.findall(r'launch\(\s*"(\w+)",', text)
    typed = re.findall(r'launch\(\s*"(\w+)" \+', text)
    assert plain == ["keep_mask"] and len(typed) == 3
    types = ["float32", "float16", "bfloat16"]
    return {*plain, "drop_float64", *map("_".join, itertools.product(typed, types))}


@pytest.mark.parametrize("architecture", [90, 100])
def test_every_kernel_is_compiled(architecture):
    code = compile_kernels.compiled(nvrtc(), GPU / "dropout.cu", ROOT / "src", architecture)
    for name in names_that_are_called():
        assert f".text.{name}\0".encode() in code, name


def test_an_error_is_said_with_its_line(tmp_path):
    source = tmp_path / "wrong.cu"
    source.write_text('extern "C" __global__ void wrong(int* x) {\n  *x = y;\n}\n')
    with pytest.raises(SystemExit, match=r'wrong.cu\(2\): error: identifier "y" is undefined'):
        compile_kernels.compiled(nvrtc(), source, ROOT / "src", 90)
