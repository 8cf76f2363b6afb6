package transfer

import (
	"fmt"
	"sync"
	"time"
)

// sourceRetryDelay is how long a source outside the registry is not used after it failed.
const sourceRetryDelay = time.Minute

// sourceHealth records that layers cannot be read outside the registry. The zero value is ready.
type sourceHealth struct {
	mu          sync.Mutex
	avoidedUpto time.Time
}

// isAvoided reports whether sources outside the registry are not used now.
func (h *sourceHealth) isAvoided() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.avoidedUpto)
}

// avoid makes sources outside the registry wait.
func (h *sourceHealth) avoid() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.avoidedUpto = time.Now().Add(sourceRetryDelay)
}

// choose returns the URL of an attempt. While sources outside the registry are avoided, those of the registry are used
// if there are any.
func (h *sourceHealth) choose(c *Client, urls []string, attempt int) string {
	if h.isAvoided() {
		var own []string
		for _, address := range urls {
			if c.isRegistryURL(address) {
				own = append(own, address)
			}
		}
		if len(own) > 0 {
			urls = own
		}
	}
	return urls[attempt%len(urls)]
}

// noteFailure records a failure. One of a source outside the registry is temporary if there is another source: its URL
// may have expired, or this machine may not reach it.
func (h *sourceHealth) noteFailure(c *Client, urls []string, address string, err error) error {
	if err == nil || len(urls) < 2 || c.isRegistryURL(address) {
		return err
	}
	h.avoid()
	return fmt.Errorf("%w: %w", errTransient, err)
}
