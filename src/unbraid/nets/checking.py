"""Checks of networks that users have written."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from unbraid.errors import UserError
from unbraid.nets import vitae
from unbraid.nets.vae import Pair, VAENet

OF_TRAINED_RUN = "of_trained_run"  # attribute of the parameters of trained runs, which copies do not have


def mark_as_trained(net: nn.Module) -> None:
    """Let the parameters of a trained network not require gradients, and mark them for `check_pair`."""
    for parameter in net.parameters():
        setattr(parameter.requires_grad_(False), OF_TRAINED_RUN, True)


def check_pair(pair: Pair) -> None:
    """Raise an error if a pair of modules cannot be copied, or if it is not clear which parameters are to be trained.

    Raises:
        UserError: If parameters have hooks, which copies do not have, or if a hook is a function that refers to other
            objects, because the hook of the copy would refer to the original. Also if a parameter belongs to a trained
            run and does not require gradients.
    """
    modules = [module for part in pair if isinstance(part, nn.Module) for module in part.modules()]
    parameters = [parameter for module in modules for parameter in module.parameters(recurse=False)]
    if any(parameter._backward_hooks for parameter in parameters) or any(map(_has_bound_hooks, modules)):
        raise UserError(
            "The modules of a pair must not have hooks on parameters, or hooks that refer to the modules, because the "
            "pair is copied for every run. Got such a hook. Write a function of the shape of an example and the number "
            "of latents that creates the modules with their hooks, and pass it as net."
        )
    if any(hasattr(parameter, OF_TRAINED_RUN) and not parameter.requires_grad for parameter in parameters):
        raise UserError(
            "It must be clear whether modules of a trained run are to be trained again. Got a module whose parameters "
            "do not require gradients because it belongs to a run. Pass copy.deepcopy(module).requires_grad_(True) to "
            "train it, or copy.deepcopy(module) to keep its weights."
        )


def _has_bound_hooks(module: nn.Module) -> bool:
    """Return whether a hook of a module is a function that uses variables of the function around it."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    functions = [hook for found in hooks for hook in found.values() if isinstance(hook, types.FunctionType)]
    return any(function.__closure__ for function in functions)


def check_modules(modules: Iterable[nn.Module]) -> None:
    """Raise an error if modules have features that training does not support.

    Raises:
        UserError: If there are dropout layers, which would draw random numbers that the seed of the run does not
            determine, scripted modules, hooks that need accumulated gradients, or parameters that are not initialised
            or not float32.
    """
    for module in modules:
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise UserError(
                f"A network must not draw random numbers itself. Got {module} instead. Remove the dropout layers."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(
                "The modules of a network must be Python objects, because they are copied and changed. Got a "
                f"TorchScript module, {module.original_name}. Pass the module from which it was made."
            )
        for name, parameter in module.named_parameters(recurse=False):
            _check_parameter(f"{type(module).__name__}.{name}", parameter)


def check_device(net: VAENet, device: torch.device) -> None:
    """Raise an error if a parameter has hooks that training on the device would not call."""
    found = [name for name, parameter in net.named_parameters() if parameter._backward_hooks]
    if found and device.type != "cpu":
        raise UserError(
            f"On {device}, parameters must not have hooks, because all runs of a stack are computed together. Got a "
            f"hook on {found[0]}. Train on the CPU, or change the weights in forward()."
        )


def _check_parameter(name: str, parameter: Tensor) -> None:
    """Raise an error if a parameter cannot be trained."""
    if is_lazy(parameter):
        raise UserError(
            f"The parameters of a network must have shapes. Got {name}, which is not initialised. Call the modules "
            "once with a batch of examples before you return them, or use layers with explicit sizes."
        )
    if parameter.dtype != torch.float32:
        raise UserError(
            f"The parameters of a network must be float32. Got {name} with {parameter.dtype} instead. Convert it, or "
            "register it as a buffer."
        )
    if getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise UserError(
            "Parameters must not have hooks for accumulated gradients, because gradients are not accumulated. Got "
            f"such a hook on {name}. Use register_hook."
        )


def check_net(net: VAENet, shape: tuple[int, ...], latents: int) -> None:
    """Raise an error if a network cannot be trained or its outputs have wrong shapes.

    Args:
        net: The network, which is not modified.
        shape: Shape of one example.
        latents: Number of latents.

    Raises:
        UserError: If a module is not supported (see `check_modules`), if the network has parameters but none requires
            gradients, if it cannot be copied, or if the encoder does not map (b, ...) to (b, 2 * latents). If the
            network has a decoder, also if the decoder does not map (b, latents) to (b, ...), or if it ends in a sigmoid
            although the likelihood expects logits.
    """
    check_modules(net.modules())
    parameters = list(net.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        raise UserError(
            "A network must have a parameter that requires gradients. Got only frozen parameters "
            "(requires_grad=False), which are not trained. Call requires_grad_(True) on the modules that are to be "
            "trained."
        )
    if net.likelihood.mean is torch.sigmoid and _ends_in_sigmoid(net.decoder):
        raise UserError(
            "A decoder of Bernoulli pixels must return logits, because the likelihood applies a sigmoid. Got a decoder "
            "that ends in a sigmoid instead. Remove it, or choose the likelihood 'normal' or 'gaussian'."
        )
    copied = _copy(net).eval()
    with torch.no_grad():
        encoded = _call("encoder", copied.encoder, torch.zeros(2, *shape))
        if encoded.shape != (2, 2 * latents):
            raise UserError(
                f"The encoder must return 2 x {latents} numbers per example (means, then log variances). "
                f"Got shape {tuple(encoded.shape)} for a batch of 2 examples instead."
            )
        if copied.decoder is None:
            return
        output = _call("decoder", copied.decoder, encoded[:, :latents])
    if output.shape != (2, *shape):
        raise UserError(
            f"The decoder must return the shape of an example, {shape}. Got shape {tuple(output.shape[1:])} instead."
        )


def _call(part: str, network: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a part of a network, or raise an error that says for which input it has failed."""
    try:
        output: Tensor = network(x)
    except RuntimeError as error:
        raise UserError(
            f"The {part} must accept inputs of shape {tuple(x.shape)}. It has failed with the message {str(error)!r}. "
            "Methods such as DeVAE need networks for other numbers of latents than the run has. For these, pass a "
            "function of the shape of an example and the number of latents as net, not two modules."
        ) from error
    return output


def _copy(net: VAENet) -> VAENet:
    """Return a copy of a network, or raise an error if PyTorch cannot copy it."""
    try:
        return copy.deepcopy(net)
    except RuntimeError as error:
        raise UserError(
            "A network must be copyable by copy.deepcopy. Got a module with a tensor that is computed from parameters, "
            "as torch.nn.utils.weight_norm and torch.nn.utils.prune create it. Use torch.nn.utils.parametrizations, or "
            "compute the tensor in forward()."
        ) from error


def _ends_in_sigmoid(decoder: nn.Module | None) -> bool:
    """Return whether the last layer of a decoder is a sigmoid. For VITAE, examine the decoder of the appearance."""
    last = decoder.appearance if isinstance(decoder, vitae.VitaeDecoder) else decoder
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    return isinstance(last, nn.Sigmoid)
