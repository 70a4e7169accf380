// PyTorch's wheels ship `ProcessGroupGloo.hpp` and not the Gloo headers it includes. These declarations, in files of the
// same names, are what that header needs to be read. Nothing of Gloo is called or instantiated by us: every object of
// these types is made and destroyed inside libtorch, and `ProcessGroupGloo` itself holds them behind pointers only.
#pragma once
