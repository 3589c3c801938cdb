// The one source of each library that precompiles headers.
