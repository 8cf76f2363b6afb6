package update

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/release"
	"github.com/buildyard/buildyard/internal/retry"
)

// proveTime is how long a new agent has to reach its controller.
const proveTime = 2 * time.Minute

// Options configure an Updater.
type Options struct {
	Home      datadir.Dir
	Identity  datadir.Identity
	Transport http.RoundTripper // to the controller
	Version   string            // of this program
	Path      string            // its file
	Keys      string            // file of the trusted public keys; "": the one in the data directory
	Logger    *slog.Logger

	AllowDowngrade bool // the node's owner lets the controller request a version older than this one

	Ask    func(ctx context.Context, path string) (version string, err error) // returns the version of a program
	Become func(path string) error                                            // does not return on success
}

// Updater replaces this process by another version of itself on request. It is created and closed
// with its agent.
type Updater struct {
	o      Options
	log    *slog.Logger
	ready  chan struct{} // has a value when a version is ready to run
	life   context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	state  state      // as on disk
	status *api.UpdateStatus
	stop   context.CancelFunc // of the running update; nil: none
	next   string             // version that is ready to run
}

// New returns an updater for the running program, and starts its trial if it is on trial.
func New(o Options) *Updater {
	s, err := load(o.Home)
	if err != nil {
		o.Logger.Error("the unreadable update state is replaced by a new one", "error", err)
	}
	if s.Base == "" {
		s = state{Base: o.Version, BasePath: o.Path}
	}
	if o.Keys == "" {
		o.Keys = o.Home.UpdateKeys()
	}
	u := &Updater{o: o, log: o.Logger, ready: make(chan struct{}, 1), state: s}
	u.life, u.cancel = context.WithCancel(context.Background())
	if s.Failure != nil {
		u.status = &api.UpdateStatus{ID: s.Failure.ID, Stage: api.UpdateFailed, Message: s.Failure.Message}
	}
	if u.onTrialLocked() {
		u.work.Go(u.confirmOrRollBack)
	}
	return u
}

// Close ends the running update. Downloaded bytes are kept.
func (u *Updater) Close() error {
	u.cancel()
	u.work.Wait()
	return nil
}

// onTrialLocked reports whether this program has to prove itself.
func (u *Updater) onTrialLocked() bool {
	return u.state.Trial != nil && u.state.Trial.Version == u.o.Version && installed(u.o.Home, u.o.Path)
}

// OnTrial reports whether this program still has to prove itself.
func (u *Updater) OnTrial() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.onTrialLocked()
}

// Ready has a value when a version is ready to replace this process: see Swap.
func (u *Updater) Ready() <-chan struct{} { return u.ready }

// Status returns the status to report to the controller; nil for none.
func (u *Updater) Status() *api.UpdateStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

// setStatus replaces the status of the current update.
func (u *Updater) setStatus(id string, stage api.UpdateStage, progress float64, message string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status != nil && u.status.ID == id {
		u.status = &api.UpdateStatus{ID: id, Stage: stage, Progress: progress, Message: message}
	}
}

// Waits records the work that has to end before this process may be replaced.
func (u *Updater) Waits(work string) {
	if s := u.Status(); s != nil {
		u.setStatus(s.ID, api.UpdateWaiting, 1, work)
	}
}

// HandleUpdate receives the update in the controller's response to a poll; nil for none. A response proves
// that a new agent works.
func (u *Updater) HandleUpdate(asked *api.AgentUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.onTrialLocked() {
		u.acceptLocked()
	}
	if asked != nil && asked.Package.Version == u.o.Version {
		asked = nil // this program is that version; the controller has not received it yet
	}
	switch {
	case asked == nil && u.status != nil:
		u.endLocked()
		u.status = nil
		if u.state.Failure != nil {
			u.state.Failure = nil
			u.saveLocked()
		}
	case asked != nil && (u.status == nil || u.status.ID != asked.ID):
		u.endLocked()
		u.status = &api.UpdateStatus{ID: asked.ID, Stage: api.UpdateLoading}
		ctx, cancel := context.WithCancel(u.life)
		u.stop = cancel
		u.work.Go(func() { u.prepare(ctx, *asked) })
	}
}

// endLocked ends the running update.
func (u *Updater) endLocked() {
	if u.stop != nil {
		u.stop()
	}
	u.stop, u.next = nil, ""
	select {
	case <-u.ready:
	default:
	}
}

// acceptLocked ends the trial of this program: it works.
func (u *Updater) acceptLocked() {
	u.state = u.state.confirmed()
	u.saveLocked()
	u.log.Info("new agent version confirmed", "version", u.o.Version)
}

func (u *Updater) saveLocked() {
	if err := u.state.save(u.o.Home); err != nil {
		u.log.Error("writing the update state failed", "error", err)
	}
}

// prune removes versions, and incomplete ones.
func (u *Updater) prune(keep []string) {
	list, err := os.ReadDir(u.o.Home.Versions())
	if err != nil {
		return
	}
	for _, e := range list {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(u.o.Home.Versions(), e.Name())); err != nil {
			u.log.Warn("removing an old agent version failed", "version", e.Name(), "error", err)
		}
	}
}

// confirmOrRollBack waits until this program has reached its controller. Otherwise it rolls back to the
// previous program.
func (u *Updater) confirmOrRollBack() {
	if retry.Sleep(u.life, proveTime) != nil || !u.OnTrial() {
		return
	}
	if err := u.Rollback(fmt.Sprintf("the new agent did not reach the controller within %s", proveTime)); err != nil {
		u.log.Error("starting the previous agent failed; this one continues", "error", err)
	}
}

// Rollback returns to the program that ran before the one on trial. It returns only on failure, and
// then this program stays.
func (u *Updater) Rollback(why string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.onTrialLocked() {
		return errors.New("this agent version is already confirmed; it cannot be rolled back")
	}
	file := u.state.BasePath
	if u.state.Good != "" {
		file = programAt(u.o.Home, u.state.Good)
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	s := u.state.failed(why)
	if err := s.save(u.o.Home); err != nil {
		return err
	}
	u.log.Error("new agent version does not work; starting the previous one", "version", u.o.Version,
		"reason", why, "back", file)
	err := u.o.Become(file)
	u.state.Trial, u.state.Failure = nil, nil
	u.state.Good = u.o.Version // no other program can run
	u.saveLocked()
	return err
}

// prepare installs the requested version and signals when it is ready.
func (u *Updater) prepare(ctx context.Context, asked api.AgentUpdate) {
	version, err := u.download(ctx, asked)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		u.fail(asked.ID, err)
		return
	}
	u.log.Info("new agent version installed", "version", version)
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	u.next = version
	u.status = &api.UpdateStatus{ID: asked.ID, Stage: api.UpdateWaiting, Progress: 1}
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

// fail ends an update: the agent keeps its version.
func (u *Updater) fail(id string, err error) {
	u.log.Error("agent update failed", "error", err)
	u.setStatus(id, api.UpdateFailed, 0, err.Error())
}

// GiveUp abandons the update that is ready.
func (u *Updater) GiveUp(why string) {
	u.mu.Lock()
	u.endLocked()
	s := u.status
	u.mu.Unlock()
	if s != nil {
		u.fail(s.ID, errors.New(why))
	}
}

// download downloads, verifies and unpacks a version, and asks it for its version.
func (u *Updater) download(ctx context.Context, asked api.AgentUpdate) (version string, err error) {
	p, err := u.verifyPackage(asked)
	if err != nil {
		return "", err
	}
	dir := u.o.Home.Versions()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if free, _, err := host.Disk(dir); err == nil && free < unpacked*p.Size {
		return "",
			fmt.Errorf("disk of the node too full: %d bytes free, and a package of %d bytes needs %d times its size",
				free, p.Size, unpacked)
	}
	u.prune([]string{u.o.Version, u.known().Good, u.known().Before, part(p)})
	file := filepath.Join(dir, part(p))
	from := source{
		http: u.o.Transport, base: u.o.Identity.Controller, node: u.o.Identity.NodeID,
		password: u.o.Identity.Credential,
	}
	err = from.fetch(ctx, p, file, func(have int64) {
		u.setStatus(asked.ID, api.UpdateLoading, float64(have)/float64(p.Size), "")
	})
	if err != nil {
		return "", err
	}
	if err := u.install(ctx, p, file); err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	return p.Version, os.Remove(file)
}

// unpacked is the disk space of an update, as a multiple of its package's size.
const unpacked = 5

// part returns the name of the file into which a package is downloaded.
func part(p api.AgentPackage) string { return "." + p.SHA256 + ".part" }

func (u *Updater) known() state {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// verifyPackage returns the signed statement about the package, if a trusted key signed it and this node may
// install it.
func (u *Updater) verifyPackage(asked api.AgentUpdate) (p api.AgentPackage, err error) {
	raw, err := os.ReadFile(u.o.Keys)
	if err != nil {
		return p,
			fmt.Errorf("no trusted key for agent packages (%w); add one with: buildnode join --update-key",
				err)
	}
	trust, err := license.ParseTrust(raw)
	if err != nil {
		return p, fmt.Errorf("%s: %w", u.o.Keys, err)
	}
	if p, err = release.Verify(trust, asked.Package.Signed); err != nil {
		return p, fmt.Errorf("verify agent package: %w", err)
	}
	switch here := (release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}); {
	case p.OS != here.OS || p.Arch != here.Arch:
		return p, fmt.Errorf("the agent package is for %s/%s, and this node is %s", p.OS, p.Arch, here)
	case farm.OlderVersion(p.Version, u.o.Version) && asked.Force && !u.o.AllowDowngrade:
		return p,
			fmt.Errorf(
				"%s is older than the agent (%s), and the owner of this node does not allow that: run it with "+
					"--allow-downgrade", p.Version, u.o.Version)
	case farm.OlderVersion(p.Version, u.o.Version) && !asked.Force:
		return p, fmt.Errorf("agent package %s is older than the running agent %s; allow older versions to install it",
			p.Version,
			u.o.Version)
	}
	return p, nil
}

// install unpacks a package into the directory of its version, completely or not at all.
func (u *Updater) install(ctx context.Context, p api.AgentPackage, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	dir, err := os.MkdirTemp(u.o.Home.Versions(), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := errors.Join(unpack(f, dir), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	said, err := u.o.Ask(ctx, filepath.Join(dir, programName))
	if err != nil {
		return fmt.Errorf("the program in the package does not run on this node: %w", err)
	}
	if said != p.Version {
		return fmt.Errorf("the program in the package is version %s, not %s", said, p.Version)
	}
	to := filepath.Join(u.o.Home.Versions(), p.Version)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return datadir.SyncDir(u.o.Home.Versions())
}

// ReplaceProcess replaces this process by the version that is ready. It returns only on failure; then this
// program continues, and the controller receives the reason.
func (u *Updater) ReplaceProcess() error {
	u.mu.Lock()
	version, status := u.next, u.status
	if version == "" || status == nil {
		u.mu.Unlock()
		return errors.New("no agent update is ready")
	}
	before := u.state
	u.state = u.state.try(status.ID, version)
	err := u.state.save(u.o.Home)
	if err == nil {
		u.log.Info("agent update started", "version", version, "was", u.o.Version)
		err = u.o.Become(programAt(u.o.Home, version))
	}
	u.state = before
	u.state.Failure = &failure{status.ID, err.Error()}
	u.saveLocked()
	u.mu.Unlock()
	u.GiveUp(err.Error())
	return err
}
