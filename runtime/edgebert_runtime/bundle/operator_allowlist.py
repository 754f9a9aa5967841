"""The operators that a bundle may contain: those of Transformers, which reach nothing outside their tensors.

The list of com.microsoft has the operators that edgebert writes. The standard list is wider, as the next release of
PyTorch's exporter may choose others of it.

Absent on purpose: control flow and all other operators with subgraphs, operators of unbounded output that no
Transformer needs, and every other domain.
"""

from __future__ import annotations

STANDARD = (
    # elementwise
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Cos Div Elu Equal Erf "
    "Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log "
    "Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt "
    "Sub Sum Swish Tan Tanh Where Xor "
    # shape and movement
    "Concat Constant ConstantOfShape DepthToSpace Expand Flatten Gather GatherElements GatherND NonZero OneHot Pad "
    "Range Reshape ReverseSequence ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze TensorScatter "
    "Tile Transpose Trilu Unsqueeze "
    # reductions and selection
    "ArgMax ArgMin CumSum LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
    "ReduceProd ReduceSum ReduceSumSquare Softmax TopK "
    # layers
    "Attention Einsum Gemm LSTM LayerNormalization MatMul RMSNormalization RotaryEmbedding "
    # quantization
    "DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul QuantizeLinear"
).split()

MICROSOFT = (
    "Attention DecoderMaskedMultiHeadAttention DynamicQuantizeLSTM GatherBlockQuantized "
    "GroupQueryAttention MatMulNBits MultiHeadAttention QAttention QGemm"
).split()

ALLOWED_OPERATORS: frozenset[tuple[str, str]] = frozenset(
    [("", name) for name in STANDARD] + [("com.microsoft", name) for name in MICROSOFT]
)
