"""Storage: the contract (``base``), its SQLite implementation, and the migrations that make the schema."""
