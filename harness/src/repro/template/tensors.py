

def place(where, data):
    """A tensor in a larger storage, all of which is compared afterwards."""
    dtype, elements, shape, strides, offset = where
    storage = torch.full((elements * dtype.itemsize,), 0x5A, dtype=torch.uint8).view(dtype).to(DEVICE)
    target = tensor = storage.as_strided(shape, strides, offset)
    if data is not None:
        data = %%values%%.view(shape)
%%expanded%%        target.copy_(data)
    return storage, tensor


def wrong(got, wanted):
    """Places of the elements whose bits differ."""
    size = got.dtype.itemsize
    got, wanted = (x.detach().cpu().contiguous().flatten().view(torch.uint8).view(-1, size) for x in (got, wanted))
    return (got != wanted).any(1).nonzero().flatten().tolist()


def compare(name):
    where, before, after, *tolerance = TENSORS[rank][name]
%%unjudged%%    storage, tensor = place(where, before if after in (SAME, ANY) else after)
    if after == ANY:
        tensor.copy_(t[name].detach())
%%tolerance%%    if at := wrong(t[name], tensor):
        show = slice(at[0], at[0] + 8)
        expected, got = (x.flatten()[show].tolist() for x in (tensor, t[name]))
        problems.append(f"{name}[{at[0]}:], {len(at)} elements: expected {expected}, got {got}")
    elif at := wrong(storages[name], storage):
        problems.append(f"{name}: its storage was written to around it, at elements {at[:8]}")
