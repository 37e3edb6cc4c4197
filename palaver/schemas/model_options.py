"""Options for a model's answers: the part of an agent that goes to the model's provider."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from palaver.schemas.fields import AtMost, Strict, ToolName

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The amount of thinking before an answer, in OpenAI's words. Each model knows some of them."""


class NamedTool(Strict):
    """A tool that the model has to call."""

    name: ToolName


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class TextFormat(Strict):
    """Any text: what models do without a format."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """A JSON object of any shape."""

    type: Literal["json_object"]


class JsonSchemaFormat(Strict):
    """JSON that fits a schema."""

    # The field is called as in every API; as a name in Python it is taken.
    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    name: ToolName
    """The name under which the model sees it."""
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None
    """True if the provider must hold the model to the schema; None leaves it to the provider."""


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ModelOptions(Strict):
    """The options of a model call. None leaves an option to the provider."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    """For answers that can be had again, as far as the provider can."""
    stop: (
        Annotated[
            tuple[Annotated[str, AtMost("stop_text"), StringConstraints(min_length=1)], ...],
            Field(min_length=1),
            AtMost("stop_texts"),
        ]
        | None
    ) = None
    """Texts at which the model stops; they are not part of the answer."""
    reasoning_effort: ReasoningEffort | None = None
    parallel_tool_calls: bool | None = None
    """True if the model may ask for several tools at once."""
    tool_choice: ToolChoice | None = None
    """``required`` or a tool's name hold until the model has called a tool; from then on it is free to answer."""
    response_format: ResponseFormat | None = None
    """The form of an answer that calls no tool."""
    extra_body: Annotated[dict[str, Any], Field(min_length=1), AtMost("extra_body_fields")] | None = None
    """Fields that are added to each request as they are, for what one provider has and others do not."""
