"""Facts of a file of providers for those who start a stack. With it comes pydantic: it is loaded where there is one."""

from __future__ import annotations

from pathlib import Path

from palaver.errors import ConfigurationError


def keys_that_lack(file: str | None) -> dict[str, str]:
    """The variables with keys of providers of a file that are not set, by provider.

    Raises ConfigurationError if it cannot be used.
    """
    if not file:
        return {}
    from palaver.config.providers import load_providers

    providers = load_providers(Path(file)).items()
    return {name: provider.api_key_env for name, provider in providers if provider.api_key_env and not provider.has_key}


def model_to_try(file: str | None) -> tuple[str, str]:
    """A model that the providers of a file have, or else `fake`, and what is to be said of it.

    A file names models where it lists them or has their prices. Raises ConfigurationError if it cannot be used, or is
    empty.
    """
    if not file:
        return "fake/tool-20", ""
    from palaver.config.providers import load_providers

    for name, provider in load_providers(Path(file)).items():
        named = [*provider.models, *(model for model in provider.prices if model != "*")]
        return (f"{name}/{named[0]}", "") if named else (f"{name}/MODEL", f", with a model of {name} for MODEL")
    raise ConfigurationError(f"PALAVER_PROVIDERS: {file} has no [providers.NAME]")
