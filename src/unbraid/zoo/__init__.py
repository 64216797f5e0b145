"""Trained models that come with the package. Loading them needs neither a network connection nor their data.

The models are compact copies of runs (see `unbraid.zoo.compact`): the weights of the encoder and the decoder are stored
in half precision. A model is called ``<data>/<method>/<choice>``, such as ``dsprites/ada_gvae/best``. Among all runs of
the method on the dataset, `median` is the run with the median MIG, and `best` is the run with the highest MIG. Models
of data without suitable labels are chosen by their loss instead. The name ``dsprites/ada_gvae`` stands for
``dsprites/ada_gvae/median``.
"""

from __future__ import annotations

from unbraid.zoo.catalogue import ZooModel, copy
from unbraid.zoo.catalogue import list_models as list  # noqa: A004
from unbraid.zoo.catalogue import load_model as load

__all__ = ["ZooModel", "copy", "list", "load"]
