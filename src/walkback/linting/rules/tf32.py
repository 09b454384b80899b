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
from walkback.linting.identifier_words import argument
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

TF32_SWITCHES = {"torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"}
TF32_MESSAGE = "TF32 is on where gradients are measured: the reference keeps 10 bits of mantissa"


def find(source: Source) -> Iterator[Hit]:
    if not file_measures_alignment(source):
        return
    for assign in source.nodes(ast.Assign):
        value = getattr(assign.value, "value", None)
        for target in assign.targets:
            name = source.qualified_name(target)
            if (name in TF32_SWITCHES and value is True) or (name.endswith(".fp32_precision") and value == "tf32"):
                yield assign, TF32_MESSAGE
    for call in source.nodes(ast.Call):
        if source.called_name(call) == "torch.set_float32_matmul_precision":
            precision = argument(call, 0, "precision")
            if isinstance(precision, ast.Constant) and precision.value in ("high", "medium"):
                yield call, TF32_MESSAGE


RULE = Rule.of("WB012", __doc__, find)
