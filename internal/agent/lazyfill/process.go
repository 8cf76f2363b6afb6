package lazyfill

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/nbd"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	minBackoff = 200 * time.Millisecond // between two attempts to begin a pull
	maxBackoff = 10 * time.Second
	lockTime   = 5 * time.Second // for a process that ends
	// sourcesTime is for the agent to name other nodes before the registry is used alone.
	sourcesTime = 500 * time.Millisecond
	// traceTime is for how long after a boot reads belong to its trace, and traceTimeout how long sending one may take.
	traceTime    = 30 * time.Second
	traceTimeout = 10 * time.Second
)

// process is the process of a version.
type process struct {
	dir   string
	order Order // fixed
	token *token
	log   *slog.Logger
	end   context.CancelFunc // ends the process

	booted     chan struct{} // closed when a VM has booted
	bootedOnce sync.Once
	unused     chan struct{} // closed when no VM is left of those that were added
	unusedOnce sync.Once
	background sync.WaitGroup // of what waits for the first boot

	sources  atomic.Pointer[[]api.Peer] // other nodes, by the agent; nil: none yet
	excluded peers.Exclusions
	partial  atomic.Pointer[transfer.Partial] // what other nodes may read; nil: nothing yet

	vmsMu sync.Mutex // held while the sockets of a VM are opened or closed, until that is in servedFile; before mu

	mu        sync.Mutex // guards the fields below
	phase     Phase
	failure   error
	problem   error     // why fetches fail now
	waiting   time.Time // since when
	progress  transfer.Progress
	pull      *transfer.LazyPull  // nil until it is open
	fetched   int64               // bytes from the registry by this process
	peerBytes int64               // bytes from other nodes by this process
	finished  map[string]File     // of a complete version, by their names
	disks     map[string]nbd.Disk // by their names; nil until they can be served
	vms       map[string]*servedVM
	stopped   bool           // no VM is served any more
	serving   sync.WaitGroup // of connections
}

// Main is the process of the directory. It returns when the context ends or the agent ends it.
func Main(ctx context.Context, dir string, log *slog.Logger) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	p := &process{
		dir: dir, token: newToken(), log: log, end: end, phase: Opening, vms: map[string]*servedVM{},
		booted: make(chan struct{}), unused: make(chan struct{}),
	}
	lock, err := takeLock(ctx, dir)
	if err != nil {
		return fmt.Errorf("fill %s: %w", dir, err)
	}
	defer lock.Close()
	if err := readJSON(filepath.Join(dir, orderFile), &p.order); err != nil {
		return err
	}
	if err := p.order.validate(); err != nil {
		return err
	}
	served := map[string]VM{}
	if err := readJSON(filepath.Join(dir, servedFile), &served); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for id, vm := range served {
		if err := p.addVM(ctx, id, vm); err != nil {
			return err
		}
	}
	control, err := p.listenControl()
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	parts.Go(func() { p.serveControl(ctx, control) })
	parts.Go(func() {
		if err := p.fill(ctx); err != nil && ctx.Err() == nil {
			log.Error("filling a version failed", "content", p.order.ContentID, "error", err)
			p.setFailure(err)
		}
	})
	<-ctx.Done()
	p.stop()
	parts.Wait()
	p.background.Wait()
	if p.pull != nil {
		return p.pull.Close()
	}
	return nil
}

// takeLock locks the directory for this process. It waits for one that ends.
func takeLock(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockTime); ; {
		lock, err := cliproc.TakeLock(path)
		if !errors.Is(err, cliproc.ErrLocked) || time.Now().After(end) || ctx.Err() != nil {
			return lock, err
		}
		time.Sleep(processPoll)
	}
}

// fill makes the disks readable, and then all of the version present.
func (p *process) fill(ctx context.Context) error {
	if len(p.order.Finished) > 0 {
		return p.openFinished()
	}
	client, err := p.registry()
	if err != nil {
		return err
	}
	defer client.Close()
	others, end, err := p.openPeers(ctx)
	if err != nil {
		return err
	}
	defer end()
	follows := p.followsKilled()
	pull, err := p.open(ctx, client, transfer.LazyOptions{
		PullOptions: transfer.PullOptions{Peers: others, OnPartial: p.partial.Store},
		HoldRest:    p.order.BootTime > 0 && !follows,
	})
	if err != nil {
		return err
	}
	disks := map[string]nbd.Disk{}
	for name, d := range pull.Disks() {
		disks[name] = d
	}
	if err := p.addCompleteDisks(disks); err != nil {
		return err
	}
	complete := make(chan struct{})
	if !follows {
		p.traceBoot(ctx, pull, complete)
		p.releaseRest(ctx, pull)
	}
	p.setDisks(Serving, pull, disks)
	wait := retry.New(minBackoff, maxBackoff)
	result, err := pull.Run(ctx)
	for ; farm.CodeOf(err) == farm.CodeUnauthenticated && p.pause(ctx, wait, err) == nil; result, err = pull.Run(ctx) {
	}
	p.mu.Lock()
	p.fetched, p.peerBytes = result.TransferredBytes, result.PeerBytes
	p.mu.Unlock()
	if err != nil {
		return err
	}
	close(complete)
	p.finish(result)
	return nil
}

// followsKilled reports whether this process follows a killed one: it does not know what VMs read before, nor whether
// they have booted.
func (p *process) followsKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.vms) > 0
}

// traceBoot sends the registry what VMs read until traceTime after the first boot, or until all is here.
func (p *process) traceBoot(ctx context.Context, pull *transfer.LazyPull, complete <-chan struct{}) {
	p.background.Go(func() {
		select {
		case <-p.booted:
		case <-complete:
			return
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(traceTime):
		case <-complete:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
		defer cancel()
		if err := pull.SendTrace(limited); err != nil {
			p.log.Warn("sending what a boot read failed", "content", p.order.ContentID, "error", err)
		}
	})
}

// releaseRest has the rest pulled once a VM has booted or has had the time for it, or the last one has ended.
func (p *process) releaseRest(ctx context.Context, pull *transfer.LazyPull) {
	limit, cancel := context.WithTimeout(ctx, p.order.BootTime)
	p.background.Go(func() {
		defer cancel()
		select {
		case <-p.booted:
		case <-p.unused:
		case <-limit.Done():
		}
		pull.ReleaseRest()
	})
}

// addCompleteDisks adds the disks that VMs read from an earlier process and that the pull does not serve, since they
// are complete.
func (p *process) addCompleteDisks(disks map[string]nbd.Disk) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, vm := range p.vms {
		for name := range vm.Sockets {
			if disks[name] != nil {
				continue
			}
			d, err := openFileDisk(filepath.Join(p.order.Dir, name))
			if err != nil {
				return err
			}
			disks[name] = d
		}
	}
	return nil
}

// registry returns the client of the order's registry.
func (p *process) registry() (*transfer.Client, error) {
	files := p.order.TLS
	config, err := clienttls.Config(clienttls.Options{
		CAFile: files.CAFile, CertFile: files.CertFile, KeyFile: files.KeyFile, SkipVerify: files.SkipVerify,
	})
	if err != nil {
		return nil, err
	}
	if p.order.AnnouncedCA != "" {
		if config.RootCAs == nil {
			if config.RootCAs, err = x509.SystemCertPool(); err != nil {
				config.RootCAs = x509.NewCertPool() // a system without authorities
			}
		}
		config.RootCAs.AppendCertsFromPEM([]byte(p.order.AnnouncedCA))
	}
	return transfer.New(transfer.Options{
		BaseURL: p.order.Registry, Mirror: p.order.Mirror, TLS: config, Authorize: p.token.authorize,
		RenewCredentials: p.token.renew, Logger: p.log,
	})
}

// openPeers finds the other nodes that have, or pull, the version; nil: none is used.
func (p *process) openPeers(ctx context.Context) (transfer.Peers, func(), error) {
	if p.order.PeerFile == "" {
		return nil, func() {}, nil
	}
	identity, err := peers.LoadIdentity(p.order.PeerFile)
	if err != nil {
		return nil, nil, err
	}
	others := peers.OpenReader(ctx, peers.ReaderOptions{
		NodeID: p.order.NodeID, ContentID: p.order.ContentID, Identity: identity, Excluded: &p.excluded,
		Sources: func(ctx context.Context) ([]api.Peer, error) {
			p.awaitSources(ctx)
			if sources := p.sources.Load(); sources != nil {
				return *sources, nil
			}
			return nil, errors.New("the agent has named none yet")
		},
		Logger: p.log,
	})
	return others, others.Close, nil
}

// awaitSources waits a little until the agent has named other nodes for the first time.
func (p *process) awaitSources(ctx context.Context) {
	for end := time.Now().Add(sourcesTime); p.sources.Load() == nil && time.Now().Before(end); {
		if retry.Sleep(ctx, processPoll) != nil {
			return
		}
	}
}

// open opens the pull. It tries again while the registry cannot be reached.
func (p *process) open(
	ctx context.Context, client *transfer.Client, o transfer.LazyOptions,
) (*transfer.LazyPull, error) {
	o.Ref, o.Dir, o.Progress, o.MinBytes, o.Waiting = p.order.ref(), p.order.Dir, p.setProgress, p.order.MinBytes,
		p.setProblem
	o.Complete = p.writeFinished
	wait := retry.New(minBackoff, maxBackoff)
	for {
		pull, err := client.OpenLazyPull(ctx, o)
		passes := transfer.IsTemporary(err) || farm.CodeOf(err) == farm.CodeUnauthenticated
		if err == nil || ctx.Err() != nil || !passes {
			p.setProblem(nil)
			return pull, err
		}
		if err := p.pause(ctx, wait, err); err != nil {
			return nil, err
		}
	}
}

// pause waits before the next attempt, after a failure that may pass.
func (p *process) pause(ctx context.Context, wait *retry.Backoff, failure error) error {
	p.setProblem(failure)
	if farm.CodeOf(failure) == farm.CodeUnauthenticated {
		p.token.refuse()
	}
	return wait.Sleep(ctx)
}

// openFinished serves the disks of a version of which all is here.
func (p *process) openFinished() error {
	disks := map[string]nbd.Disk{}
	for name := range p.order.Finished {
		if err := transfer.RemoveJournal(filepath.Join(p.order.Dir, name)); err != nil {
			return err
		}
		d, err := openFileDisk(filepath.Join(p.order.Dir, name))
		if err != nil {
			return err
		}
		disks[name] = d
	}
	p.mu.Lock()
	p.finished = p.order.Finished
	p.mu.Unlock()
	p.setDisks(Complete, nil, disks)
	return nil
}

// writeFinished notes in the order that all is here: a process that follows this one needs no registry.
func (p *process) writeFinished(result transfer.PullResult) error {
	o := p.order
	o.Finished = filesOf(result)
	return writeJSON(p.dir, orderFile, o)
}

func (p *process) finish(result transfer.PullResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = filesOf(result)
	p.phase, p.waiting, p.problem = Complete, time.Time{}, nil
	p.log.Info("all of a version is here", "content", p.order.ContentID, "bytes", result.TransferredBytes)
}

func (p *process) setDisks(phase Phase, pull *transfer.LazyPull, disks map[string]nbd.Disk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.pull, p.disks = phase, pull, disks
	for _, vm := range p.vms {
		vm.open(disks)
	}
}

func (p *process) setProgress(now transfer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = now
}

// setProblem notes why fetches fail; nil: they do not.
func (p *process) setProblem(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem = err
	switch {
	case err == nil:
		p.waiting = time.Time{}
	case p.waiting.IsZero():
		p.waiting = time.Now()
	}
}

func (p *process) setFailure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.failure = Failed, err
}
