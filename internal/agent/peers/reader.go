package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/internal/transfer/peerqueue"
)

const (
	firstAnswer   = 5 * time.Second        // that a pull waits for its first peers
	sourcesFirst  = time.Second            // between requests for peers, doubled each time
	sourcesMost   = 30 * time.Second       // up to this
	holdingEvery  = 500 * time.Millisecond // between requests for what a pulling node has
	completeEvery = 15 * time.Second       // of a node that has all
	failureTime   = 10 * time.Second       // a peer that failed is not used for that long
	busyTime      = 250 * time.Millisecond // one that is busy, doubled each time
	maxBusyTime   = 4 * time.Second        // up to this
	slowRefusal   = time.Second            // a peer that takes longer to refuse a read counts as one that failed
	dialTimeout   = 2 * time.Second
	stallTimeout  = 3 * time.Second // for the next bytes of a response
	// A peer whose response takes longer than slowTime counts as one that failed, and a reader waits for it no longer
	// than requestTime. Both are longer where the registry is slow too.
	slowTime    = 2 * time.Second
	requestTime = 8 * time.Second
	maxFailures = 3                // in a row; then a peer is not used for ExclusionTime
	openTime    = 10 * time.Second // that a peer may take to open its pull
	maxInFlight = 3                // reads from one peer
	ownUnit     = 4 << 20          // bytes of a file that one node fetches from the registry
	maxPeers    = 32
)

var errBusy = errors.New("the peer is busy")

// ReaderOptions describe the pull of a version. All fields are set.
type ReaderOptions struct {
	NodeID    string // of this node
	ContentID string
	Identity  *Identity
	// Sources returns the peers with fresh tokens.
	Sources  func(ctx context.Context) ([]api.Peer, error)
	Excluded *Exclusions
	Logger   *slog.Logger
}

// Reader reads one version from the other nodes that have, or pull, it.
type Reader struct {
	opts ReaderOptions
	hash uint64 // of this node
	end  context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	peers map[string]*peer
	list  []*peer // the same, in any order
}

var _ transfer.Peers = (*Reader)(nil)

// peer is a node that the controller has named. The Reader's mu guards the fields behind source.
type peer struct {
	http *http.Client
	hash uint64 // of its ID
	stop context.CancelFunc

	source   api.Peer
	holding  transfer.Holding
	since    time.Time // when it was first named
	known    bool      // holding is what the peer answered
	notUntil time.Time // it is not used before
	failures int       // of reads, in a row
	failedAt time.Time // when the last of them ended
	refusals int       // the same, while it was not paused
	inFlight int
}

// OpenReader finds the peers of a version, and follows what they have until Close.
func OpenReader(ctx context.Context, o ReaderOptions) *Reader {
	s := &Reader{opts: o, hash: hashOf(o.NodeID), peers: map[string]*peer{}}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	first := make(chan struct{})
	s.work.Go(func() { s.follow(life, first) })
	select {
	case <-first:
	case <-time.After(firstAnswer):
	case <-ctx.Done():
	}
	return s
}

// Close ends all requests. It is called once.
func (s *Reader) Close() {
	s.end()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		p.http.CloseIdleConnections()
	}
}

// follow requests the peers again and again. first is closed when the first ones have answered what they have.
func (s *Reader) follow(ctx context.Context, first chan struct{}) {
	for wait := retry.New(sourcesFirst, sourcesMost); ; {
		sources, err := s.opts.Sources(ctx)
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Debug("requesting peers failed; retrying", "content", s.opts.ContentID, "error", err)
		}
		if err == nil {
			s.setSources(ctx, sources)
		}
		if first != nil {
			s.awaitKnown(ctx)
			close(first)
			first = nil
		}
		if wait.Sleep(ctx) != nil {
			return
		}
	}
}

// awaitKnown waits a little until each peer has answered.
func (s *Reader) awaitKnown(ctx context.Context) {
	for end := time.Now().Add(firstAnswer); time.Now().Before(end); {
		s.mu.Lock()
		waiting := false
		for _, p := range s.peers {
			waiting = waiting || !p.known && p.notUntil.IsZero()
		}
		s.mu.Unlock()
		if !waiting || retry.Sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// setSources takes over the peers that the controller names. Those that it no longer names are not used any more.
func (s *Reader) setSources(ctx context.Context, sources []api.Peer) {
	named := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, source := range sources[:min(len(sources), maxPeers)] {
		if source.NodeID == s.opts.NodeID {
			continue
		}
		named[source.NodeID] = true
		p := s.peers[source.NodeID]
		if p != nil && p.source.Address == source.Address && p.source.Key == source.Key {
			p.source = source
			continue
		}
		if p != nil {
			p.stop()
		}
		life, stop := context.WithCancel(ctx)
		p = &peer{
			http: newClient(s.opts.Identity, source.Key), hash: hashOf(source.NodeID), stop: stop, source: source,
			since: time.Now(),
		}
		s.peers[source.NodeID] = p
		s.work.Go(func() { s.followPeer(life, p) })
	}
	for id, p := range s.peers {
		if !named[id] {
			p.stop()
			p.http.CloseIdleConnections()
			delete(s.peers, id)
		}
	}
	s.list = slices.Collect(maps.Values(s.peers))
}

func newClient(identity *Identity, key string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig: identity.clientTLS(key), TLSHandshakeTimeout: dialTimeout,
			ResponseHeaderTimeout: stallTimeout, MaxIdleConnsPerHost: maxInFlight + 1, IdleConnTimeout: time.Minute,
			DisableCompression: true, Protocols: &protocols, ReadBufferSize: 256 << 10,
		},
	}
}

// followPeer asks a peer what it has, again and again.
func (s *Reader) followPeer(ctx context.Context, p *peer) {
	for {
		limited, cancel := context.WithTimeout(ctx, 2*stallTimeout)
		holding, err := s.requestHolding(limited, p)
		cancel()
		if ctx.Err() != nil {
			return
		}
		wait := holdingEvery
		s.mu.Lock()
		if errors.Is(err, transfer.ErrNotHere) && p.source.Pulling && time.Since(p.since) < openTime {
			err, wait = nil, holdingEvery/5 // it has nothing yet
		}
		p.known = err == nil
		switch {
		case err != nil:
			wait = failureTime / 5
			p.pause(0)
			p.holding = transfer.Holding{}
		case holding.Complete:
			wait = completeEvery
			p.holding = holding
		default:
			p.holding = holding
		}
		s.mu.Unlock()
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// requestHolding asks a peer what it has.
func (s *Reader) requestHolding(ctx context.Context, p *peer) (h transfer.Holding, err error) {
	resp, err := s.request(ctx, p, http.MethodGet, "", nil)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxHoldingBytes))
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(raw, &h)
}

// request sends a request; a response has the status 200.
func (s *Reader) request(ctx context.Context, p *peer, method, path string, body []byte) (*http.Response, error) {
	s.mu.Lock()
	source := p.source
	s.mu.Unlock()
	address := "https://" + source.Address + "/peer/v1/versions/" + s.opts.ContentID + path
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+source.Token)
	resp, err := p.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return nil, errBusy
	case http.StatusNotFound:
		return nil, transfer.ErrNotHere
	}
	return nil, fmt.Errorf("peer %s answered %s: %s", source.NodeID, resp.Status, strings.TrimSpace(string(text)))
}

// findLocked reports whether a peer has a range of a file.
func (s *Reader) findLocked(p *peer, file string, off, end int64, now time.Time) peerqueue.Availability {
	switch {
	case !p.known || now.Before(p.notUntil) || !p.holding.Has(file, off, end) ||
		s.opts.Excluded.Has(p.source.NodeID, now):
		return peerqueue.AtNoPeer
	case p.inFlight >= maxInFlight:
		return peerqueue.AtPeerSoon
	}
	return peerqueue.AtPeer
}

// Find implements transfer.Peers.
func (s *Reader) Find(file string, off, end int64) (best peerqueue.Availability) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.list {
		if best = max(best, s.findLocked(p, file, off, end, now)); best == peerqueue.AtPeer {
			break
		}
	}
	return best
}

// Owns implements transfer.Peers: of the nodes that pull the version, the one with the highest hash owns a part. All of
// them that know each other find the same one. A peer that is busy or has failed owns nothing until it is used again.
func (s *Reader) Owns(file string, off int64) bool {
	part := mix(hashOf(file) + uint64(off/ownUnit))
	own, now := mix(s.hash^part), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.list {
		if p.source.Pulling && p.known && !p.holding.Complete && !now.Before(p.notUntil) && mix(p.hash^part) > own &&
			!s.opts.Excluded.Has(p.source.NodeID, now) {
			return false
		}
	}
	return true
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text)
	return h.Sum64()
}

// mix spreads the bits of a hash.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// limitsOf returns how long the response to a read takes at most of a peer that is not slow, and how long the reader
// waits for it. What takes twice as long as from the registry is better read there.
func limitsOf(r transfer.PeerRead) (slow, most time.Duration) {
	slow = min(max(slowTime, 2*r.RegistryTime), readTimeout)
	return slow, max(slow, requestTime)
}

// Read implements transfer.Peers.
func (s *Reader) Read(ctx context.Context, r transfer.PeerRead, b []byte, check func([]byte) error) error {
	p := s.choose(r.File, r.Runs)
	if p == nil {
		return transfer.ErrNoPeer
	}
	slow, most := limitsOf(r)
	begun, wrong := time.Now(), false
	took := func() time.Duration { return time.Since(begun) }
	limited, cancel := context.WithTimeout(ctx, most)
	err := s.readFrom(limited, p, r, b)
	cancel()
	if err == nil {
		err = check(b)
		wrong = err != nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.inFlight--
	switch {
	case wrong:
		s.opts.Excluded.Note(time.Now(), p.source.NodeID)
		s.opts.Logger.Warn("a peer sent wrong bytes of a version; it is not used for 10 minutes", "peer",
			p.source.NodeID, "address", p.source.Address, "content", s.opts.ContentID, "error", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded): // a guest waits, and had no time for it
		p.refuse()
	case ctx.Err() != nil:
	case err == nil && took() <= slow:
		p.failures, p.refusals = 0, 0
	case err == nil: // right bytes do not exclude it, nor do slow ones end a series of failures
		p.pause(failureTime)
	case errors.Is(err, errBusy), errors.Is(err, transfer.ErrNotHere):
		if errors.Is(err, transfer.ErrNotHere) {
			p.known = false // until it answers what it has now
		}
		if took() > slowRefusal {
			p.fail(begun)
		} else {
			p.refuse()
		}
	default:
		p.fail(begun)
		s.opts.Logger.Info("reading a version from a peer failed", "peer", p.source.NodeID, "address",
			p.source.Address, "error", err)
	}
	return err
}

// refuse pauses a peer that refused a read, longer each time in a row. Reads that ran at the same time count as one.
func (p *peer) refuse() {
	if time.Now().Before(p.notUntil) {
		return
	}
	p.pause(min(busyTime<<p.refusals, maxBusyTime))
	p.refusals = min(p.refusals+1, 8)
}

// fail pauses a peer that failed, or was slow to refuse, for long when it does so again and again. Reads that ran at
// the same time count as one.
func (p *peer) fail(begun time.Time) {
	p.pause(failureTime)
	if begun.Before(p.failedAt) {
		return
	}
	p.failedAt = time.Now()
	if p.failures++; p.failures >= maxFailures {
		p.failures = 0
		p.pause(ExclusionTime)
	}
}

// pause has a peer not used for some time.
func (p *peer) pause(d time.Duration) {
	if until := time.Now().Add(d); until.After(p.notUntil) {
		p.notUntil = until
	}
}

// choose chooses the least used of the peers that have ranges of a file; nil: none has.
func (s *Reader) choose(file string, runs []blob.Run) (chosen *peer) {
	off, end := runs[0].Off, runs[len(runs)-1].Off+runs[len(runs)-1].Len
	s.mu.Lock()
	defer s.mu.Unlock()
	now, equal := time.Now(), 0
	for _, p := range s.list {
		if s.findLocked(p, file, off, end, now) != peerqueue.AtPeer || chosen != nil && p.inFlight > chosen.inFlight {
			continue
		}
		if chosen == nil || p.inFlight < chosen.inFlight {
			equal = 0
		}
		equal++
		if rand.IntN(equal) == 0 { //nolint:gosec // not a secret: it spreads requests
			chosen = p
		}
	}
	if chosen != nil {
		chosen.inFlight++
	}
	return chosen
}

// readFrom reads ranges from a peer. It ends when no byte comes for stallTimeout.
func (s *Reader) readFrom(ctx context.Context, p *peer, r transfer.PeerRead, b []byte) error {
	in := readRequest{File: r.File}
	for _, run := range r.Runs {
		in.Runs = append(in.Runs, [2]int64{run.Off, run.Len})
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(dialTimeout+stallTimeout, cancel)
	defer stalled.Stop()
	resp, err := s.request(ctx, p, http.MethodPost, "/read", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.ContentLength >= 0 && resp.ContentLength != int64(len(b)) {
		return fmt.Errorf("%d bytes instead of %d", resp.ContentLength, len(b))
	}
	for len(b) > 0 {
		stalled.Reset(stallTimeout)
		n, err := resp.Body.Read(b)
		if b = b[n:]; err != nil && len(b) > 0 {
			return fmt.Errorf("response of the peer: %w", err)
		}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1)) // so that the connection is used again
	return nil
}
