"""PyTorch, limited to one thread: workers distribute the work.

Importing it is slow, so this module is imported inside the functions that need tensors; training with compiled code
does not.
"""

import torch
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)
threadpool_limits(limits=1)

__all__ = ["torch"]
