#!/usr/bin/env python3
"""Writes the table of the operators that a graph may hold (src/operators/allowed_table.cc).

Run it with a new version of PyTorch, and read what changed: whatever stands in the table can be
asked for by a file that somebody else wrote. An operator enters it if its schema says that it does
nothing but compute tensors from tensors and numbers, and no rule below leaves it out.
tests/runtime/operators_test.cc walks all schemas and holds the table to the same promise, with code
of its own.

    .venv/bin/python scripts/list_operators.py            # what would change
    .venv/bin/python scripts/list_operators.py --write
"""

import argparse
import difflib
import re
from collections import defaultdict
from pathlib import Path

import torch

TABLE = Path(__file__).resolve().parent.parent / "src/operators/allowed_table.cc"
BEGIN, END = 'R"(\n', ')"'

# What an argument may be, lists and optional ones of it too. No storage, no file, no generator, no
# stream, no dictionary, no object.
ARGUMENTS = {"Tensor", "int", "bool", "float", "number", "str", "Device"}

# Text that chooses a way to compute. Another text is a name of something outside.
TEXTS = {
    "UPLO", "approximate", "driver", "equation", "indexing", "interpolation", "mode", "norm",
    "ord", "p", "pad_mode", "padding", "padding_side", "reduce", "rounding_mode", "side",
}  # fmt: skip

# Sparse, nested, quantized and other layouts that the format lacks; kernels of one library, which
# PyTorch chooses itself; what tracing and tests of PyTorch are made of.
LEFT_OUT = re.compile(
    r"from_file|set|resize.*|rename|refine_names|align_.*|data|lift|pin_memory|.*overrideable"
    r"|.*sparse.*|.*mkldnn.*|.*miopen.*|.*cudnn.*|.*quant.*|fbgemm.*|nested_.*|.*mps.*"
    r"|(ccol|col|crow|row)?_?indices(_copy)?|values(_copy)?|.*coalesce.*|hspmm|smm|sspaddmm"
    r"|q_per.*|int_repr|choose_qparams_optimized|batch_norm_(stats|elemt|gather.*|update.*)"
    r"|batch_norm_backward_.*|hash_tensor|to_padded_tensor|nonzero_numpy|_(?!_).*"
)

# The internal ones that traces of training steps are made of.
INTERNAL = set(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
    _adaptive_avg_pool3d_backward _aminmax _cdist_backward _cdist_forward _conj _conj_copy
    _conj_physical _convolution _ctc_loss _ctc_loss_backward _dirichlet_grad _efficientzerotensor
    _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward
    _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward _euclidean_dist
    _fused_adam _fused_adamw _fused_rms_norm _fused_rms_norm_backward _fused_sgd _grouped_mm _linalg_det _linalg_eigh _linalg_slogdet
    _linalg_solve_ex _linalg_svd _log_softmax _log_softmax_backward_data _logcumsumexp
    _lu_with_info _masked_scale _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _neg_view _neg_view_copy _pdist_backward _pdist_forward
    _prelu_kernel _prelu_kernel_backward _reshape_alias _reshape_copy _safe_softmax
    _scaled_dot_product_attention_math _scaled_dot_product_efficient_attention
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data
    _standard_gamma_grad _to_copy _trilinear _unsafe_index _unsafe_index_put _unsafe_view
    _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward _weight_norm_interface _weight_norm_interface_backward
    """.split()
)

# Whose kernels read or write where their operands tell them to (scripts/fuzz/operators.py finds them),
# and that no exported training step has. Those that steps do have are held to what their kernels
# take on trust: src/runtime/kernels/operand_checks.cc.
TRUSTING = re.compile(
    # The kernels behind `convolution`.
    r"slow_conv.*|thnn_conv2d|conv_depthwise3d"
    # Pivots.
    r"|lu_(solve|unpack)|linalg_(lu|ldl)_solve"
    # Lists of weights and hidden states: exports write recurrent layers out.
    r"|gru|lstm|rnn_(relu|tanh)"
    # Offsets and indices, of operators that exports write out as others.
    r"|segment_reduce|ctc_loss|embedding_bag|embedding_backward|batch_norm_backward"
    # Results are complex, which no tensor of a graph is; LAPACK's routine does not survive a NaN.
    r"|linalg_eig(vals)?"
    # Divides by a step that an integer type rounds to 0; `arange` does not.
    r"|range"
    # A number says how long they compute.
    r"|special_.*_polynomial_.*"
)

# Take a generator, which a file cannot name. Only those that run draws by counter
# (src/runtime/kernels/draw.cc) and never calls, or calls where their arguments say that nothing is
# drawn.
RANDOM = {
    f"aten::{name}"
    for name in """
    bernoulli bernoulli.Tensor bernoulli.p uniform exponential log_normal geometric cauchy
    normal_functional normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor
    normal.float_float multinomial rrelu_with_noise_functional
    """.split()
}


def plain(kind) -> str:
    """int of Optional[List[int]]."""
    return re.sub(r"\b(Optional|List)\[", "", str(kind)).replace("]", "")


def allowed(schema) -> bool:
    name = schema.name.removeprefix("aten::")
    if name == schema.name or (LEFT_OUT.fullmatch(name) and name not in INTERNAL):
        return False
    if TRUSTING.fullmatch(name):
        return False
    full = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if not torch._C._dispatch_has_kernel(full) or re.search("names|imname", full):
        return False
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            return False
        kind = plain(argument.type)
        if kind not in ARGUMENTS and not (kind == "Generator" and full in RANDOM):
            return False
        if kind == "str" and argument.name not in TEXTS:
            return False
    return bool(schema.returns) and all(plain(r.type) == "Tensor" for r in schema.returns)


def table() -> str:
    overloads = defaultdict(set)
    for schema in torch._C._jit_get_all_schemas():
        if allowed(schema):
            name = schema.name.removeprefix("aten::")
            overloads[name].add(schema.overload_name or "default")
    return "".join(f"{name} {' '.join(sorted(overloads[name]))}\n" for name in sorted(overloads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = TABLE.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    found = table()
    before, after = text[begin:end].splitlines(), found.splitlines()
    print("\n".join(difflib.unified_diff(before, after, lineterm="", n=0)) or "no change")
    if options.write:
        TABLE.write_text(text[:begin] + found + text[end:])


if __name__ == "__main__":
    main()
