"""fedforget: federated recommendation that can forget.

import fedforget as ff

train, test = ff.load("ml-100k").split(test=0.2, seed=0)
fed = ff.Federation(train, seed=0, path="runs/a")  # Fed-iALS; or ff.Federation(train, ff.LightGCN(), ...)
fed.fit(rounds=100)
print(fed.evaluate(test))
receipt = fed.forget([17, 23])
print(receipt)
print(fed.recommend(user=5, k=10))

The public names are in ``__init__.pyi``. They are imported when they are first used, so that a server process never
loads device code and a device process never loads server code.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
