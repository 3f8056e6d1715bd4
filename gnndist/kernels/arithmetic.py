"""Arithmetic on the vectors of `gnndist.kernels.vector`, for use inside numba."""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from gnndist.kernels.hashing import ROUND1, ROUND2, STEP32
from gnndist.kernels.vector import INT32, primitive, splat

CONTRACT = ("contract",)
"""Lets LLVM round a product and sum once, where the machine can."""


def unary(emit: Callable[..., Any]) -> Any:
    """A function of one vector, from what emits its LLVM code."""

    def define(typing: Any, value: Any) -> Any:
        return value(value), lambda context, builder, signature, args: emit(builder, *args)

    define.__name__ = emit.__name__
    return primitive(define)


def binary(emit: Callable[..., Any]) -> Any:
    """A function of two vectors of one type."""

    def define(typing: Any, left: Any, right: Any) -> Any:
        return left(left, right), lambda context, builder, signature, args: emit(builder, *args)

    define.__name__ = emit.__name__
    return primitive(define)


def ternary(emit: Callable[..., Any]) -> Any:
    """A function of three vectors of one type."""

    def define(typing: Any, first: Any, second: Any, third: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, *args)

        return first(first, second, third), code

    define.__name__ = emit.__name__
    return primitive(define)


def scaling(emit: Callable[..., Any]) -> Any:
    """A function of a scalar, given to `emit` in every lane, and a vector."""

    def define(typing: Any, factor: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, splat(builder, args[0], value.lanes), args[1])

        return value(value.scalar, value), code

    define.__name__ = emit.__name__
    return primitive(define)


def _zero(value: Any) -> Any:
    return ir.Constant(value.type, None)


def _every(value: Any, number: float) -> Any:
    return ir.Constant(value.type, [value.type.element(number)] * value.type.count)


def _fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    return builder.fadd(builder.fmul(left, right, flags=CONTRACT), total, flags=CONTRACT)


@binary
def add(builder: Any, left: Any, right: Any) -> Any:
    """left + right."""
    return builder.fadd(left, right)


@binary
def multiply(builder: Any, left: Any, right: Any) -> Any:
    """left * right."""
    return builder.fmul(left, right)


@ternary
def fused(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """left * right + total; one rounding where the machine has it."""
    return _fused(builder, left, right, total)


@primitive
def multiply_add(typing: Any, weight: Any, value: Any, total: Any) -> Any:
    """weight * value + total, with a scalar weight; one rounding where the machine has it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _fused(builder, splat(builder, args[0], total.lanes), args[1], args[2])

    return total(total.scalar, value, total), emit


@scaling
def scale_by(builder: Any, factor: Any, value: Any) -> Any:
    """factor * value."""
    return builder.fmul(factor, value)


@unary
def clip(builder: Any, value: Any) -> Any:
    """value where it is not negative, else 0: ReLU. NaN stays NaN."""
    return builder.select(builder.fcmp_ordered("<", value, _zero(value)), _zero(value), value)


@scaling
def leaky(builder: Any, slope: Any, value: Any) -> Any:
    """value where it is positive, else slope * value."""
    positive = builder.fcmp_ordered(">", value, _zero(value))
    return builder.select(positive, value, builder.fmul(slope, value))


@scaling
def leaky_slope(builder: Any, slope: Any, value: Any) -> Any:
    """The derivative of `leaky`: 1 where value is positive, else slope."""
    positive = builder.fcmp_ordered(">", value, _zero(value))
    return builder.select(positive, _every(value, 1.0), slope)


@binary
def where_positive(builder: Any, condition: Any, value: Any) -> Any:
    """value where condition > 0, else 0."""
    return builder.select(builder.fcmp_ordered(">", condition, _zero(value)), value, _zero(value))


@ternary
def where_positive_or(builder: Any, condition: Any, value: Any, other: Any) -> Any:
    """value where condition > 0, else other."""
    return builder.select(builder.fcmp_ordered(">", condition, _zero(value)), value, other)


@ternary
def where_equal(builder: Any, left: Any, right: Any, value: Any) -> Any:
    """value where left == right, else 0."""
    return builder.select(builder.fcmp_ordered("==", left, right), value, _zero(value))


def _above(builder: Any, value: Any, best: Any) -> Any:
    larger = builder.fcmp_ordered(">", value, best)
    return builder.or_(larger, builder.fcmp_unordered("uno", value, value))


@binary
def greater(builder: Any, value: Any, best: Any) -> Any:
    """The larger of two; NaN where either is NaN, once met as `value`."""
    return builder.select(_above(builder, value, best), value, best)


@ternary
def tally(builder: Any, value: Any, best: Any, count: Any) -> Any:
    """How often the maximum was met: 1 where value beats best, one more where it equals it."""
    one = _every(value, 1.0)
    again = builder.select(builder.fcmp_ordered("==", value, best), builder.fadd(count, one), count)
    return builder.select(_above(builder, value, best), one, again)


def _reduce(value: Any, combine: Callable[..., Any]) -> Any:
    """Folds a vector's lanes by halves: in one order on every machine."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, lanes = args[0], value.lanes
        while lanes > 1:
            lanes //= 2
            low, high = (
                ir.Constant(ir.VectorType(INT32, lanes), [INT32(at + i) for i in range(lanes)])
                for at in (0, lanes)
            )
            undefined = ir.Constant(total.type, ir.Undefined)
            total = combine(
                builder,
                builder.shuffle_vector(total, undefined, low),
                builder.shuffle_vector(total, undefined, high),
            )
        return builder.extract_element(total, INT32(0))

    return value.scalar(value), emit


@primitive
def sum_lanes(typing: Any, value: Any) -> Any:
    """The sum of a vector's lanes."""
    return _reduce(value, lambda builder, left, right: builder.fadd(left, right))


@primitive
def max_lanes(typing: Any, value: Any) -> Any:
    """The largest of a vector's lanes; NaN where one is."""

    def larger(builder: Any, left: Any, right: Any) -> Any:
        return builder.select(_above(builder, left, right), left, right)

    return _reduce(value, larger)


@scaling
def lower_by(builder: Any, amount: Any, value: Any) -> Any:
    """value - amount."""
    return builder.fsub(value, amount)


@unary
def exponential(builder: Any, value: Any) -> Any:
    """exp(value) for value ≤ 0, within 2 units in the last place; 0 where that is not normal.

    exp(v) = 2ⁿ · exp(r), |r| ≤ ln 2 / 2, with exp(r) by its Taylor series.
    """
    single = value.type.element == ir.FloatType()
    terms, bits, fraction, least = (7, 32, 23, -87.0) if single else (13, 64, 52, -708.0)
    # ln 2 in two parts, the first with so few digits that n times it is exact
    high = 0.693359375 if single else 0.693147180369123816490
    low = -2.12194440e-4 if single else 1.90821492927058770002e-10
    integers = ir.VectorType(ir.IntType(bits), value.type.count)
    small = builder.fcmp_unordered("<", value, _every(value, least))  # or NaN
    safe = builder.select(small, _zero(value), value)
    # n = v / ln 2, rounded: towards zero after taking half off, as v is not positive
    scaled = builder.fmul(safe, _every(value, 1 / math.log(2)))
    n = builder.fptosi(builder.fsub(scaled, _every(value, 0.5)), integers)
    whole = builder.sitofp(n, value.type)
    rest = _fused(builder, whole, _every(value, -high), safe)
    rest = _fused(builder, whole, _every(value, -low), rest)
    series = _every(value, 1 / math.factorial(terms))
    for power in range(terms - 1, -1, -1):
        series = _fused(builder, series, rest, _every(value, 1 / math.factorial(power)))
    bias = ir.Constant(
        integers, [integers.element((1 << (bits - fraction - 2)) - 1)] * integers.count
    )
    shift = ir.Constant(integers, [integers.element(fraction)] * integers.count)
    power_of_two = builder.bitcast(builder.shl(builder.add(n, bias), shift), value.type)
    result = builder.select(small, _zero(value), builder.fmul(series, power_of_two))
    return builder.select(builder.fcmp_unordered("uno", value, value), value, result)


@primitive
def drop(typing: Any, value: Any, words: Any, feature: Any, least: Any) -> Any:
    """value where its feature's hash is at least `least`, else 0; lane i is feature + i.

    The hash is `gnndist.kernels.hashing.hash_word`.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = value.lanes

        def every(number: Any) -> Any:
            return splat(builder, builder.trunc(number, INT32), lanes)

        def constant(number: int) -> Any:
            return ir.Constant(ir.VectorType(INT32, lanes), [INT32(number)] * lanes)

        numbers = ir.Constant(ir.VectorType(INT32, lanes), [INT32(lane) for lane in range(lanes)])
        features = builder.add(every(args[2]), numbers)
        first, second = every(args[1]), every(builder.lshr(args[1], args[1].type(32)))
        h = builder.add(first, builder.mul(features, constant(STEP32)))
        h = builder.mul(builder.xor(h, builder.lshr(h, constant(16))), constant(ROUND1))
        h = builder.xor(builder.xor(h, builder.lshr(h, constant(15))), second)
        h = builder.mul(h, constant(ROUND2))
        h = builder.xor(h, builder.lshr(h, constant(16)))
        kept = builder.icmp_unsigned(">=", h, every(args[3]))
        return builder.select(kept, args[0], _zero(args[0]))

    return value(value, types.uint64, types.int64, types.int64), emit
