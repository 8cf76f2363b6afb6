package transfer

// SetIndexPiece changes how much of an index a client sends in one request.
func SetIndexPiece(c *Client, n int) { c.indexChunkBytes = n }
