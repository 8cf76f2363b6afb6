package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	memberName   = "buildyard"
	startTimeout = 60 * time.Second // a big database after a crash takes a while

	defaultQuotaBytes = 8 << 30 // the most etcd suggests; its default of 2 GiB stops all writes on a busy day
	maxRequestBytes   = 8 << 20
	maxTxnOps         = 1024
	compactPeriod     = 5 * time.Minute
	slowWarning       = time.Second
	// A single member sends no heartbeats and loses no election: a tick only wakes the process. The
	// election time is also a lower bound of leases, at 1.5 times its value.
	tickMs, electionMs = 250, 1250
	// A transaction of the group committer makes a raft entry of 100 KiB and more. After a restart
	// etcd has all entries since the last snapshot in memory, and later some hundred more for
	// members that lag, of which a store with one member has none.
	snapshotCount  = 100
	catchUpEntries = 10
	storeDirMode   = 0o700
)

// MemberSubdir is where the directory of an embedded member has etcd's own files.
const MemberSubdir = "etcd"

// EmbeddedOptions configures the embedded member.
type EmbeddedOptions struct {
	Dir        string       // data directory, created if missing; one process at a time
	Logger     *slog.Logger // warnings and errors of etcd; nil: silent
	QuotaBytes int64        // bytes of the database at which it accepts no more writes; 0: 8 GiB

	minShrinkBytes int64      // empty bytes for which the file is rewritten; 0: minShrinkBytes
	diskGuard      *diskGuard // nil: the disk is not guarded
	noDiskLimits   bool       // for tests: etcd itself meets a full disk

	recoveryPause time.Duration // pause between recoveries of a full database; 0: recoveryPause
}

// StartEmbedded starts a single-member etcd inside this process, without any listener, and returns a
// Backend on it. The directory stays locked until Close, or the end of the process. An error has
// one line with the cause.
func StartEmbedded(ctx context.Context, opts EmbeddedOptions) (*Backend, error) {
	if err := os.MkdirAll(opts.Dir, storeDirMode); err != nil {
		return nil, fmt.Errorf("create store directory: %w", err)
	}
	checksums := readChecksums(opts.Dir)
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(opts.Dir, RestoredSubdir)); err == nil {
		checksums = nil // of a store that is moved aside
	}
	if _, err := finishRestore(opts.Dir); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	began := time.Now()
	if opts.diskGuard, err = newDiskGuard(opts.Dir, opts.Logger, newMemberFailure()); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	if g := opts.diskGuard; opts.noDiskLimits {
		g.refuseBelow, g.resumeAbove, g.reserveSize, g.headroomSize = 0, 0, 0, 0
	}
	if err := resyncFiles(opts.Dir); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	if err := checksums.verify(opts.Dir); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	b, err := startMember(ctx, opts, filepath.Join(opts.Dir, MemberSubdir))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the store in %s: %w", opts.Dir, err), lock.release())
	}
	shut := b.closeResources
	b.closeResources = func() error {
		err := shut()
		if err == nil && b.failure.cause() == nil {
			if err := writeChecksums(opts.Dir); err != nil { // the next start checks the form of the files
				b.maintainer.log.Info("recording the checksums of the store failed", "error", err)
			}
		}
		return errors.Join(err, lock.release())
	}
	if err := b.maintainer.maintain(ctx); err != nil { // before any caller waits for a response
		b.maintainer.log.Warn("maintenance of the store database failed", "error", err)
	}
	b.maintenance.Go(func() { b.maintainer.run(b.ctx, checkInterval) })
	b.maintenance.Go(func() { b.diskGuard.run(b.ctx) })
	b.maintainer.log.Debug("store database opened", "took", time.Since(began))
	return b, nil
}

// startMember starts the member whose files are in dir.
func startMember(ctx context.Context, opts EmbeddedOptions, dir string) (*Backend, error) {
	if err := checkMember(dir); err != nil {
		return nil, err
	}
	f := newMemberFailure()
	if opts.diskGuard != nil {
		f = opts.diskGuard.failure
	}
	cfg := memberConfig(opts, dir)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(memberLogger(opts.Logger, f, opts.diskGuard))
	member, err := startEtcd(cfg, f)
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, member, f); err != nil {
		closeMember(member, f)
		return nil, err
	}
	client := v3client.New(member.Server)
	b := newBackend(client, client, store.DefaultPrefix, opts.Logger)
	b.closeResources = func() error {
		_ = client.Close() // only returns that its context has ended
		closeMember(member, f)
		return nil
	}
	b.failure, b.diskGuard = f, opts.diskGuard
	b.limits = store.Limits{MaxOps: maxTxnOps, MaxBytes: maxRequestBytes / 2}
	b.memberAddrs, b.ownsFile = []string{""}, true
	b.defragMember = func(context.Context, string) error { return member.Server.Defragment() }
	b.maintainer.recoveryPause = cmp.Or(opts.recoveryPause, b.maintainer.recoveryPause)
	b.maintainer.minShrinkBytes = cmp.Or(opts.minShrinkBytes, b.maintainer.minShrinkBytes)
	if err := b.revokeAll(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func memberConfig(opts EmbeddedOptions, dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = dir
	// The client is in process and there are no peers: without any listener, the member cannot be
	// attacked and needs no short socket path. The peer address only names the member in its own
	// membership list; it is never dialed.
	self := url.URL{Scheme: "unix", Host: memberName + ":0"}
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = cfg.InitialClusterFromName(memberName)
	cfg.QuotaBackendBytes = cmp.Or(opts.QuotaBytes, defaultQuotaBytes)
	cfg.MaxRequestBytes = maxRequestBytes
	cfg.MaxTxnOps = maxTxnOps
	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = compactPeriod.String()
	cfg.SnapshotCount = snapshotCount
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.WarningApplyDuration = slowWarning
	cfg.WarningUnaryRequestDuration = slowWarning
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(opts.Logger))
	return cfg
}

// startEtcd starts etcd and converts its panics and faults on damaged files and full disks into
// errors.
func startEtcd(cfg *embed.Config, f *memberFailure) (*embed.Etcd, error) {
	type result struct {
		member *embed.Etcd
		err    error
	}
	started := make(chan result, 1)
	go func() {
		var r result
		f.markStarting(true)
		debug.SetPanicOnFault(true) // of this goroutine
		defer func() {
			switch p := recover().(type) {
			case nil:
			case error:
				r.err = startError(cfg.Dir, p)
			default:
				r.err = startError(cfg.Dir, fmt.Errorf("%v", p))
			}
			f.markStarting(false) // before the caller continues
			started <- r
		}()
		r.member, r.err = embed.StartEtcd(cfg)
	}()
	select {
	case r := <-started:
		return r.member, r.err
	case <-f.ctx.Done():
		return nil, startError(cfg.Dir, f.cause())
	}
}

// startError classifies why etcd cannot start on its files: the disk, or their content. It is one
// line.
func startError(dir string, err error) error {
	if _, io := errors.AsType[*fs.PathError](err); io || isDiskFull(err) {
		return fmt.Errorf("etcd cannot use its files: %w", err)
	}
	return &DamagedError{dir, errors.New(strings.Join(strings.Fields(err.Error()), " "))}
}

// closeMember ends a member. One that has failed cannot be closed: its resources are freed with the
// process.
func closeMember(member *embed.Etcd, f *memberFailure) {
	closed := make(chan struct{})
	go func() {
		member.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-f.ctx.Done():
	}
}

func awaitReady(ctx context.Context, member *embed.Etcd, f *memberFailure) error {
	return awaitStart(ctx, member.Server.ReadyNotify(), member.Server.StopNotify(), member.Err(), f)
}

// awaitStart waits for the first outcome of a start.
func awaitStart(ctx context.Context, ready, stopped <-chan struct{}, ended <-chan error, f *memberFailure) error {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-ready:
		return nil
	case err := <-ended:
		return fmt.Errorf("etcd ended: %w", err)
	case <-stopped:
		return errors.New("etcd stopped while starting")
	case <-f.ctx.Done():
		return f.cause()
	case <-timer.C:
		return fmt.Errorf("etcd is not ready after %s", startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// revokeAll ends the leases of a run that was killed: the directory is ours alone, so no process
// holds them, and waiting for them to expire would stop the scheduler for seconds.
func (b *Backend) revokeAll(ctx context.Context) error {
	lctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := b.client.Leases(lctx)
	if err != nil {
		return fmt.Errorf("%w: list leases of the previous run: %w", store.ErrUnavailable, err)
	}
	for _, l := range held.Leases {
		if err := revokeLease(ctx, b.client, l.ID); err != nil {
			return err
		}
	}
	return nil
}
