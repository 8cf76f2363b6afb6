package transfer

// CloneAt is for tests that need to know whether the file system can clone.
var CloneAt = cloneAt

// SetIndexPiece changes how much of an index a client sends in one request.
func SetIndexPiece(c *Client, n int) { c.indexChunkBytes = n }
