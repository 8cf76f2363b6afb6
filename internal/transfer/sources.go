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

// choose returns the URL of an attempt. While sources outside the registry are avoided, those of the registry are used
// if there are any.
func (h *sourceHealth) choose(c *Client, urls []string, attempt int) string {
	h.mu.Lock()
	avoid := time.Now().Before(h.avoidedUpto)
	h.mu.Unlock()
	if avoid {
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
	h.mu.Lock()
	h.avoidedUpto = time.Now().Add(sourceRetryDelay)
	h.mu.Unlock()
	return fmt.Errorf("%w: %w", errTransient, err)
}
