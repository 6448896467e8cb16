"""PyTorch, held to one thread like every other library here: workers share out the work.

Importing it takes as long as everything else together, so whoever needs tensors imports this where they are needed: a
device that trains with compiled code never does.
"""

import torch
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)
threadpool_limits(limits=1)

__all__ = ["torch"]
