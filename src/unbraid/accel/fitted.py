"""The functions with which training launches the kernels of layers.

If a kernel needs more shared memory than the GPU has, it is launched with smaller settings (see `fit_shared_memory`).
"""

from __future__ import annotations

from unbraid.accel.kernels import conv2x2 as _conv2x2
from unbraid.accel.kernels import conv4x4 as _conv4x4
from unbraid.accel.kernels import conv_transpose4x4 as _conv_transpose4x4
from unbraid.accel.kernels import dense as _dense
from unbraid.accel.kernels import dense_adam as _dense_adam
from unbraid.accel.kernels import last_layer as _last_layer
from unbraid.accel.kernels import weights as _weights
from unbraid.accel.kernels.tuned import fit_shared_memory

conv2x2 = fit_shared_memory(_conv2x2.conv2x2)
conv2x2_input_gradient = fit_shared_memory(_conv2x2.conv2x2_input_gradient)
conv2x2_weight_gradient = fit_shared_memory(_conv2x2.conv2x2_weight_gradient)
conv4x4 = fit_shared_memory(_conv4x4.conv4x4)
conv4x4_weight_gradient = fit_shared_memory(_weights.conv4x4_weight_gradient)
conv_transpose4x4 = fit_shared_memory(_conv_transpose4x4.conv_transpose4x4)
conv_transpose4x4_image = fit_shared_memory(_last_layer.conv_transpose4x4_image)
conv_transpose4x4_nll = fit_shared_memory(_last_layer.conv_transpose4x4_nll)
dense = fit_shared_memory(_dense.dense)
dense_adam = fit_shared_memory(_dense_adam.dense_adam)
dense_input_gradient = fit_shared_memory(_dense.dense_input_gradient)
dense_weight_gradient = fit_shared_memory(_dense.dense_weight_gradient)
image_conv4x4_weight_gradient = fit_shared_memory(_weights.image_conv4x4_weight_gradient)
