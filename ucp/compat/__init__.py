"""Names of other libraries on top of ``ucp``; nothing here is imported by it."""
