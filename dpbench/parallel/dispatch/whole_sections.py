"""Sections of a forward in which a lane does not pass the baton on, so that other lanes cannot disturb them.

A lane passes the baton on only while the state below is that in which its forward began:

checkpoints                Grad mode (off in inference mode too) or saved-tensor hooks differ. A checkpoint saves the
                           generators' states and draws again in its recomputation, without other lanes' draws.
forward-mode AD            All threads share one level (`torch.func.jvp`).
`parametrize.cached`       All threads share one cache.
settings of the process    Attention's backends and the default dtype, which a replica may set and put back.
torch.compile, modes       The compiler holds a lock that other lanes may need. Dispatch modes see every operator.

So what threads share (`thread_hazards.py`) is used by one lane after the other, as in sequence.
"""

from collections.abc import Hashable

import torch
from torch._guards import CompileContext
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from dpbench.parallel.dispatch.thread_hazards import setting_values


def section() -> Hashable:
    """The section that the calling thread is in, to compare with that in which its forward began."""
    return (
        torch.is_grad_enabled(),
        torch._C._autograd._top_saved_tensors_default_hooks(False) is None,
        torch._C._len_torch_dispatch_stack(),
        torch._C._are_functorch_transforms_active(),
        forward_ad._current_level,
        parametrize._cache_enabled,
        CompileContext.try_get() is None,
        setting_values(),
    )
