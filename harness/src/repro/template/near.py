

def near(got, wanted, tolerance):
    """The wanted elements, and those that were got where they are near enough."""
    wide = torch.complex128 if got.is_complex() else torch.float64
    a, b = got.to(wide), wanted.to(wide)
    tolerance = torch.tensor(tolerance, dtype=torch.float64, device=got.device)
    tolerance = tolerance.view(got.shape) if tolerance.dim() else tolerance
    is_near = (a == b) | ((a - b).abs() <= tolerance) | (a.isnan() & b.isnan())
    return torch.where(is_near, got, wanted)
