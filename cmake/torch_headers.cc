// The one source of the library that precompiles the headers of LibTorch.
