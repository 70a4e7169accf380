
# The platform does not declare this as supported: every rank must raise a clear error, and the group must work afterwards.
if rank in MEMBERS:
    if not refusal:
        problems.append("did not raise")
    elif refusal.endswith(": "):
        problems.append(f"raised {refusal}without saying why")
    else:
        say(f"raised, as it must: {refusal}")
        doing = "the all_reduce after the refusal"
        probe = torch.full((5,), MEMBERS.index(rank) + 1.0, device=DEVICE)
        dist.all_reduce(probe, group=group)
        if probe.tolist() != [SUM] * 5:
            problems.append(f"all_reduce after the refusal: expected {[SUM] * 5}, got {probe.tolist()}")
