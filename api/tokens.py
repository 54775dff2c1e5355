"""What an API token may look like; both ends of a connection check it before they use it."""

from __future__ import annotations

from geartrain.errors import ConfigError


def checked_token(token: str) -> str:
    """The token itself, if it can be sent as a bearer token. Raises `ConfigError`, which does not repeat the token."""
    if not token or not all("!" <= character <= "~" for character in token):
        expected = "one or more printable ASCII characters without spaces"
        raise ConfigError(
            f"the API token (GEARTRAIN_API_TOKEN) must be {expected}", field="GEARTRAIN_API_TOKEN", expected=expected
        )
    return token
