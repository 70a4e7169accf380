"""Exceptions as the protocol says them."""


def describe(error):
    """An exception as the protocol says it."""
    try:
        message = str(error)
    except Exception as broken:  # a message that is not text
        message = f"<message cannot be shown: {broken!r}>"
    message = message.encode("utf-8", "backslashreplace").decode()
    return {"type": type(error).__name__, "message": message}
