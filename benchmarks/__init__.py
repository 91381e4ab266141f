"""memstore's benchmarks: retrieval quality on public data that the user brings, and speed on made-up rows."""
