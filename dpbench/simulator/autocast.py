"""The casts of autocast on simulated devices, by the rules for CUDA: aten/src/ATen/autocast_mode.h.

They are operators as any other, so races, bytes and counts have them. Casts of weights are not kept for a second use
in the context: replicas' weights are no leaves, so CUDA keeps none of them either.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

_LOWER = """
_convolution addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution einsum gru_cell.default linalg_multi_dot linalg_vecdot linear
lstm_cell matmul mm mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention
"""
_FLOAT32 = """
acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity dist erfinv exp expm1
group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log log10 log1p log2 logsumexp margin_ranking_loss
mse_loss multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nll_loss2d pdist poisson_nll_loss
pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss
softplus tan triplet_margin_loss
"""
_FLOAT32_OUTPUT = "cumprod cumsum log_softmax.int prod prod.dim_int softmax.int sum sum.dim_IntList"
"""They read the lower precision, and write float32 by their argument `dtype`."""


def register(aten: torch.library.Library) -> None:
    kernels: dict[str, Callable[..., Any]] = {
        _LOWER: partial(_cast_to, None),
        _FLOAT32: partial(_cast_to, torch.float32),
        _FLOAT32_OUTPUT: _to_float32,
    }
    for names, kernel in kernels.items():
        for name in names.split():
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(name.removesuffix(".default"), partial(kernel, operator), "AutocastPrivateUse1")


def _cast_to(dtype: torch.dtype | None, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the operator on arguments in `dtype`; None is autocast's."""
    with torch._C._DisableAutocast():
        cast = partial(_cast, dtype or torch.get_autocast_dtype("sim"))
        args, kwargs = tree_map(cast, (args, kwargs))
        return operator(*args, **kwargs)


def _to_float32(operator: Any, *args: Any, **kwargs: Any) -> Any:
    names = [argument.name for argument in operator._schema.arguments]
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    if bound.get("dtype") is None and bound["self"].dtype in (torch.float16, torch.bfloat16):
        bound["dtype"] = torch.float32
    with torch._C._DisableAutocast():
        return operator(**bound)


def _cast(dtype: torch.dtype, value: Any) -> Any:
    is_eligible = isinstance(value, Tensor) and value.device.type == "sim" and value.is_floating_point()
    return value.to(dtype) if is_eligible and value.dtype not in (dtype, torch.float64) else value
