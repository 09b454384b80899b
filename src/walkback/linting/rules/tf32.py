"""TF32 is switched on in a file that measures gradients: the reference keeps 10 bits of mantissa.

Why: TF32 rounds the inputs of every matrix product to 10 bits of mantissa. The reference gradient then differs from
the float32 one by about 1e-3 per product, and more where sums cancel, so cosines near 1 and tiny gradients are off.
Instead: measure with `torch.set_float32_matmul_precision("highest")` and `allow_tf32 = False`, or in float64.
Pitfall: 19
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import file_measures_alignment
from walkback.linting.identifier_words import argument, name_of
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

TF32_SWITCHES = {"torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"}
_VARIABLES = {"NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"}
TF32_MESSAGE = "TF32 is on where gradients are measured: the reference keeps 10 bits of mantissa"


def find(source: Source) -> Iterator[Hit]:
    if not file_measures_alignment(source):
        return
    for assign in source.nodes(ast.Assign):
        value = source.constant(assign.value)
        for target in assign.targets:
            name = source.qualified_name(target)
            # In a loop over the backends the owner is a name of the file.
            is_switch = name in TF32_SWITCHES or (name_of(target) == "allow_tf32" and not name)
            is_variable = isinstance(target, ast.Subscript) and source.constant(target.slice) in _VARIABLES
            if (
                (is_switch and value is True)
                or (name.endswith(".fp32_precision") and value == "tf32")
                or (is_variable and value == "1")
            ):
                yield assign, TF32_MESSAGE
    for call in source.nodes(ast.Call):
        if _switches_on(source, call):
            yield call, TF32_MESSAGE


def _switches_on(source: Source, call: ast.Call) -> bool:
    called = source.called_name(call)
    values = [source.constant(part) for part in call.args]
    if called == "torch.set_float32_matmul_precision":
        return source.constant(argument(call, 0, "precision")) in ("high", "medium")
    if called == "setattr":
        return values[1:] == ["allow_tf32", True]
    if called == "torch.backends.cudnn.flags":
        return source.constant(argument(call, None, "allow_tf32")) is True
    if called in ("jax.config.update", "jax.default_matmul_precision"):
        is_option = called != "jax.config.update" or values[:1] == ["jax_default_matmul_precision"]
        return is_option and values[-1:] in (["tensorfloat32"], ["bfloat16"], ["fastest"])
    return False


RULE = Rule.of("WB012", __doc__, find)
