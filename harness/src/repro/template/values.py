

def values(data, dtype):
    if isinstance(data, str):  # bytes, in hexadecimal
        return torch.frombuffer(bytearray.fromhex(data), dtype=dtype)
    return torch.tensor(data, dtype=dtype)
