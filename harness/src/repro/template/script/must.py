

elsewhere = []


@contextmanager
def must(what, raises=(), somewhere=False, may_raise=False, within=None, not_before=None):
    """Must raise what all patterns are found in, or may raise; and must take so many seconds."""
    begin, said, problem = time.monotonic(), None, None
    try:
        yield
    except Exception as error:
        if not raises and not may_raise:
            raise
        said = f"{type(error).__name__}: {error}"
    took = time.monotonic() - begin
    if raises and said is None:
        problem = f"did not raise; it must say {raises}"
    elif raises and said.endswith(": "):
        problem = f"raised {said}without saying why"
    elif missing := [pattern for pattern in raises if not re.search(pattern, said, re.I | re.S)]:
        problem = f"raised {said}; it must say {missing}"
    elif within is not None and took > within:
        problem = f"took {took:.1f} s; {within} s is the limit ({said})"
    elif not_before is not None and took < not_before:
        problem = f"took {took:.1f} s; it must take {not_before} s"
    elif said:
        say(f"{what}: raised, as it must or may: {said:.200}")
    if somewhere and not problem:
        side.set(f"kept {what}", "by a rank")
    if problem:
        (elsewhere if somewhere else problems).append(f"{what}: {problem}")
