package cache

// Waiters returns how many callers wait for a pull.
func (c *Cache) Waiters(contentID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.pulls[contentID]
	if f == nil {
		return 0
	}
	return len(f.waiters)
}
