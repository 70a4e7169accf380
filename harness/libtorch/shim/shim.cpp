// All of the shim as one translation unit: nearly all of the time goes into reading libtorch's headers, which is then done once.
#include "error.cpp"
#include "group.cpp"
#include "ops.cpp"
#include "recorder.cpp"
#include "store.cpp"
