package registrymirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/metric"
)

const (
	// PermitTime is how long a permission of the origin is used without asking it again.
	PermitTime = time.Minute
	// StalePermitTime is how long it is used while the origin cannot be reached.
	StalePermitTime = 10 * time.Minute
)

// The routes of the registry that a mirror has.
const (
	layerPath    = "/registry/v2/blob/"
	manifestPath = "/registry/v2/pull"
)

// Options configure a mirror.
type Options struct {
	Origin    *url.URL          // address of the registry, without a slash at its end
	Transport http.RoundTripper // for requests to the origin
	Dir       string            // directory of the layer files; it is created, and belongs to the mirror alone
	MaxBytes  int64             // size of all files in it; 0: no limit
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Mirror is an open mirror. It may be used from many goroutines.
type Mirror struct {
	origin    *origin
	store     *layerStore
	permits   *permits
	manifests *manifestCache
	metrics   metrics
	log       *slog.Logger
}

// metrics counts the work of a mirror since it was opened.
type metrics struct {
	sentBytes    metric.Counter // of layers, to callers
	originBytes  metric.Counter // of layers, from the origin
	layerHits    metric.Counter // requests for layers that needed no bytes of the origin
	layerMisses  metric.Counter // other requests for layers
	staleAnswers metric.Counter // requests that were answered although the origin could not be reached
}

// Open opens the directory of a mirror. Layer files that are incomplete, and were not closed orderly, are removed.
func Open(o Options) (*Mirror, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Mirror{log: o.Logger, permits: newPermits(o.Now), manifests: newManifestCache()}
	m.origin = &origin{base: o.Origin, client: &http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var err error
	m.store, err = openLayerStore(o, m.fetchChunk)
	return m, err
}

// Close ends the verification of layers and stores which parts of incomplete ones are there. It waits for requests.
func (m *Mirror) Close() error { return m.store.close() }

// Handler serves the routes.
func (m *Mirror) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+layerPath+"{root}", m.serveLayer)
	mux.HandleFunc("GET "+manifestPath, m.serveManifest)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("%s %s is not a route of a mirror, which serves pulls alone: "+
			"send the request to the registry at %s", r.Method, r.URL.Path, m.origin.base.Redacted()))
	})
	return mux
}

// Families returns the metrics of the mirror.
func (m *Mirror) Families() []metric.Family {
	return []metric.Family{
		metric.CounterFamily("buildyard_mirror_sent_bytes_total", "Bytes of layers sent to callers",
			&m.metrics.sentBytes),
		metric.CounterFamily("buildyard_mirror_origin_bytes_total", "Bytes of layers received from the registry",
			&m.metrics.originBytes),
		metric.CounterFamily("buildyard_mirror_layer_hits_total",
			"Requests for layers that needed no bytes from the registry", &m.metrics.layerHits),
		metric.CounterFamily("buildyard_mirror_layer_misses_total", "Other requests for layers",
			&m.metrics.layerMisses),
		metric.CounterFamily("buildyard_mirror_stale_answers_total",
			"Requests that were answered while the registry could not be reached", &m.metrics.staleAnswers),
		metric.GaugeFamily("buildyard_mirror_stored_bytes", "Size of the stored layers",
			func() float64 { return float64(m.store.size()) }),
		metric.GaugeFamily("buildyard_mirror_layers", "Stored layers, incomplete ones included",
			func() float64 { return float64(m.store.count()) }),
	}
}

// serveLayer serves ranges of a layer file, and fetches what is missing of them.
func (m *Mirror) serveLayer(w http.ResponseWriter, r *http.Request) {
	root, err := blob.ParseDigest(r.PathValue("root"))
	if err != nil {
		fail(w, http.StatusNotFound, "not the digest of a layer")
		return
	}
	size, ok := m.permitLayer(w, r, root)
	if !ok {
		return
	}
	l, err := m.store.acquire(root, size)
	if err != nil {
		m.log.WarnContext(r.Context(), "layer not stored; its callers use the registry", "layer", root.String(),
			"error", err)
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer m.store.release(l)
	content := &layerReader{ctx: r.Context(), layer: l, store: m.store, credential: credentialOf(r)}
	content.begin(r.Header.Get("Range"))
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", `"`+root.String()+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	out := &deadlineWriter{ResponseWriter: w, controller: http.NewResponseController(w)}
	http.ServeContent(out, r, "", time.Time{}, content)
	m.metrics.sentBytes.Add(out.sentBytes)
	if content.fetched {
		m.metrics.layerMisses.Inc()
	} else {
		m.metrics.layerHits.Inc()
	}
}

// permitLayer asks the origin whether the caller may download a layer, unless it has permitted that lately, and
// returns the size of the layer. Otherwise it answers the request.
func (m *Mirror) permitLayer(w http.ResponseWriter, r *http.Request, root blob.Digest) (size int64, ok bool) {
	credential := credentialOf(r)
	key := permitKey{credential.hash(), root.String()}
	if size, isFresh := m.permits.find(key, PermitTime); isFresh {
		return size, true
	}
	resp, err := m.origin.send(r.Context(), http.MethodHead, layerPath+root.String(), credential, "")
	switch {
	case err == nil && resp.StatusCode == http.StatusOK && resp.ContentLength > 0:
		_ = resp.Body.Close()
		m.permits.add(key, resp.ContentLength)
		return resp.ContentLength, true
	case err == nil && resp.StatusCode < 500:
		_ = resp.Body.Close()
		m.permits.remove(key)
		failHead(w, resp.StatusCode)
		return 0, false
	case err == nil:
		_ = resp.Body.Close()
		err = fmt.Errorf("it responded %s", resp.Status)
	}
	if size, isThere := m.permits.find(key, StalePermitTime); isThere {
		m.metrics.staleAnswers.Inc()
		return size, true
	}
	m.failUnreachable(w, r, err)
	return 0, false
}

// failUnreachable answers a request that needs the origin.
func (m *Mirror) failUnreachable(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return
	}
	fail(w, http.StatusBadGateway,
		fmt.Sprintf("the registry at %s cannot be reached: %v", m.origin.base.Redacted(), err))
}

// fetchChunk is how the store obtains the bytes of a layer.
func (m *Mirror) fetchChunk(ctx context.Context, root blob.Digest, c credential, at byteRange, to io.Writer) error {
	got, err := m.origin.readRange(ctx, layerPath+root.String(), c, at, to)
	m.metrics.originBytes.Add(got)
	return err
}
