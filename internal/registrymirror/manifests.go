package registrymirror

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	maxManifest      = 64 << 20 // bytes of one manifest
	manifestTimeout  = 20 * time.Second
	maxManifestBytes = 128 << 20 // bytes of all that are remembered
)

// manifestCache has the last manifest for each query, for the time when the origin cannot be reached.
type manifestCache struct {
	mu    sync.Mutex
	list  map[string][]byte // query -> body of the response
	bytes int
}

func newManifestCache() *manifestCache { return &manifestCache{list: map[string][]byte{}} }

func (c *manifestCache) get(query string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[query]
}

// put remembers a manifest. When all are too large together, others are dropped.
func (c *manifestCache) put(query string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += len(body) - len(c.list[query])
	c.list[query] = body
	for other, old := range c.list {
		if c.bytes <= maxManifestBytes {
			return
		}
		if other != query {
			delete(c.list, other)
			c.bytes -= len(old)
		}
	}
}

// serveManifest passes a request for a manifest to the origin. While that cannot be reached, it serves the last one to
// callers that have received it lately.
func (m *Mirror) serveManifest(w http.ResponseWriter, r *http.Request) {
	query, credential := r.URL.Query().Encode(), credentialOf(r)
	key := permitKey{credential.hash(), manifestPath + "?" + query}
	status, body, err := m.fetchManifest(r, query, credential)
	switch {
	case err == nil && status == http.StatusOK:
		m.manifests.put(query, body)
		m.permits.add(key, 0)
	case err == nil:
		m.permits.remove(key)
	default:
		_, isPermitted := m.permits.find(key, StalePermitTime)
		if body = m.manifests.get(query); !isPermitted || body == nil {
			m.failUnreachable(w, r, err)
			return
		}
		status = http.StatusOK
		m.metrics.staleAnswers.Inc()
		m.log.WarnContext(r.Context(), "registry not reached; served the last manifest", "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON of the registry, with its type
}

// fetchManifest asks the origin. A response of a server that has failed is an error.
func (m *Mirror) fetchManifest(r *http.Request, query string, c credential) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), manifestTimeout)
	defer cancel()
	resp, err := m.origin.send(ctx, http.MethodGet, manifestPath+"?"+query, c, "")
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusInternalServerError {
		return 0, nil, fmt.Errorf("it responded %s", resp.Status)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if len(body) > maxManifest {
		return 0, nil, fmt.Errorf("its manifest has more than %d bytes", maxManifest)
	}
	return resp.StatusCode, body, err
}
