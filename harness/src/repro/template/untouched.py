
# A call that is refused writes nothing.
for name in t:
    TENSORS[rank][name] = (*TENSORS[rank][name][:2], SAME)
    compare(name)
