package peers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	maxConnections = 256
	maxReads       = 4           // that are answered at a time
	maxReadsOfNode = maxInFlight // of them, of one node
	headerTimeout  = 10 * time.Second
	idleTimeout    = time.Minute
	readTimeout    = 30 * time.Second // of a request, up to the last byte of its response
	// rateBurst is how far the responses may be ahead of the rate.
	rateBurst = 250 * time.Millisecond
)

// Provider has the versions that are read.
type Provider interface {
	// Holding returns what is here of a version; false: nothing is.
	Holding(ctx context.Context, contentID string) (transfer.Holding, bool)
	// OpenRuns returns the bytes of ranges of a file, one after the other. transfer.ErrNotHere: not all of them are
	// here.
	OpenRuns(ctx context.Context, contentID, file string, runs []blob.Run) (io.ReadCloser, error)
	// GuestsWait reports whether a VM of this node waits for parts of its disk.
	GuestsWait() bool
}

// ServerOptions configure a Server. Rate and Logger may be zero.
type ServerOptions struct {
	Identity *Identity
	Provider Provider
	CloudKey func() string // the public key of the cloud; "": not known yet
	Rate     int64         // bytes a second that all responses together have; 0: no limit
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Server serves what this node has of versions to other nodes.
type Server struct {
	opts   ServerOptions
	served metric.Counter

	mu       sync.Mutex     // guards the fields below
	next     time.Time      // when the rate permits the next response
	answered int            // reads
	byReader map[string]int // key of a node -> its reads of them
}

// NewServer returns a server. Serve drives it.
func NewServer(o ServerOptions) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{opts: o, byReader: map[string]int{}}
}

// Served returns the bytes that were sent to other nodes.
func (s *Server) Served() int64 { return int64(s.served.Value()) }

// Families returns the metrics of the server.
func (s *Server) Families() []metric.Family {
	return []metric.Family{
		metric.CounterFamily("buildyard_node_peer_served_bytes_total", "Bytes of versions sent to other nodes",
			&s.served),
	}
}

// Serve answers at a listener until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /peer/v1/versions/{content}", s.permitted(s.serveHolding))
	mux.HandleFunc("POST /peer/v1/versions/{content}/read", s.permitted(s.serveRead))
	server := &http.Server{
		Handler: mux, TLSConfig: s.opts.Identity.serverTLS(), ReadHeaderTimeout: headerTimeout,
		ReadTimeout: readTimeout, WriteTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ServeTLS(netutil.LimitListener(l, maxConnections), "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// permitted checks the token of a request: its reader is the node that shows the certificate.
func (s *Server) permitted(handle func(http.ResponseWriter, *http.Request, cloudkey.PeerPermit)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		content := r.PathValue("content")
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		permit := cloudkey.PeerPermit{ContentID: content, Server: s.opts.Identity.Key()}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			permit.Reader = keyOf(r.TLS.PeerCertificates[0].Raw)
		}
		public := s.opts.CloudKey()
		if public == "" || permit.Reader == "" || !contentIDPattern.MatchString(content) ||
			cloudkey.VerifyPeerToken(public, token, permit, s.opts.Now()) != nil {
			http.Error(w, cloudkey.ErrPeerToken.Error(), http.StatusUnauthorized)
			return
		}
		handle(w, r, permit)
	}
}

func (s *Server) serveHolding(w http.ResponseWriter, r *http.Request, permit cloudkey.PeerPermit) {
	holding, ok := s.opts.Provider.Holding(r.Context(), permit.ContentID)
	if !ok {
		http.Error(w, transfer.ErrNotHere.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(holding) // the reader requests it again
}

func (s *Server) serveRead(w http.ResponseWriter, r *http.Request, permit cloudkey.PeerPermit) {
	content := permit.ContentID
	file, runs, size, err := parseRead(r.Body)
	if err != nil {
		http.Error(w, errRequest.Error(), http.StatusBadRequest)
		return
	}
	release, ok := s.admit(permit.Reader, size)
	if !ok {
		http.Error(w, "this node is busy", http.StatusTooManyRequests)
		return
	}
	defer release()
	body, err := s.opts.Provider.OpenRuns(r.Context(), content, file, runs)
	switch {
	case errors.Is(err, transfer.ErrNotHere):
		http.Error(w, transfer.ErrNotHere.Error(), http.StatusNotFound)
		return
	case err != nil:
		s.opts.Logger.Warn("a part of a version cannot be read for another node", "content", content, "error", err)
		http.Error(w, "this part of the version cannot be read", http.StatusInternalServerError)
		return
	}
	defer body.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	n, err := io.CopyN(w, body, size)
	s.served.Add(n)
	if err != nil {
		panic(http.ErrAbortHandler) // the reader gets no whole response
	}
}

// admit reports whether a response to a node may be sent now. release ends it.
func (s *Server) admit(reader string, size int64) (release func(), ok bool) {
	if s.opts.Provider.GuestsWait() {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	if s.answered >= maxReads || s.byReader[reader] >= maxReadsOfNode ||
		s.opts.Rate > 0 && s.next.Sub(now) > rateBurst {
		return nil, false
	}
	s.answered++
	s.byReader[reader]++
	if s.opts.Rate > 0 {
		if s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(time.Duration(float64(size) / float64(s.opts.Rate) * float64(time.Second)))
	}
	return func() { s.release(reader) }, true
}

func (s *Server) release(reader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered--
	if s.byReader[reader]--; s.byReader[reader] == 0 {
		delete(s.byReader, reader)
	}
}
