package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// trialTimeout is how long a new agent has to reach its controller.
const trialTimeout = 2 * time.Minute

// Options configure an Updater.
type Options struct {
	DataDir     datadir.Dir
	Identity    datadir.Identity
	Transport   http.RoundTripper // to the controller
	Version     string            // of this program
	ProgramPath string            // its file
	KeysFile    string            // file of the trusted public keys; "": the one in the data directory
	Logger      *slog.Logger

	AllowDowngrade bool // the node's owner lets the controller request a version older than this one

	// returns the version of a program
	QueryVersion   func(ctx context.Context, path string) (version string, err error)
	ReplaceProcess func(path string) error // does not return on success
}

// Updater replaces this process by another version of itself on request. It is created and closed
// with its agent.
type Updater struct {
	opts       Options
	log        *slog.Logger
	ready      chan struct{} // has a value when a version is ready to run
	lifetime   context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu           sync.Mutex   // guards the fields below
	state        programState // as on disk
	status       *api.UpdateStatus
	cancelUpdate context.CancelFunc // of the running update; nil: none
	readyVersion string             // version that is ready to run
}

// New returns an updater for the running program, and starts its trial if it is on trial.
func New(o Options) *Updater {
	s, err := loadState(o.DataDir)
	if err != nil {
		o.Logger.Error("the unreadable update state is replaced by a new one", "error", err)
	}
	if s.BaseVersion == "" {
		s = programState{BaseVersion: o.Version, BasePath: o.ProgramPath}
	}
	if o.KeysFile == "" {
		o.KeysFile = o.DataDir.UpdateKeysFile()
	}
	u := &Updater{opts: o, log: o.Logger, ready: make(chan struct{}, 1), state: s}
	u.lifetime, u.cancel = context.WithCancel(context.Background())
	if s.Failure != nil {
		u.status = &api.UpdateStatus{ID: s.Failure.UpdateID, Stage: api.UpdateFailed, Message: s.Failure.Message}
	}
	if u.onTrialLocked() {
		u.goroutines.Go(u.confirmOrRollBack)
	}
	return u
}

// Close ends the running update. Downloaded bytes are kept.
func (u *Updater) Close() error {
	u.cancel()
	u.goroutines.Wait()
	return nil
}

// onTrialLocked reports whether this program has to prove itself.
func (u *Updater) onTrialLocked() bool {
	return u.state.Trial != nil && u.state.Trial.Version == u.opts.Version &&
		isInstalled(u.opts.DataDir, u.opts.ProgramPath)
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

// SetWaiting records the work that has to end before this process may be replaced.
func (u *Updater) SetWaiting(work string) {
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
		u.confirmTrialLocked()
	}
	if asked != nil && asked.Package.Version == u.opts.Version {
		asked = nil // this program is that version; the controller has not received it yet
	}
	switch {
	case asked == nil && u.status != nil:
		u.cancelUpdateLocked()
		u.status = nil
		if u.state.Failure != nil {
			u.state.Failure = nil
			u.saveLocked()
		}
	case asked != nil && (u.status == nil || u.status.ID != asked.ID):
		u.cancelUpdateLocked()
		u.status = &api.UpdateStatus{ID: asked.ID, Stage: api.UpdateLoading}
		ctx, cancel := context.WithCancel(u.lifetime)
		u.cancelUpdate = cancel
		u.goroutines.Go(func() { u.prepareUpdate(ctx, *asked) })
	}
}

// cancelUpdateLocked ends the running update.
func (u *Updater) cancelUpdateLocked() {
	if u.cancelUpdate != nil {
		u.cancelUpdate()
	}
	u.cancelUpdate, u.readyVersion = nil, ""
	select {
	case <-u.ready:
	default:
	}
}

// confirmTrialLocked ends the trial of this program: it works.
func (u *Updater) confirmTrialLocked() {
	u.state = u.state.withTrialConfirmed()
	u.saveLocked()
	u.log.Info("new agent version confirmed", "version", u.opts.Version)
}

func (u *Updater) saveLocked() {
	if err := u.state.save(u.opts.DataDir); err != nil {
		u.log.Error("writing the update state failed", "error", err)
	}
}

// pruneVersions removes versions, and incomplete ones.
func (u *Updater) pruneVersions(keep []string) {
	list, err := os.ReadDir(u.opts.DataDir.AgentVersionsDir())
	if err != nil {
		return
	}
	for _, e := range list {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(u.opts.DataDir.AgentVersionsDir(), e.Name())); err != nil {
			u.log.Warn("removing an old agent version failed", "version", e.Name(), "error", err)
		}
	}
}

// confirmOrRollBack waits until this program has reached its controller. Otherwise it rolls back to the
// previous program.
func (u *Updater) confirmOrRollBack() {
	if retry.Sleep(u.lifetime, trialTimeout) != nil || !u.OnTrial() {
		return
	}
	if err := u.Rollback(fmt.Sprintf("the new agent did not reach the controller within %s",
		trialTimeout)); err != nil {
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
	if u.state.ConfirmedVersion != "" {
		file = programPath(u.opts.DataDir, u.state.ConfirmedVersion)
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	s := u.state.withTrialFailed(why)
	if err := s.save(u.opts.DataDir); err != nil {
		return err
	}
	u.log.Error("new agent version does not work; starting the previous one", "version", u.opts.Version,
		"reason", why, "back", file)
	err := u.opts.ReplaceProcess(file)
	u.state.Trial, u.state.Failure = nil, nil
	u.state.ConfirmedVersion = u.opts.Version // no other program can run
	u.saveLocked()
	return err
}

// prepareUpdate installs the requested version and signals when it is ready.
func (u *Updater) prepareUpdate(ctx context.Context, asked api.AgentUpdate) {
	version, err := u.download(ctx, asked)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		u.failUpdate(asked.ID, err)
		return
	}
	u.log.Info("new agent version installed", "version", version)
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	u.readyVersion = version
	u.status = &api.UpdateStatus{ID: asked.ID, Stage: api.UpdateWaiting, Progress: 1}
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

// failUpdate ends an update: the agent keeps its version.
func (u *Updater) failUpdate(id string, err error) {
	u.log.Error("agent update failed", "error", err)
	u.setStatus(id, api.UpdateFailed, 0, err.Error())
}

// Abandon abandons the update that is ready.
func (u *Updater) Abandon(why string) {
	u.mu.Lock()
	u.cancelUpdateLocked()
	s := u.status
	u.mu.Unlock()
	if s != nil {
		u.failUpdate(s.ID, errors.New(why))
	}
}

// download downloads, verifies and unpacks a version, and asks it for its version.
func (u *Updater) download(ctx context.Context, asked api.AgentUpdate) (version string, err error) {
	p, err := u.verifyPackage(asked)
	if err != nil {
		return "", err
	}
	dir := u.opts.DataDir.AgentVersionsDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if free, _, err := host.DiskSpace(dir); err == nil && free < unpackFactor*p.Size {
		return "",
			fmt.Errorf("disk of the node too full: %d bytes free, and a package of %d bytes needs %d times its size",
				free, p.Size, unpackFactor)
	}
	u.pruneVersions([]string{
		u.opts.Version, u.currentState().ConfirmedVersion, u.currentState().PreviousVersion,
		partFileName(p),
	})
	file := filepath.Join(dir, partFileName(p))
	from := packageSource{
		transport: u.opts.Transport, controllerURL: u.opts.Identity.ControllerURL, nodeID: u.opts.Identity.NodeID,
		nodeCredential: u.opts.Identity.Credential,
	}
	err = from.download(ctx, p, file, func(have int64) {
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

// unpackFactor is the disk space of an update, as a multiple of its package's size.
const unpackFactor = 5

// partFileName returns the name of the file into which a package is downloaded.
func partFileName(p api.AgentPackage) string { return "." + p.SHA256 + ".part" }

func (u *Updater) currentState() programState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// verifyPackage returns the signed statement about the package, if a trusted key signed it and this node may
// install it.
func (u *Updater) verifyPackage(asked api.AgentUpdate) (p api.AgentPackage, err error) {
	if err := u.takeFirstKeys(asked.Keys); err != nil {
		return p, err
	}
	raw, err := os.ReadFile(u.opts.KeysFile)
	if err != nil {
		return p,
			fmt.Errorf("no trusted key for agent packages (%w); add one with: buildnode join --update-key",
				err)
	}
	trust, err := license.ParseTrustedKeys(raw)
	if err != nil {
		return p, fmt.Errorf("%s: %w", u.opts.KeysFile, err)
	}
	if p, err = release.Verify(trust, asked.Package.Signed); err != nil {
		return p, fmt.Errorf("verify agent package: %w", err)
	}
	switch here := (release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}); {
	case p.OS != here.OS || p.Arch != here.Arch:
		return p, fmt.Errorf("the agent package is for %s/%s, and this node is %s", p.OS, p.Arch, here)
	case farm.IsOlderVersion(p.Version, u.opts.Version) && asked.Force && !u.opts.AllowDowngrade:
		return p,
			fmt.Errorf(
				"%s is older than the agent (%s), and the owner of this node does not allow that: run it with "+
					"--allow-downgrade", p.Version, u.opts.Version)
	case farm.IsOlderVersion(p.Version, u.opts.Version) && !asked.Force:
		return p, fmt.Errorf("agent package %s is older than the running agent %s; allow older versions to install it",
			p.Version,
			u.opts.Version)
	}
	return p, nil
}

// takeFirstKeys stores the keys of the controller on a node that joined before the controller had any. Later keys of a
// controller are ignored.
func (u *Updater) takeFirstKeys(keys string) error {
	file := u.opts.DataDir.UpdateKeysFile()
	if _, err := os.Stat(file); keys == "" || u.opts.KeysFile != file || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if len(keys) > maxKeysBytes {
		return fmt.Errorf("the agent package keys from the controller have %d bytes: want at most %d", len(keys),
			maxKeysBytes)
	}
	if _, err := license.ParseTrustedKeys([]byte(keys)); err != nil {
		return fmt.Errorf("invalid agent package keys from the controller: %w", err)
	}
	u.log.Info("trusted keys of agent packages stored; this node had none", "file", file)
	return datadir.WriteFile(file, []byte(keys+"\n"))
}

// maxKeysBytes bounds the keys that a controller sends.
const maxKeysBytes = 64 << 10

// install unpacks a package into the directory of its version, completely or not at all.
func (u *Updater) install(ctx context.Context, p api.AgentPackage, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	dir, err := os.MkdirTemp(u.opts.DataDir.AgentVersionsDir(), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := errors.Join(unpackProgram(f, dir), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	said, err := u.opts.QueryVersion(ctx, filepath.Join(dir, programName))
	if err != nil {
		return fmt.Errorf("the program in the package does not run on this node: %w", err)
	}
	if said != p.Version {
		return fmt.Errorf("the program in the package is version %s, not %s", said, p.Version)
	}
	to := filepath.Join(u.opts.DataDir.AgentVersionsDir(), p.Version)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return datadir.SyncDir(u.opts.DataDir.AgentVersionsDir())
}

// ReplaceProcess replaces this process by the version that is ready. It returns only on failure; then this
// program continues, and the controller receives the reason.
func (u *Updater) ReplaceProcess() error {
	u.mu.Lock()
	version, status := u.readyVersion, u.status
	if version == "" || status == nil {
		u.mu.Unlock()
		return errors.New("no agent update is ready")
	}
	before := u.state
	u.state = u.state.withTrial(status.ID, version)
	err := u.state.save(u.opts.DataDir)
	if err == nil {
		u.log.Info("agent update started", "version", version, "was", u.opts.Version)
		err = u.opts.ReplaceProcess(programPath(u.opts.DataDir, version))
	}
	u.state = before
	u.state.Failure = &updateFailure{status.ID, err.Error()}
	u.saveLocked()
	u.mu.Unlock()
	u.Abandon(err.Error())
	return err
}
