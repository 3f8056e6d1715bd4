"""Short vectors inside numba: what a kernel keeps in registers while it walks over neighbours.

LLVM compiles `for f in range(width): out[f] += x[f]` to loads and stores of `out` for every
neighbour. With a vector *value* the sum of a block of features stays in registers until all
neighbours are in. LLVM cuts a vector of any number of lanes into the machine's own registers, so
the same kernel runs on AVX2, AVX-512 and NEON. Sizes are in units of 64 bytes (16 float32 or
8 float64): a literal, known at compile time.

These functions are for use inside `numba.njit` only. Offsets are int64 element offsets into a
contiguous one-dimensional array and are **not checked**, and negative ones do not wrap around.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from gnndist.kernels.hashing import ROUND1, ROUND2, STEP32

LLVM_TYPES = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
INT32 = ir.IntType(32)
READ, KEEP_EVERYWHERE, DATA = INT32(0), INT32(3), INT32(1)


def primitive(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic` for functions of which some arguments are literals."""
    return intrinsic(prefer_literal=True)(function)


class Vector(types.Type):
    """`lanes` numbers of one float type."""

    def __init__(self, scalar: Any, lanes: int) -> None:
        self.scalar = scalar
        self.lanes = lanes
        super().__init__(name=f"Vector({scalar}, {lanes})")

    @classmethod
    def of(cls, array: Any, units: Any) -> "Vector":
        """`units` × 64 bytes of the array's type."""
        return cls(array.dtype, units.literal_value * 512 // array.dtype.bitwidth)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """A vector is an LLVM vector."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, ir.VectorType(LLVM_TYPES[vector.scalar], vector.lanes))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    vector = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, lanes), None))


def _lane_mask(builder: Any, count: Any, lanes: int) -> Any:
    index = ir.IntType(64)
    numbers = ir.Constant(ir.VectorType(index, lanes), [index(lane) for lane in range(lanes)])
    return builder.icmp_signed("<", numbers, _splat(builder, count, lanes))


def _name(operation: str, vector: Any) -> str:
    kind = "f32" if vector.element == ir.FloatType() else "f64"
    return f"llvm.masked.{operation}.v{vector.count}{kind}.p0v{vector.count}{kind}"


@primitive
def item(typing: Any, array: Any, offset: Any) -> Any:
    """array[offset], unchecked."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args))

    return array.dtype(array, types.int64), emit


@primitive
def zeros(typing: Any, array: Any, units: Any) -> Any:
    """A vector of zeros, `units` × 64 bytes of the array's type."""
    vector = Vector.of(array, units)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(array, units), emit


@primitive
def load(typing: Any, array: Any, offset: Any, units: Any) -> Any:
    """The `units` × 64 bytes from array[offset] on, as a vector."""
    vector = Vector.of(array, units)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        value_type = context.get_value_type(vector)
        return builder.load(
            builder.bitcast(pointer, value_type.as_pointer()), align=array.dtype.bitwidth // 8
        )

    return vector(array, types.int64, units), emit


@primitive
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """array[offset : offset + lanes of value] = value."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(
            args[2],
            builder.bitcast(pointer, args[2].type.as_pointer()),
            align=array.dtype.bitwidth // 8,
        )
        return context.get_dummy_value()

    return types.void(array, types.int64, value), emit


@primitive
def load_first(typing: Any, array: Any, offset: Any, units: Any, count: Any) -> Any:
    """As `load`, but the first `count` lanes only; the others are 0 and their memory unread."""
    vector = Vector.of(array, units)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value_type = context.get_value_type(vector)
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        mask = _lane_mask(builder, args[3], vector.lanes)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(value_type, [value_type.as_pointer(), INT32, mask.type, value_type]),
            _name("load", value_type),
        )
        alignment = INT32(array.dtype.bitwidth // 8)
        typed = builder.bitcast(pointer, value_type.as_pointer())
        return builder.call(function, [typed, alignment, mask, ir.Constant(value_type, None)])

    return vector(array, types.int64, units, types.int64), emit


@primitive
def store_first(typing: Any, array: Any, offset: Any, value: Any, count: Any) -> Any:
    """As `store`, but the first `count` lanes only."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value_type = args[2].type
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        mask = _lane_mask(builder, args[3], value_type.count)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [value_type, value_type.as_pointer(), INT32, mask.type]),
            _name("store", value_type),
        )
        alignment = INT32(array.dtype.bitwidth // 8)
        typed = builder.bitcast(pointer, value_type.as_pointer())
        builder.call(function, [args[2], typed, alignment, mask])
        return context.get_dummy_value()

    return types.void(array, types.int64, value, types.int64), emit


@primitive
def add(typing: Any, left: Any, right: Any) -> Any:
    """left + right."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return left(left, right), emit


@primitive
def multiply_add(typing: Any, weight: Any, value: Any, total: Any) -> Any:
    """weight * value + total, with a scalar weight; one rounding where the machine has it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights = _splat(builder, args[0], total.lanes)
        product = builder.fmul(weights, args[1], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return total(total.scalar, value, total), emit


@primitive
def prefetch(typing: Any, array: Any, offset: Any) -> Any:
    """Ask for the cache line of array[offset]; any offset is safe, also past the end."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32]),
            "llvm.prefetch.p0i8",
        )
        pointer = _pointer(context, builder, signature.args[0], *args)
        builder.call(function, [builder.bitcast(pointer, byte), READ, KEEP_EVERYWHERE, DATA])
        return context.get_dummy_value()

    return types.void(array, types.int64), emit


@primitive
def scale_by(typing: Any, factor: Any, value: Any) -> Any:
    """factor * value, with a scalar factor."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fmul(_splat(builder, args[0], value.lanes), args[1])

    return value(value.scalar, value), emit


@primitive
def clip(typing: Any, value: Any) -> Any:
    """value where it is not negative, else 0: ReLU. NaN stays NaN."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        return builder.select(builder.fcmp_ordered("<", args[0], zero), zero, args[0])

    return value(value), emit


@primitive
def where_positive(typing: Any, condition: Any, value: Any) -> Any:
    """value where condition > 0, else 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], zero)

    return value(condition, value), emit


@primitive
def drop(typing: Any, value: Any, words: Any, feature: Any, least: Any) -> Any:
    """value where its feature's hash is at least `least`, else 0; lane i is feature + i.

    The hash is `gnndist.kernels.hashing.hash_word`.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = value.lanes

        def every(number: Any) -> Any:
            return _splat(builder, builder.trunc(number, INT32), lanes)

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
        return builder.select(kept, args[0], ir.Constant(args[0].type, None))

    return value(value, types.uint64, types.int64, types.int64), emit
