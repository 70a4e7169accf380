"""Exceptions as the protocol sends them."""


def describe(error: BaseException) -> dict[str, str]:
    """Returns an exception's ``type``, the name of its class, and ``message``, its whole text."""
    try:
        message = str(error)
    except Exception as broken:  # a message that is not text
        message = f"<message cannot be shown: {broken!r}>"
    message = message.encode("utf-8", "backslashreplace").decode()
    return {"type": type(error).__name__, "message": message}
