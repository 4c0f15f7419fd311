"""Entries of several kinds, told apart by one key; packages add kinds by a hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from harness.core import hooks
from harness.core.errors import ConfigError
from harness.core.yaml_document import did_you_mean, shown


def listed(models: Any) -> Sequence[Any]:
    """Return what an implementation of a hook returned: one class, or several."""
    return models if isinstance(models, list | tuple) else [models]


class TaggedModel(BaseModel):
    """An entry; validating one returns an instance of the kind that its `tag` names.

    A direct subclass has `tag`, the key that names the kind, and `hook`, whose implementations
    return the kinds. These are its subclasses, with `Literal["NAME"]` as the type of that key.
    """

    tag: ClassVar[str]
    hook: ClassVar[str]
    others: ClassVar[tuple[type, ...]] = ()
    """Classes that the hook may return besides."""

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Return the kinds by their names.

        Raises ConfigError for a plug-in whose kind is none, or has a name that is taken.
        """
        (union,) = (base for base in cls.__mro__ if TaggedModel in base.__bases__)
        assert issubclass(union, TaggedModel)
        kinds: dict[str, Any] = {}
        for plugin, models in hooks.results(cls.hook):
            for model in listed(models):
                if isinstance(model, type) and issubclass(model, cls.others):
                    continue
                if not isinstance(model, type) or not issubclass(model, union):
                    problem = f"{model!r} is not a subclass of {union.__name__}"
                elif len(names := get_args(model.model_fields[cls.tag].annotation)) != 1:
                    problem = f'{model.__name__} needs a field `{cls.tag}: Literal["NAME"]`'
                elif kinds.setdefault(names[0], model) is not model:
                    problem = f"{cls.tag} {names[0]!r} is already in use"
                else:
                    continue
                raise ConfigError(f"plug-in {plugin}: {problem}")
        return kinds

    @classmethod
    def kind_in(cls, entry: Mapping[str, object]) -> object:
        """Return the name of an entry's kind."""
        return entry.get(cls.tag)

    @classmethod
    def model_of(cls, entry: object) -> type[BaseModel]:
        """Return the model of an entry's kind; this one if the kind is unknown."""
        name = cls.kind_in(entry) if isinstance(entry, Mapping) else None
        return cls.kinds().get(name, cls) if isinstance(name, str) else cls

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, entry: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        if TaggedModel not in cls.__bases__ or not isinstance(entry, Mapping):
            return handler(entry)
        if (model := cls.model_of(entry)) is not cls:
            return model.model_validate(entry)
        name, kinds = cls.kind_in(entry), [*cls.kinds()]
        word = shown(str(name))
        context = {"word": word, "hint": did_you_mean(word, kinds), "choices": kinds}
        words = "is missing" if name is None else "unknown value '{word}'{hint}"
        problem = PydanticCustomError("missing" if name is None else "kind", words, context)
        mistake = InitErrorDetails(type=problem, loc=(cls.tag,), input=name)
        raise ValidationError.from_exception_data(cls.__name__, [mistake])
