if not problems:  # no member may leave before the last one has entered; ranks of one host have one clock
    store = dist.distributed_c10d._get_default_store()
    members = MEMBERS
    if rank in members:
        store.set(f"times of {rank}", f"{enter} {leave}")
        last = max(float(store.get(f"times of {member}").split()[0]) for member in members)
        if leave < last:
            problems.append(f"left the barrier {(last - leave) * 1e3:.3f} ms before the last rank entered it")
