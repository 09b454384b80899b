"""The Triton kernel of `tensorcore_matmul`. Imported only to run on a GPU: many builds of torch have no Triton.

Each program computes one tile of one result, `block_m` rows by `block_n` columns, and sums its terms `block_k` at a
time. The operands may have any strides: a transposed view is read without a copy.
"""

import triton
import triton.language as tl


def _tile(  # type: ignore[no-untyped-def]
    left,
    right,
    result,
    rows,
    terms,
    columns,
    left_batch,
    left_row,
    left_term,
    right_batch,
    right_term,
    right_column,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    precision: tl.constexpr,
    is_even: tl.constexpr,
):
    across = tl.cdiv(columns, block_n)
    tiles = tl.cdiv(rows, block_m) * across
    number = tl.program_id(0)
    tile = number % tiles
    # A fleet's tensors can have more elements than 32-bit offsets can address.
    batch = (number // tiles).to(tl.int64)
    row = ((tile // across) * block_m + tl.arange(0, block_m)).to(tl.int64)
    column = ((tile % across) * block_n + tl.arange(0, block_n)).to(tl.int64)
    term = tl.arange(0, block_k).to(tl.int64)
    left_block = left + batch * left_batch + row[:, None] * left_row + term[None, :] * left_term
    right_block = right + batch * right_batch + term[:, None] * right_term + column[None, :] * right_column
    step_left = tl.cast(left_term, tl.int64) * block_k
    step_right = tl.cast(right_term, tl.int64) * block_k
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for start in range(0, terms, block_k):
        if is_even:
            a = tl.load(left_block)
            b = tl.load(right_block)
        else:
            a = tl.load(left_block, mask=(row[:, None] < rows) & (term[None, :] + start < terms), other=0.0)
            b = tl.load(right_block, mask=(term[:, None] + start < terms) & (column[None, :] < columns), other=0.0)
        total = tl.dot(a, b, total, input_precision=precision)
        left_block += step_left
        right_block += step_right
    target = result + batch * rows * columns + row[:, None] * columns + column[None, :]
    if is_even:
        tl.store(target, total)
    else:
        tl.store(target, total, mask=(row[:, None] < rows) & (column[None, :] < columns))


matmul_tile = triton.jit(_tile)
