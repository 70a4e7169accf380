"""Exceptions as the protocol sends them."""

#: Most bytes of a message that are sent: half of its beginning, and half of its end.
LONGEST = 8 << 10


def describe(error: BaseException) -> dict[str, str]:
    """Returns an exception's ``type``, the name of its class, and ``message``, its text or an excerpt of a long one."""
    try:
        message = str(error)
    except Exception as broken:  # a message that is not text
        message = f"<message cannot be shown: {broken!r}>"
    message = message.encode("utf-8", "backslashreplace").decode()
    return {"type": type(error).__name__, "message": excerpt(message)}


def excerpt(text: str) -> str:
    """Returns a text, or beginning and end of a long one, with a line between that says how many bytes were cut."""
    data = text.encode()
    if len(data) <= LONGEST:
        return text
    head = data[: LONGEST // 2].decode(errors="ignore")
    tail = data[-LONGEST // 2 :].decode(errors="ignore")
    cut = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[allranks cut {cut} bytes out of here]\n{tail}"
