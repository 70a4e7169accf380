

def expect(what, got, wanted):
    if got != wanted:
        problems.append(f"{what}: expected {wanted!r:.200}, got {got!r:.200}")

