

def near(got, wanted, tolerance):
    wide = torch.complex128 if got.is_complex() else torch.float64
    return torch.allclose(got.to(wide), wanted.to(wide), rtol=0, atol=tolerance, equal_nan=True)
