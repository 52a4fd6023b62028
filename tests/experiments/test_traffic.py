"""The counter of moved bytes, on programs whose traffic is known."""

import pytest

from spec_jax.experiments.hlo import parse_buffers, parse_module
from spec_jax.experiments.traffic import count_traffic

HBM = "{1,0:T(8,128)(2,1)}"
CHIP = "{1,0:T(8,128)(2,1)S(3)}"
MATRIX = 256 * 256 * 2


def program(*lines, before=""):
    """A module whose entry has these instructions."""
    body = "\n".join(f"  {line}" for line in lines)
    return parse_module(f"{before}\nENTRY %main (x: f32[]) -> f32[] {{\n{body}\n}}\n")


def argument(number, name, shape=f"bf16[256,256]{HBM}"):
    return f'%p{number} = {shape} parameter({number}), metadata={{op_name="{name}"}}'


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("bf16[64,64]{1,0:T(8,128)(2,1)}", 64 * 128 * 2),  # padded to 128 lanes
        ("bf16[1,64,129,64]{2,3,1,0:T(8,128)(2,1)}", 64 * 64 * 256 * 2),
        ("bf16[1,64,129,64]{3,1,2,0:T(8,128)(2,1)}", 129 * 64 * 128 * 2),
        ("f32[5]{0:T(1024)}", 4096),
        ("f32[3,5]{1,0}", 60),
        ("s32[]", 4),
        ("pred[8]{0}", 8),
        ("s4[6]{0}", 3),
    ],
)
def test_a_buffer_takes_whole_tiles(shape, size):
    (buffer,) = parse_buffers(shape)
    assert buffer.bytes == size


def test_a_buffer_says_where_it_lies():
    first, second = parse_buffers(f"(bf16[8,128]{CHIP}, /*index=1*/f32[2]{{0}})")
    assert (first.space, second.space) == (3, 0)
    assert (first.dtype, second.dims) == ("bf16", (2,))


def test_a_product_reads_its_operands_once_and_writes_its_result():
    traffic = count_traffic(
        program(
            argument(0, "x", f"bf16[8,256]{HBM}"),
            argument(1, "w"),
            f"ROOT %dot = bf16[8,256]{HBM} dot(%p0, %p1), lhs_contracting_dims={{1}}",
        )
    )
    assert traffic.read == 8 * 256 * 2 + MATRIX
    assert traffic.written == 8 * 256 * 2
    assert traffic.operations == 2 * 8 * 256 * 256
    assert traffic.by_source() == {"x": 4096, "w": MATRIX, "": 4096}
    assert not traffic.copies


def test_what_is_fetched_ahead_counts_once():
    traffic = count_traffic(
        program(
            argument(0, "w"),
            f"%start = (bf16[256,256]{CHIP}, bf16[256,256]{HBM}, u32[]{{:S(2)}}) "
            "copy-start(%p0)",
            f"%done = bf16[256,256]{CHIP} copy-done(%start)",
            f"ROOT %tanh = bf16[256,256]{CHIP} tanh(%done)",
        )
    )
    assert (traffic.read, traffic.written) == (MATRIX, 0)
    assert traffic.by_source() == {"w": MATRIX}
    assert not traffic.copies


def test_slices_fetched_ahead_count_their_own_size():
    traffic = count_traffic(
        program(
            argument(0, "w"),
            f"%start = ((bf16[256,256]{HBM}), bf16[64,256]{CHIP}, s32[]{{:S(2)}}) "
            "slice-start(%p0), slice={[0:64], [0:256]}",
            f"ROOT %done = bf16[64,256]{CHIP} slice-done(%start)",
        )
    )
    assert (traffic.read, traffic.written) == (MATRIX // 4, 0)


@pytest.mark.parametrize("space", [HBM, CHIP])
def test_a_copy_of_an_argument_is_noticed(space):
    traffic = count_traffic(
        program(
            argument(0, "cache", f"bf16[256,256]{space}"),
            "ROOT %copy = bf16[256,256]{0,1:T(8,128)(2,1)} copy(%p0)",
        )
    )
    (copy,) = traffic.copies
    assert (copy.source, copy.bytes) == ("cache", MATRIX)
    assert copy.put_back == (space == CHIP)
    assert traffic.bytes == (MATRIX if space == CHIP else 2 * MATRIX)


def test_an_update_in_place_counts_the_slice():
    """Eight whole rows fill a tile: nothing is read that is not written."""
    traffic = count_traffic(update("bf16[8,256]"))
    assert (traffic.read, traffic.written) == (8 * 256 * 2, 8 * 256 * 2)
    assert {one.source for one in traffic.accesses if one.written} == {"cache"}
    assert not traffic.copies


def test_an_update_within_a_tile_reads_the_tile():
    traffic = count_traffic(update("bf16[1,256]"))
    tile = 8 * 256 * 2
    assert traffic.by_source()["cache"] == 2 * tile


def test_an_update_within_a_fusion_is_one_too():
    fused = f"""
%fused (a: bf16[256,256], b: bf16[8,256], c: s32[]) -> bf16[256,256] {{
  %a = bf16[256,256]{HBM} parameter(0)
  %b = bf16[8,256]{HBM} parameter(1)
  %c = s32[] parameter(2)
  ROOT %update = bf16[256,256]{HBM} dynamic-update-slice(%a, %b, %c, %c)
}}
"""
    traffic = count_traffic(
        program(
            argument(0, "cache"),
            argument(1, "new", f"bf16[8,256]{HBM}"),
            argument(2, "at", "s32[]{:S(6)}"),
            f"ROOT %f = bf16[256,256]{HBM} fusion(%p0, %p1, %p2), kind=kLoop, "
            "calls=%fused",
            before=fused,
        )
    )
    assert (traffic.read, traffic.written) == (8 * 256 * 2, 8 * 256 * 2)
    assert traffic.by_source()["cache"] == 8 * 256 * 2


def test_a_select_over_a_cache_writes_all_of_it():
    """What a one-hot update compiles to; the same holds for a cast of a weight."""
    fused = f"""
%fused (a: bf16[256,256], b: pred[256,256]) -> bf16[256,256] {{
  %a = bf16[256,256]{HBM} parameter(0)
  %b = pred[256,256]{{1,0}} parameter(1)
  ROOT %select = bf16[256,256]{HBM} select(%b, %a, %a)
}}
"""
    traffic = count_traffic(
        program(
            argument(0, "cache"),
            argument(1, "mask", "pred[256,256]{1,0:S(3)}"),
            f"ROOT %f = bf16[256,256]{HBM} fusion(%p0, %p1), kind=kLoop, calls=%fused",
            before=fused,
        )
    )
    assert (traffic.read, traffic.written) == (MATRIX, MATRIX)
    (copy,) = traffic.copies
    assert (copy.source, copy.put_back) == ("cache", False)


def test_a_fusion_reads_the_rows_that_it_looks_up():
    fused = f"""
%fused (a: bf16[256,256], b: s32[]) -> f32[256] {{
  %a = bf16[256,256]{HBM} parameter(0)
  %b = s32[] parameter(1)
  %row = bf16[1,256]{HBM} dynamic-slice(%a, %b, %b), dynamic_slice_sizes={{1,256}}
  ROOT %flat = bf16[256]{{0:S(3)}} bitcast(%row)
}}
"""
    traffic = count_traffic(
        program(
            argument(0, "table"),
            argument(1, "at", "s32[]{:S(6)}"),
            "ROOT %f = bf16[256]{0:S(3)} fusion(%p0, %p1), kind=kLoop, calls=%fused",
            before=fused,
        )
    )
    assert (traffic.read, traffic.written) == (8 * 256 * 2, 0)


def looped(attributes="", before_loop="", after="", carried="%p1"):
    body = f"""
%body (arg: (s32[], bf16[256,256])) -> (s32[], bf16[256,256]) {{
  %arg = (s32[]{{:S(6)}}, bf16[256,256]{HBM}) parameter(0)
  %i = s32[]{{:S(6)}} get-tuple-element(%arg), index=0
  %w = bf16[256,256]{HBM} get-tuple-element(%arg), index=1
  %read = bf16[256,256]{CHIP} tanh(%w)
  {after}
  ROOT %next = (s32[]{{:S(6)}}, bf16[256,256]{HBM}) tuple(%i, %w)
}}
%condition (arg: (s32[], bf16[256,256])) -> pred[] {{
  %arg = (s32[]{{:S(6)}}, bf16[256,256]{HBM}) parameter(0)
  ROOT %more = pred[]{{:S(6)}} constant(true)
}}
"""
    return program(
        argument(0, "i", "s32[]{:S(6)}"),
        argument(1, "w"),
        f"%before = bf16[256,256]{CHIP} tanh(%p1)",
        before_loop,
        f"%t = (s32[]{{:S(6)}}, bf16[256,256]{HBM}) tuple(%p0, {carried})",
        f"ROOT %while = (s32[]{{:S(6)}}, bf16[256,256]{HBM}) while(%t), "
        f"condition=%condition, body=%body{attributes}",
        before=body,
    )


def test_a_loop_counts_as_often_as_it_runs():
    known = ', backend_config={"known_trip_count":{"n":"5"}}'
    assert count_traffic(looped(known)).bytes == 6 * MATRIX
    assert count_traffic(looped(), loops=(7,)).by_source() == {"w": 8 * MATRIX}
    assert count_traffic(looped(), loops=(1,), inside=True).bytes == MATRIX


def test_copies_before_a_loop_are_noticed_where_only_its_body_is_counted():
    turned = "{0,1:T(8,128)(2,1)}"
    assert not count_traffic(looped(), inside=True).copies
    module = looped(before_loop=f"%turned = bf16[256,256]{turned} copy(%p1)")
    traffic = count_traffic(module, inside=True)
    assert [(one.source, one.times) for one in traffic.copies] == [("w", 1)]
    assert traffic.bytes == MATRIX


def test_what_a_loop_carries_has_a_name_and_its_copies_are_noticed():
    """A cache is made before the loop, so it is no argument of the program."""
    made = f"%made = bf16[256,256]{HBM} broadcast(%p0)"
    in_place = looped(before_loop=made, carried="%made")
    traffic = count_traffic(in_place, loops=(7,), inside=True)
    assert traffic.by_source() == {"carried[1] bf16[256,256]": 7 * MATRIX}
    assert not traffic.copies
    copied = looped(
        before_loop=made, carried="%made", after=f"%w2 = bf16[256,256]{HBM} copy(%w)"
    )
    traffic = count_traffic(copied, loops=(7,), inside=True)
    (copy,) = traffic.copies
    assert (copy.source, copy.times) == ("carried[1] bf16[256,256]", 7)


def test_a_product_as_large_as_its_weight_is_no_copy():
    square = f"bf16[256,256]{HBM}"
    product = "dot(%p0, %p1), lhs_contracting_dims={1}"
    arguments = argument(0, "x"), argument(1, "w")
    assert not count_traffic(
        program(*arguments, f"ROOT %d = {square} {product}")
    ).copies
    fused = f"""
%fused (p0: bf16[256,256], p1: bf16[256,256]) -> (bf16[256,256], bf16[256,256]) {{
  %p0 = {square} parameter(0)
  %p1 = {square} parameter(1)
  %d = {square} {product}
  %half = {square} negate(%d)
  %cast = {square} negate(%p1)
  ROOT %both = ({square}, {square}) tuple(%half, %cast)
}}
"""
    both = f"ROOT %f = ({square}, {square}) fusion(%p0, %p1), kind=kLoop, calls=%fused"
    (copy,) = count_traffic(program(*arguments, both, before=fused)).copies
    assert copy.instruction == "f"
    alone = fused.replace("tuple(%half, %cast)", "tuple(%half, %d)")
    assert not count_traffic(program(*arguments, both, before=alone)).copies


def test_cycles_are_those_that_the_compiler_wrote():
    config = ', backend_config={"window_config":{"estimated_cycles":"611"}}'
    one = f"bf16[8,256]{CHIP} tanh(%p0){config}"
    once = program(argument(0, "x", f"bf16[8,256]{CHIP}"), f"ROOT %y = {one}")
    assert count_traffic(once).cycles == 611
    module = looped(
        ', backend_config={"known_trip_count":{"n":"5"}}',
        after=f"%y = {one}".replace("%p0", "%read"),
    )
    assert count_traffic(module).cycles == 5 * 611


def test_transfers_between_chips_are_listed():
    traffic = count_traffic(
        program(
            argument(0, "x", f"bf16[8,256]{HBM}"),
            f"ROOT %sum = bf16[8,256]{HBM} all-reduce(%p0), to_apply=%add",
        )
    )
    (one,) = traffic.collectives
    assert (one.kind, one.shape, one.bytes) == ("all-reduce", "bf16[8,256]", 4096)


def test_text_without_a_program_is_refused():
    with pytest.raises(ValueError, match="without an ENTRY"):
        parse_module("HloModule empty")


def update(part):
    return program(
        argument(0, "cache"),
        argument(1, "new", f"{part}{HBM}"),
        argument(2, "at", "s32[]{:S(6)}"),
        f"ROOT %update = bf16[256,256]{HBM} dynamic-update-slice(%p0, %p1, %p2, %p2)",
    )


def test_a_batched_product_is_counted_without_its_padding():
    """XLA writes 16 products of [8, 64] and [64, 32] as one with a window of 16."""
    shapes = "bf16[16,8,64]{2,1,0:S(3)}", "bf16[16,32,64]{2,1,0:S(3)}"
    traffic = count_traffic(
        program(
            argument(0, "x", shapes[0]),
            argument(1, "y", shapes[1]),
            "ROOT %c = bf16[16,8,32]{2,1,0:S(3)} convolution(%p0, %p1), "
            "window={size=16 stride=15 pad=0_0 lhs_dilate=16}, "
            "dim_labels=0bf_0oi->0bf",
        )
    )
    assert traffic.operations == 2 * 16 * 8 * 32 * 64
