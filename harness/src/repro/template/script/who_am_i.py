

def who_am_i(group):
    rank = dist.get_rank(group)
    backend = dist.get_backend(group) if rank >= 0 else None
    return {"rank": rank, "size": max(dist.get_world_size(group), 0), "backend": backend}
