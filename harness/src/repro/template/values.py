

def values(data):
    if isinstance(data, str):  # bytes, in hexadecimal
        return torch.frombuffer(bytearray.fromhex(data), dtype=DTYPE)
    return torch.tensor(data, dtype=DTYPE)
