"""Check that the grammar fully supports a JSON schema.

A partly supported schema would let the model write what the schema forbids.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from voxtui.serve.openai_types import HttpError

LONGEST = 16_000

DEEPEST = 100

Type: TypeAlias = Literal["object", "array", "string", "number", "integer", "boolean", "null"]

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]


class Schema(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The supported keywords. The first ones only describe the value."""

    title: str = ""
    description: str = ""
    default: Any = None
    examples: Any = None
    dialect: str = msgspec.field(name="$schema", default="")
    type: Type | Annotated[list[Type], Meta(min_length=1)] | None = None
    enum: Annotated[list[Any], Meta(min_length=1)] | None = None
    const: Any = None
    any_of: Annotated[list[Schema | bool], Meta(min_length=1)] | None = None
    ref: str | None = msgspec.field(name="$ref", default=None)
    defs: dict[str, Schema | bool] = msgspec.field(
        name="$defs", default_factory=dict[str, "Schema | bool"]
    )
    properties: dict[str, Schema | bool] = {}
    required: list[str] = []
    additional_properties: Schema | bool = True
    items: Schema | bool | None = None
    min_items: Count = 0
    max_items: Count | None = None
    min_length: Count = 0
    max_length: Count | None = None
    format: Literal["date-time", "date", "time", "email", "uuid"] | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None

    def parts(self) -> Iterator[Schema]:
        yield self
        within = *self.properties.values(), *self.defs.values(), *(self.any_of or ())
        for part in (*within, self.additional_properties, self.items):
            if isinstance(part, Schema):
                yield from part.parts()


def check_schema(schema: dict[str, Any], param: str) -> None:
    """Raise HttpError (400) if `schema` has an unsupported keyword, and name its place."""
    text = msgspec.json.encode(schema).decode()
    if len(text) > LONGEST or _depth(text) > DEEPEST:
        raise _refusal(f"{param} has more than {LONGEST} bytes, or {DEEPEST} levels.")
    try:
        whole = msgspec.convert(schema, Schema)
    except msgspec.ValidationError as error:
        raise _refusal(f"{param} is not supported: {error}.") from error
    for part in whole.parts():
        if reason := _impossible(part, whole.defs):
            raise _refusal(f"{param} is not supported: {reason}.")
    if any(_is_circular(part, whole) for part in whole.parts()):
        raise _refusal(f"{param} is not supported: a $ref leads back to itself.")


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return deepest


def _impossible(schema: Schema, definitions: Container[str]) -> str:
    """Return why no value matches a schema, without its parts; empty if a value may."""
    for low, high, name in (
        (schema.min_items, schema.max_items, "items"),
        (schema.min_length, schema.max_length, "characters"),
        (schema.minimum, schema.maximum, "values"),
    ):
        if low is not None and high is not None and low > high:
            return f"the minimum number of {name} is larger than the maximum"
    missing = sorted({*schema.required} - {*schema.properties})
    if schema.additional_properties is False and missing:
        return f"{missing[0]!r} is required but not a property"
    own = schema.ref in (None, "#") or str(schema.ref).removeprefix("#/$defs/") in definitions
    return "" if own else f"{schema.ref!r} is not in its own $defs"


def _is_circular(schema: Schema, whole: Schema, seen: tuple[str, ...] = ()) -> bool:
    """Return True if references lead back to themselves without a value between them."""
    if schema.ref is None:
        choices = schema.any_of or ()
        return bool(choices) and all(
            isinstance(choice, Schema) and _is_circular(choice, whole, seen) for choice in choices
        )
    target = whole if schema.ref == "#" else whole.defs[schema.ref.removeprefix("#/$defs/")]
    again = schema.ref in seen
    return again or (
        isinstance(target, Schema) and _is_circular(target, whole, (*seen, schema.ref))
    )


def _refusal(message: str) -> HttpError:
    return HttpError(400, message, param="response_format", code="unsupported_value")
