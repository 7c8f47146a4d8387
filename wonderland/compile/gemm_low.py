"""Products in which A has few rows, as a batch has beside the weights of a layer.

B is then by far the larger operand, and is used but a few times. So A's panels are packed for all, and a task takes
columns of B, which it packs on its own stack just before it multiplies them: B is read from memory once, and its panels
never travel between cores. An epilogue wants whole rows: it has a launch of its own, after the last block.
"""

from __future__ import annotations

from wonderland.compile import pool
from wonderland.compile.gemm_pack import PACKED_PANELS, pack_columns, pack_rows, pack_wide
from wonderland.compile.gemm_tile import UNROLL, Fields, Tile, at_most, begin, ceil_div
from wonderland.compile.ir import LONG, RARE, VOID, Function

FEW_ROWS, MANY_COLUMNS = 256, 512
PANELS_OF_A = 4  # that one task packs, or hands to the epilogue
# One block along k.
BLOCK = "m n k a* rsa csa b* rsb csb c* ldc accumulate panels* packs packed epilogue& context&"


def low_blocks(t: Tile, parameters: str, kernel: Function) -> Function:
    """A product block by block along k; the scratch is aligned."""
    f, values = begin(t, "low_blocks", parameters, RARE)
    m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, scratch, epilogue, context = values
    depth = at_most(k, t.depth, UNROLL)
    packs, groups = ceil_div(m, PANELS_OF_A * t.rows), ceil_div(n, PACKED_PANELS * t.columns)
    block = Fields(f, t, BLOCK)
    block.put(m=m, n=n, rsa=rsa, csa=csa, rsb=rsb, csb=csb, c=c, ldc=ldc, panels=scratch)
    block.put(packs=packs, epilogue=epilogue, context=context)
    with f.loop(0, k, depth) as p0:
        block.put(k=f.min(depth, k - p0), a=a.at(p0 * csa), b=b.at(p0 * rsb), packed=0)
        block.put(accumulate=p0.differs(0).convert(LONG, signed=False))
        f.call(pool.PARALLEL, f.at(_task(t, kernel)), block.pointer, packs + groups)
    with f.when(epilogue.differs(None)):
        f.call(pool.PARALLEL, f.at(_epilogue(t)), block.pointer, packs)
    return f


def _task(t: Tile, kernel: Function) -> Function:
    """First chunks that pack A, then chunks of columns, which wait until A is packed: chunks begin in order."""
    f, (context, chunk) = begin(t, "low_task", "context& chunk", RARE)
    block = Fields(f, t, BLOCK, context)
    (packs,) = block.get("packs")
    with f.when(chunk < packs):
        m, k, a, rsa, csa, panels = block.get("m k a rsa csa panels")
        start = chunk * (PANELS_OF_A * t.rows)
        with f.loop(start, f.min(m, start + PANELS_OF_A * t.rows), t.rows) as i:
            f.call(pack_rows(t), k, a.at(i * rsa), rsa, csa, f.min(m - i, t.rows), panels.at(i * k))
        f.atomic("add", block.place("packed"), f.constant(1), "release")
        f.ret()
    pool.wait(f, lambda: f.load(LONG, block.place("packed"), order="acquire") >= packs)
    f.call(_columns(t, kernel), context, (chunk - packs) * (PACKED_PANELS * t.columns))
    return f


def _columns(t: Tile, kernel: Function) -> Function:
    """The tiles of C in the columns of a group of panels."""
    f, (context, left) = begin(t, "low_columns", "context& left", RARE)
    block = Fields(f, t, BLOCK, context)
    m, n, k, b, rsb, csb, c, ldc, accumulate, panels = block.get("m n k b rsb csb c ldc accumulate panels")
    own, right = t.stack(f, PACKED_PANELS * t.columns * t.most_steps), f.min(n, left + PACKED_PANELS * t.columns)
    together = csb.equals(1) & (right - left).equals(PACKED_PANELS * t.columns)
    with f.when(together):
        f.call(pack_wide(t), k, b.at(left), rsb, own)
    with f.loop(left, right, t.columns) as j:
        panel, columns = own.at((j - left) * k), f.min(n - j, t.columns)
        with f.unless(together):
            f.call(pack_columns(t), k, b.at(j * csb), rsb, csb, columns, panel)
        with f.loop(0, m, t.rows) as i:
            place, rows = c.at(i * ldc).at(j), f.min(m - i, t.rows)
            f.call(kernel, k, panels.at(i * k), panel, f.integer(t.columns), place, ldc, rows, columns, accumulate)
    return f


def _epilogue(t: Tile) -> Function:
    """What follows the product, on some of its rows."""
    f, (context, chunk) = begin(t, "low_epilogue", "context& chunk", RARE)
    m, epilogue, context = Fields(f, t, BLOCK, context).get("m epilogue context")
    rows = PANELS_OF_A * t.rows
    f.call_at(epilogue, VOID, context, chunk * rows, f.min(m, (chunk + 1) * rows))
    return f
