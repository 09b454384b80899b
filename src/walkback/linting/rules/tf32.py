"""TF32 is switched on in a file that measures gradients: the reference keeps 10 bits.

Why: TF32 rounds the inputs of every matrix product to 10 bits of mantissa. The reference gradient then differs from
the float32 one by about 1e-3 per product, and more where sums cancel, so cosines near 1 and tiny gradients are off.
Instead: measure with `torch.set_float32_matmul_precision("highest")` and `allow_tf32 = False`, or in float64.
Pitfall: 19
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import measures
from walkback.linting.names import argument
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

SWITCHES = {"torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"}
MESSAGE = "TF32 is on where gradients are measured: the reference keeps 10 bits"


def find(source: Source) -> Iterator[Hit]:
    if not measures(source):
        return
    for assign in source.all(ast.Assign):
        value = getattr(assign.value, "value", None)
        for target in assign.targets:
            name = source.dotted(target)
            if (name in SWITCHES and value is True) or (name.endswith(".fp32_precision") and value == "tf32"):
                yield assign, MESSAGE
    for call in source.all(ast.Call):
        if source.calls(call) == "torch.set_float32_matmul_precision":
            precision = argument(call, 0, "precision")
            if isinstance(precision, ast.Constant) and precision.value in ("high", "medium"):
                yield call, MESSAGE


RULE = Rule.of("WB012", __doc__, find)
