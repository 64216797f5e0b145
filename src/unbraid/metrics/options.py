"""Names of metrics with options, such as "dci_es?probes=rff&sizes=16,32"."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from unbraid.errors import UserError, unknown_name_message
from unbraid.runtime.plugins import Registry

Metric = Callable[..., dict[str, float]]
NOT_OPTIONS = ("seed", "continuous")  # keyword-only parameters that follow from the protocol or the data
ALSO_OPTIONS = ("estimator",)  # options that may also be passed by position


class MetricRegistry(Registry[Metric]):
    """Metrics by name. A name with options refers to the metric with these values as defaults.

    >>> from unbraid.metrics import METRICS
    >>> METRICS["mig?bins=2"]([[0, 0], [1, 0], [2, 0], [3, 0]], [[0], [0], [1], [1]])
    {'discrete_mig': 1.0}
    """

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or "?" not in name:
            return super().__contains__(name)
        try:
            self.options(name)
        except UserError:
            return False
        return True

    def __missing__(self, name: str) -> Metric:
        if "?" not in name:
            return super().__missing__(name)
        function, options = self[base_name(name)], self.options(name)
        variant = partial(function, **options)
        variant.__doc__ = function.__doc__
        return variant

    def options(self, name: str) -> dict[str, Any]:
        """Return the options in a name whose values differ from the defaults, in the order of the parameters.

        Raises:
            UserError: If the metric or an option is unknown, or if a value has the wrong type.
        """
        base, mark, text = name.partition("?")
        if not mark:
            return {}
        if not super().__contains__(base):
            raise UserError(unknown_name_message("metric", base, list(self)))
        known = option_parameters(self[base])
        given: dict[str, Any] = {}
        for part in text.split("&"):
            option, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or option in given:
                raise UserError(
                    f"Options of a metric must be written once each, as in dci_es?probes=rff&sizes=16,32. Got {part!r} "
                    f"in {name!r} instead."
                )
            if option not in known:
                raise UserError(unknown_name_message(f"option of {base}", option, known))
            given[option] = read_value(base, known[option], value)
        return {key: given[key] for key in known if key in given and given[key] != known[key].default}

    def canonical_name(self, name: str) -> str:
        """Return the name with its options in a fixed order and form, without those that have their default value.

        >>> from unbraid.metrics import METRICS
        >>> METRICS.canonical_name("infomec?prune=0.10&bins=10&neighbours=0"), METRICS.canonical_name("mig?bins=20")
        ('infomec?bins=10&prune=0.1', 'mig')
        """
        if "?" not in name:
            return name
        options = [f"{key}={_value_text(value)}" for key, value in self.options(name).items()]
        return "?".join([base_name(name), *(["&".join(options)] if options else [])])


def base_name(name: str) -> str:
    """Return the name of a metric without options.

    >>> base_name("mig?bins=10"), base_name("mig")
    ('mig', 'mig')
    """
    return name.partition("?")[0]


def option_parameters(metric: Metric) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a metric that are options: the keyword-only ones and `estimator`, but no seed."""
    parameters = inspect.signature(metric).parameters.items()
    return {
        name: parameter
        for name, parameter in parameters
        if (parameter.kind is parameter.KEYWORD_ONLY and name not in NOT_OPTIONS) or name in ALSO_OPTIONS
    }


def read_value(metric: str, parameter: inspect.Parameter, text: str) -> Any:
    """Return the value of an option from its text, as its type annotation says.

    Raises:
        UserError: If the text is not of this type.
    """
    kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    if kind == "str":
        return text
    try:
        if "Sequence" in kind:
            return tuple(int(number) for number in text.split(","))
        return float(text) if "float" in kind else int(text)
    except ValueError:
        needed = "whole numbers" if "Sequence" in kind else "a number" if "float" in kind else "a whole number"
        raise UserError(f"The option {parameter.name!r} of {metric} must be {needed}. Got {text!r} instead.") from None


def _value_text(value: Any) -> str:
    """Return the text of an option in a name."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def join_lists(parts: Sequence[str]) -> list[str]:
    """Join the parts of names that were split at commas. A part that begins with a digit continues a list of numbers.

    >>> join_lists(["dci_es?sizes=16", "32&probes=rff", "mig"])
    ['dci_es?sizes=16,32&probes=rff', 'mig']
    """
    joined: list[str] = []
    for part in parts:
        if joined and "?" in joined[-1] and part[:1].isdigit():
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined
