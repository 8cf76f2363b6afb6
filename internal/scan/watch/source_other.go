//go:build !linux && !darwin

package watch

// openSource can only poll.
func openSource(c *watchConfig, buffer *changeBuffer) (eventSource, error) {
	return openMethod(c, buffer, []methodEntry{{Poll, openPoll}})
}
