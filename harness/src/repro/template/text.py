

def text(number, length):
    """Stands for a long text: different for each number."""
    return (f"{number} " * length)[:length]

