"""Sentences for what pydantic refuses in a topology: the field, what is allowed, what was given."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.records import Record

__all__ = ["check_attributes", "describe_mistake", "field_of", "suggest_key"]

RULES = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "less_than_equal": "at most {le:g}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "settings (key: value)",
    "multiple_of": "a multiple of {multiple_of:g}",
    "must_be": "{rule}",
    "string_type": "text",
}
"""What is allowed, by pydantic's type of error. For other types the sentence has pydantic's own words."""
OF_A_PART = ("model_type", "value_error")
"""Types of errors that a whole part has, not one of its fields."""
UNITS = {"gbps": "Gb/s", "us": "microseconds"}


def describe_mistake(mistake: ErrorDetails, owner: str, keys: Mapping[str, Any], shown: str) -> str:
    """Return a sentence for an error of pydantic: the field, what is allowed, what was given.

    Parameters
    ----------
    mistake : ErrorDetails
        An entry of `ValidationError.errors()`.
    owner : str
        The part that has the field, such as ``"a rack"`` or ``"S1"``.
    keys : mapping
        The fields that the part can have.
    shown : str
        The value as it was given.
    """
    kind, context = mistake["type"], mistake.get("ctx", {})
    key = field_of(mistake)
    if kind == "extra_forbidden":
        near = suggest_key(key, keys)
        return f"{owner} has no setting {key!r}; {f'is {near!r} meant?' if near else 'known are ' + ', '.join(keys)}"
    if kind == "missing":
        return f"{owner} must have {key!r}"
    if kind == "no_value":
        return f"{key} of {owner} has no value"
    if kind == "value_error":
        return f"{owner}: {context['error']}"
    subject = f"{key} of {owner}" if key else owner
    if kind not in RULES:
        return f"{subject}: {mistake['msg']}, not {shown}"
    rule = RULES[kind].format(**context).replace("'", "")
    unit = UNITS.get(key.rpartition("_")[2], "") if kind == "float_type" else ""
    return f"{subject} must be {rule}{f' in {unit}' if unit else ''}, not {shown}"


def field_of(mistake: ErrorDetails) -> str:
    """Return the field that has a mistake; empty if a whole part has it. An item of a list belongs to its field."""
    place = list(mistake["loc"])
    if mistake["type"] not in OF_A_PART:
        while place and isinstance(place[-1], int):
            place.pop()
    return place[-1] if place and isinstance(place[-1], str) else ""


def suggest_key(key: str, keys: Mapping[str, Any]) -> str | None:
    """Return the known key that is meant, if there is one: `key` with its unit, or spelt otherwise."""
    stem = key.partition("_")[0]
    with_unit = [known for known in keys if known.partition("_")[0] == stem and "_" in known]
    return next(iter(with_unit or difflib.get_close_matches(key, keys, 1)), None)


def check_attributes(
    model: type[Record], owner: str, given: Mapping[str, Any], place: tuple[str, Any] | None = None
) -> dict[str, Any]:
    """Return the given attributes of a node or a cable, each as its type.

    Raises
    ------
    TopologyError
        If one is unknown, missing, or not allowed. The message names `owner`, the error has `place`.
    """
    try:
        record = model.model_validate(dict(given))
    except ValidationError as error:
        mistake = error.errors()[0]
        raise TopologyError(
            describe_mistake(mistake, owner, model.model_fields, repr(mistake["input"])), place
        ) from error
    return {key: getattr(record, key) for key in given}
