"""The Triton kernel of `fine_products`. Imported only where a GPU is to run it: many builds of torch have no Triton.

Each program computes one tile of one result, `tall` by `wide`, and adds up its terms `deep` at a time. The factors may
have any strides: a transposed view is read where it lies.
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
    tall: tl.constexpr,
    wide: tl.constexpr,
    deep: tl.constexpr,
    precision: tl.constexpr,
    is_even: tl.constexpr,
):
    across = tl.cdiv(columns, wide)
    tiles = tl.cdiv(rows, tall) * across
    number = tl.program_id(0)
    tile = number % tiles
    # A fleet's tensors can have more elements than 32 bits count.
    batch = (number // tiles).to(tl.int64)
    row = ((tile // across) * tall + tl.arange(0, tall)).to(tl.int64)
    column = ((tile % across) * wide + tl.arange(0, wide)).to(tl.int64)
    term = tl.arange(0, deep).to(tl.int64)
    from_left = left + batch * left_batch + row[:, None] * left_row + term[None, :] * left_term
    from_right = right + batch * right_batch + term[:, None] * right_term + column[None, :] * right_column
    step_left = tl.cast(left_term, tl.int64) * deep
    step_right = tl.cast(right_term, tl.int64) * deep
    total = tl.zeros((tall, wide), dtype=tl.float32)
    for done in range(0, terms, deep):
        if is_even:
            a = tl.load(from_left)
            b = tl.load(from_right)
        else:
            a = tl.load(from_left, mask=(row[:, None] < rows) & (term[None, :] + done < terms), other=0.0)
            b = tl.load(from_right, mask=(term[:, None] + done < terms) & (column[None, :] < columns), other=0.0)
        total = tl.dot(a, b, total, input_precision=precision)
        from_left += step_left
        from_right += step_right
    to = result + batch * rows * columns + row[:, None] * columns + column[None, :]
    if is_even:
        tl.store(to, total)
    else:
        tl.store(to, total, mask=(row[:, None] < rows) & (column[None, :] < columns))


product_tile = triton.jit(_tile)
