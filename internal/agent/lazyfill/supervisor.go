package lazyfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	watchEvery = 200 * time.Millisecond
	// maxStartFailures is how often in a row the process cannot be started before the pull fails.
	maxStartFailures = 5
	tokenEvery       = time.Second
	endWait          = 15 * time.Second // for a process that was told to end; it is killed then
	lockPoll         = 20 * time.Millisecond
	peersFirst       = time.Second // between two requests for peers, doubled each time
	peersMost        = 30 * time.Second
)

// SupervisorOptions describe the process that a Supervisor keeps running.
type SupervisorOptions struct {
	Dir     string // of the process
	Order   Order
	Program Program
	// Token returns the value of the Authorization header for the registry; "": none. refused: the registry refused the
	// last one.
	Token func(ctx context.Context, last string, refused bool) (string, error)
	// Peers returns other nodes that have, or pull, the version, except those that have sent wrong bytes; nil: none is
	// used.
	Peers  func(ctx context.Context, excluded []string) ([]api.Peer, error)
	Logger *slog.Logger
}

// Supervisor keeps the process of a version running: it starts it again when it ends, and hands over tokens. It may be
// used from many goroutines.
type Supervisor struct {
	opts SupervisorOptions

	mu      sync.Mutex    // guards the fields below
	handle  *Handle       // of the process that answered last; nil: none has yet
	state   State         // of the last answer
	changed chan struct{} // closed at the next answer
}

// NewSupervisor returns a supervisor. Run drives it.
func NewSupervisor(o SupervisorOptions) *Supervisor {
	return &Supervisor{opts: o, changed: make(chan struct{})}
}

// Run supervises until the context ends. The process does not end by that.
func (s *Supervisor) Run(ctx context.Context) {
	wait, failures := retry.New(minBackoff, maxBackoff), 0
	for ctx.Err() == nil {
		h, err := Start(ctx, s.opts.Dir, s.opts.Order, s.opts.Program)
		if err == nil {
			wait.Reset()
			failures = 0
			s.watch(ctx, h)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.opts.Logger.Error("starting the process that fills a version failed; retrying", "content",
			s.opts.Order.ContentID, "error", err)
		if failures++; failures >= maxStartFailures {
			s.fail(err)
		}
		_ = wait.Sleep(ctx)
	}
}

// fail makes the pull fail because its process cannot be started.
func (s *Supervisor) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle, s.state.Phase, s.state.Error = nil, Failed, err.Error()
	s.notifyLocked()
}

// notifyLocked wakes who waits for the next state.
func (s *Supervisor) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch asks a process for its state until it no longer answers.
func (s *Supervisor) watch(ctx context.Context, h *Handle) {
	ctx, cancel := context.WithCancel(ctx)
	var tokens sync.WaitGroup
	defer tokens.Wait()
	defer cancel()
	tokens.Go(func() { s.sendTokens(ctx, h) })
	if s.opts.Peers != nil {
		tokens.Go(func() { s.sendPeers(ctx, h) })
	}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		state, err := h.State(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.opts.Logger.Warn("the process that fills a version does not answer; it is started again", "content",
					s.opts.Order.ContentID, "error", err)
			}
			return
		}
		s.mu.Lock()
		if state.Phase == Opening {
			state.Disks = s.state.Disks // what is here is not known yet, and not less than before
		}
		s.handle, s.state = h, state
		s.notifyLocked()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sendTokens hands over tokens as they change.
func (s *Supervisor) sendTokens(ctx context.Context, h *Handle) {
	sent, isSent := "", false
	for {
		header, err := s.opts.Token(ctx, sent, isSent && s.State().Unauthorized)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				s.opts.Logger.Warn("no token for the process that fills a version", "content",
					s.opts.Order.ContentID, "error", err)
			}
		case !isSent || header != sent:
			if err := h.SetToken(ctx, header); err == nil {
				sent, isSent = header, true
			}
		}
		if retry.Sleep(ctx, tokenEvery) != nil {
			return
		}
	}
}

// sendPeers hands over other nodes until the context ends, often in the beginning, when others may begin to pull too.
func (s *Supervisor) sendPeers(ctx context.Context, h *Handle) {
	for wait := retry.New(peersFirst, peersMost); ; {
		sources, err := s.opts.Peers(ctx, s.State().Excluded)
		if err == nil {
			err = h.SetPeers(ctx, sources)
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Debug("no peers for the process that fills a version; retrying", "content",
				s.opts.Order.ContentID, "error", err)
		}
		if wait.Sleep(ctx) != nil {
			return
		}
	}
}

// Holding is Handle.Holding.
func (s *Supervisor) Holding(ctx context.Context) (transfer.Holding, error) {
	h := s.current()
	if h == nil {
		return transfer.Holding{}, transfer.ErrNotHere
	}
	return h.Holding(ctx)
}

// OpenRuns is Handle.OpenRuns.
func (s *Supervisor) OpenRuns(ctx context.Context, file string, runs []blob.Run) (io.ReadCloser, error) {
	h := s.current()
	if h == nil {
		return nil, transfer.ErrNotHere
	}
	return h.OpenRuns(ctx, file, runs)
}

// State returns the last known state; the zero State before the first answer.
func (s *Supervisor) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Next waits for the next answer of the process and returns it.
func (s *Supervisor) Next(ctx context.Context) (State, error) {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	select {
	case <-changed:
		return s.State(), nil
	case <-ctx.Done():
		return State{}, context.Cause(ctx)
	}
}

// Serve opens the sockets of a VM, as Handle.Serve. It waits while the process is started again.
func (s *Supervisor) Serve(ctx context.Context, vm, processFile string) (sockets map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err = errors.New("the process that fills the version does not answer")
	for {
		if h := s.current(); h != nil {
			if sockets, err = h.Serve(ctx, vm, processFile); err == nil {
				return sockets, nil
			}
		}
		if state, ended := s.Next(ctx); ended != nil || state.Phase == Failed {
			return nil, err
		}
	}
}

// Release closes the sockets of a VM, as Handle.Release. A process that cannot be started has none.
func (s *Supervisor) Release(ctx context.Context, vm string) error {
	if h := s.current(); h != nil {
		return h.Release(ctx, vm)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.VMs = maps.Clone(s.state.VMs)
	delete(s.state.VMs, vm)
	return nil
}

// MarkBooted is Handle.MarkBooted.
func (s *Supervisor) MarkBooted(ctx context.Context) error {
	h := s.current()
	if h == nil {
		return errors.New("the process that fills the version does not answer")
	}
	return h.MarkBooted(ctx)
}

func (s *Supervisor) current() *Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handle
}

// EndProcess ends the process of a directory, if it runs, and waits until it has ended. Nothing supervises it any more.
// The sockets of its VMs are removed, also where it was killed.
func EndProcess(ctx context.Context, dir string) error {
	h, order, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // none was started
	}
	if err != nil {
		return err
	}
	if err := h.awaitEnd(ctx, dir); err != nil {
		return err
	}
	return removeSockets(dir, order)
}

// removeSockets removes the sockets that a process has made. None runs.
func removeSockets(dir string, o Order) error {
	served := map[string]VM{}
	if err := readJSON(filepath.Join(dir, servedFile), &served); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := []string{controlPath(o)}
	for _, vm := range served {
		for _, path := range vm.Sockets {
			if filepath.Dir(path) == filepath.Clean(o.SocketDir) {
				paths = append(paths, path)
			}
		}
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// awaitEnd ends the process and waits until it has ended.
func (h *Handle) awaitEnd(ctx context.Context, dir string) error {
	path := filepath.Join(dir, lockFile)
	asked, killed := time.Now(), false
	for {
		owner, err := cliproc.LockOwner(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && owner == 0:
			return nil
		case err != nil:
			return err
		case !killed && time.Since(asked) > endWait:
			killed = true
			if p, err := cliproc.Find(owner); err == nil {
				if err := p.Kill(); err != nil {
					return fmt.Errorf("end the process that fills a version: %w", err)
				}
			}
		case !killed:
			_ = h.End(ctx) // the lock tells whether it did
		}
		if err := retry.Sleep(ctx, lockPoll); err != nil {
			return err
		}
	}
}
