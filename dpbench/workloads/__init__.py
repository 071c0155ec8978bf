"""Models with their batches, losses and optimizers: built-in families, or the user's own.

    workload.py     Workload and Batch, the interface
    resolve.py      from a name to a workload, and a user's module or package, imported by name and checked
    mlp.py          small linear layers: launch-bound
    convnet.py      ResNet layouts, with batch norm
    transformer.py  GPT-2 layouts
    embedding.py    large tables, with dense or sparse gradients
    many.py         very many small tensors
    digits.py       scikit-learn's images, the data of `--data digits`

A new family is a file here, an entry in `FAMILIES` of resolve.py, and a name in dpbench/cases/names.py.
"""
