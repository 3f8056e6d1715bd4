"""Short vectors inside numba: what a kernel keeps in registers while it walks over neighbours.

LLVM compiles `for f in range(width): out[f] += x[f]` to loads and stores of `out` for every
neighbour. With a vector *value* the sum of a block of features stays in registers until all
neighbours are in. LLVM cuts a vector of any number of lanes into the machine's own registers, so
the same kernel runs on AVX2, AVX-512 and NEON. Sizes are in units of 64 bytes (16 float32 or
8 float64): a literal, known at compile time.

These functions are for use inside `numba.njit` only. Offsets are int64 element offsets into a
contiguous one-dimensional array and are **not checked**, and negative ones do not wrap around.
Arithmetic on vectors is in `gnndist.kernels.arithmetic`.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

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


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """An LLVM vector with `value` in every lane."""
    vector = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, lanes), None))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _lane_mask(builder: Any, count: Any, lanes: int) -> Any:
    index = ir.IntType(64)
    numbers = ir.Constant(ir.VectorType(index, lanes), [index(lane) for lane in range(lanes)])
    return builder.icmp_signed("<", numbers, splat(builder, count, lanes))


def _masked(builder: Any, operation: str, vector: Any, result: Any, arguments: list[Any]) -> Any:
    """LLVM's masked load or store of this vector type."""
    kind = "f32" if vector.element == ir.FloatType() else "f64"
    name = f"llvm.masked.{operation}.v{vector.count}{kind}.p0v{vector.count}{kind}"
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, arguments)


@primitive
def item(typing: Any, array: Any, offset: Any) -> Any:
    """array[offset], unchecked."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args))

    return array.dtype(array, types.int64), emit


@primitive
def opaque(typing: Any, number: Any) -> Any:
    """The same int64, but LLVM cannot know that.

    A loop that counts by `n = opaque(n + 1)` is left as it is written: unrolled, a walk over a
    vertex's few neighbours costs up to twice the time in branches that cannot be predicted.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        long = ir.IntType(64)
        return builder.asm(ir.FunctionType(long, [long]), "", "=r,0", list(args), False)

    return types.int64(types.int64), emit


@primitive
def zeros(typing: Any, array: Any, units: Any) -> Any:
    """A vector of zeros, `units` × 64 bytes of the array's type."""
    vector = Vector.of(array, units)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(array, units), emit


@primitive
def fill(typing: Any, array: Any, units: Any, value: Any) -> Any:
    """A vector with `value` in every lane, `units` × 64 bytes of the array's type."""
    vector = Vector.of(array, units)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return splat(builder, args[2], vector.lanes)

    return vector(array, units, array.dtype), emit


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
        arguments = [
            builder.bitcast(pointer, value_type.as_pointer()),
            INT32(array.dtype.bitwidth // 8),
            _lane_mask(builder, args[3], vector.lanes),
            ir.Constant(value_type, None),
        ]
        return _masked(builder, "load", value_type, value_type, arguments)

    return vector(array, types.int64, units, types.int64), emit


@primitive
def store_first(typing: Any, array: Any, offset: Any, value: Any, count: Any) -> Any:
    """As `store`, but the first `count` lanes only."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value_type = args[2].type
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        arguments = [
            args[2],
            builder.bitcast(pointer, value_type.as_pointer()),
            INT32(array.dtype.bitwidth // 8),
            _lane_mask(builder, args[3], value_type.count),
        ]
        _masked(builder, "store", value_type, ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(array, types.int64, value, types.int64), emit


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
