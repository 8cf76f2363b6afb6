package transfer

// CloneAt is for tests that need to know what the file system can do.
var CloneAt = cloneAt
