package transfer

// TracedFrames returns the frames of a disk's plan that a trace names.
func TracedFrames(d *LazyDisk, trace []int) []int { return d.target.tracedFrames(trace) }

// SetIndexPiece changes how much of an index a client sends in one request.
func SetIndexPiece(c *Client, n int) { c.indexChunkBytes = n }
