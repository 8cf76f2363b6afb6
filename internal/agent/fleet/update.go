package fleet

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// updater makes a simulated node report another version, after some time. Nothing is downloaded or
// installed.
type updater struct {
	updateTime sim.DurationRange
	rand       seededRand
	ready      chan struct{}

	mu           sync.Mutex // guards the fields below
	status       *api.UpdateStatus
	timer        *time.Timer
	readyVersion string // version that is ready
}

var _ agent.Updater = (*updater)(nil)

func newUpdater(takes sim.DurationRange, luck seededRand) *updater {
	return &updater{updateTime: takes, rand: luck, ready: make(chan struct{}, 1)}
}

// HandleUpdate implements agent.Updater.
func (u *updater) HandleUpdate(asked *api.AgentUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case asked == nil:
		u.endLocked()
	case u.status == nil || u.status.ID != asked.ID:
		u.endLocked()
		u.status = &api.UpdateStatus{ID: asked.ID, Stage: api.UpdateLoading}
		at, fails := u.rand.draw(asked.ID)
		id, version := asked.ID, asked.Package.Version
		u.timer = time.AfterFunc(durationAt(u.updateTime, at), func() { u.endDownload(id, version, fails) })
	}
}

func (u *updater) endLocked() {
	if u.timer != nil {
		u.timer.Stop()
	}
	u.status, u.timer, u.readyVersion = nil, nil, ""
	select {
	case <-u.ready:
	default:
	}
}

// endDownload ends a simulated download.
func (u *updater) endDownload(id, version string, fails bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.status == nil || u.status.ID != id:
		return
	case fails:
		u.status = &api.UpdateStatus{ID: id, Stage: api.UpdateFailed, Message: "the simulated update failed"}
		return
	}
	u.status = &api.UpdateStatus{ID: id, Stage: api.UpdateWaiting, Progress: 1}
	u.readyVersion = version
	u.ready <- struct{}{}
}

// Status implements agent.Updater.
func (u *updater) Status() *api.UpdateStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

// Ready implements agent.Updater.
func (u *updater) Ready() <-chan struct{} { return u.ready }

// SetWaiting implements agent.Updater.
func (u *updater) SetWaiting(work string) { u.setStatus(api.UpdateWaiting, work) }

// Abandon implements agent.Updater.
func (u *updater) Abandon(why string) { u.setStatus(api.UpdateFailed, why) }

func (u *updater) setStatus(stage api.UpdateStage, message string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status != nil {
		u.status = &api.UpdateStatus{ID: u.status.ID, Stage: stage, Progress: 1, Message: message}
	}
}

// takeVersion returns the version that the node becomes, and resets the update.
func (u *updater) takeVersion() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := u.readyVersion
	u.endLocked()
	return next
}
